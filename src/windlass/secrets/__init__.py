"""Secrets: the type that hides them, the key ring that encrypts them at rest, and the format of API tokens."""
