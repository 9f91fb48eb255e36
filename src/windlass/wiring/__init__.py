"""The composition root: the only package that imports all parts and connects them."""
