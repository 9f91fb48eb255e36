"""Defines the events of a kickoff as they are stored, and the types that the server treats in a special way."""

# See docs/decisions/store.md#payloads-of-events-are-stored-unread

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from windlass_child.protocol.fields import LARGEST_EVENT
from windlass_child.protocol.truncation import cut
from windlass_child.protocol.validation import Encoded

TRACEBACK = "traceback"
"""The type of the event with the traceback of a failed run, as its member `text`."""

SECRETS_RESOLVED = "secrets_resolved"
"""The type of the event that describes the reads of variables from secret managers, without their values."""

CONNECTION = "connection"
"""The type of the event that describes a connection of a run, or one that its egress does not permit."""

HIDDEN_FROM_USERS = (TRACEBACK, SECRETS_RESOLVED)
"""The types of events that only tokens of the organization see: they have paths, and names of secrets."""


HUMAN_INPUT_REQUESTED = "human_input_requested"
"""The type of the event with a question to a person. The server writes it together with the question, in place of that
of the child, so that nobody learns of a question that can't be answered yet.
"""


MILESTONES = (
    "task_started",
    "task_completed",
    "task_failed",
    "crew_kickoff_started",
    "crew_kickoff_completed",
    "crew_kickoff_failed",
    "flow_started",
    "flow_finished",
    "flow_failed",
    "method_execution_started",
    "method_execution_finished",
    "method_execution_failed",
    HUMAN_INPUT_REQUESTED,
    "human_input_received",
    TRACEBACK,
    SECRETS_RESOLVED,
)
"""The types of events without which a person can't follow a run. Other events must not use up their room."""


def is_chunk(kind: str) -> bool:
    """Returns whether events of this type are parts of a model's streamed answer."""
    return kind.endswith("_chunk")


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """`at` is Unix time in seconds, `payload` is JSON text. `seq` counts from 1 over all attempts of the kickoff."""

    seq: int
    type: str
    at: float
    payload: str


def to_json(value: Any) -> str:
    """Returns the value as JSON in ASCII.

    NUL and lone surrogates in a crew's strings become escapes, which PostgreSQL's `json` stores unchanged.
    """
    return json.dumps(value, separators=(",", ":"))


def stored_event(seq: int, kind: str, at: float, payload: dict[str, Any] | Encoded) -> StoredEvent:
    """Returns the event to store. Cuts a payload of more than LARGEST_EVENT bytes, and keeps an encoded one."""
    if isinstance(payload, Encoded):
        return StoredEvent(seq, kind, at, str(payload.data, "ascii"))
    text = to_json(payload)
    return StoredEvent(seq, kind, at, text if len(text) <= LARGEST_EVENT else to_json(cut(payload)))
