from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

LARGEST_PAYLOAD = 256 * 1024
"""Bytes of JSON; a larger payload is cut, with a mark that says so."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """`at` is Unix time in seconds, `payload` JSON text, `seq` counts from 1 over all attempts of the kickoff."""

    seq: int
    type: str
    at: float
    payload: str


def to_json(value: Any) -> str:
    """ASCII, so that NUL and lone surrogates in a crew's strings are escapes, which PostgreSQL's `json` stores as they
    are.
    """
    return json.dumps(value, separators=(",", ":"))


def stored_event(seq: int, kind: str, at: float, payload: dict[str, Any]) -> StoredEvent:
    text = to_json(payload)
    return StoredEvent(seq, kind, at, text if len(text) <= LARGEST_PAYLOAD else _cut(text))


def _cut(text: str) -> str:
    """Keeps the beginning as text: a cut JSON document is no JSON any more."""
    kept = text[: LARGEST_PAYLOAD // 2 - 512]  # escaping can double it
    return to_json({"cut": {"bytes": len(text), "kept": len(kept), "limit": LARGEST_PAYLOAD}, "beginning": kept})
