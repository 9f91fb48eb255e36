"""Recognises the offline model, which answers in place of a model of OpenAI (docs/how-to/offline-model.md)."""

from __future__ import annotations

KEY = "no-key-needed-by-the-offline-model"
"""The value of OPENAI_API_KEY. OpenAI's client refuses an empty key. The length keeps its redaction as a secret from
words of answers.
"""
NAME = "offline-model"
"""The model that its answers name, for any requested model."""
