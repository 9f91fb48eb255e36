"""Runs crews of AI agents as a durable HTTP service."""

__version__ = "0.1.0"
