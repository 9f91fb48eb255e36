"""The composition root: the only package that knows all the parts, and how they hold together."""
