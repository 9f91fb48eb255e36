"""Joins the chunks of a model's streamed answer, so that an answer of 20,000 chunks is a few events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.events import StoredEvent, is_chunk, stored_event, to_json
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_JOINED = 16 * 1024
"""Bytes of an event up to which further chunks are added to it."""
LONGEST_PART = 4 * 1024
"""Bytes of a chunk that is joined. A longer one is an event of its own."""
CALL = ("call_id", "context_id", "task_id", "agent_id")
"""Members of an event that identify its model call."""


@dataclass(slots=True)
class Joined:
    seq: int
    type: str
    at: float
    payload: dict[str, Any]
    texts: list[str]
    arguments: list[str]
    size: int

    def event(self) -> StoredEvent:
        payload = {**self.payload, "chunk": "".join(self.texts)}
        if self.arguments:
            tool = payload["tool_call"]
            payload["tool_call"] = {**tool, "function": {**tool["function"], "arguments": "".join(self.arguments)}}
        return stored_event(self.seq, self.type, self.at, payload)


class StreamChunks:
    """Holds the chunks of the events that are not written yet.

    An event that is no chunk ends all of them, so that the order of the events stays.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, ...], Joined] = {}
        self._unwritten: dict[int, Joined] = {}

    def joined(self, kind: str, payload: Mapping[str, Any] | Encoded) -> int | None:
        """Adds the chunk to the last unwritten event of its model call. Returns the added bytes, None if there is no
        such event.
        """
        part = _parsed(kind, payload)
        if part is None or (found := self._open.get(_key(kind, part))) is None or found.size > LONGEST_JOINED:
            return None
        found.texts.append(part["chunk"])
        added = len(to_json(part["chunk"])) - 2
        if found.arguments:
            found.arguments.append(arguments := part["tool_call"]["function"]["arguments"])
            added += len(to_json(arguments)) - 2
        found.size += added
        return added

    def begin(self, event: StoredEvent, payload: Mapping[str, Any] | Encoded) -> None:
        """Notes the event as the last one of its model call, or ends all model calls."""
        part = _parsed(event.type, payload)
        if part is None:
            self._open.clear()
            return
        tool = part.get("tool_call")
        arguments = [tool["function"]["arguments"]] if tool else []
        size = len(event.payload)
        begun = Joined(event.seq, event.type, event.at, part, [part["chunk"]], arguments, size)
        self._open[_key(event.type, part)] = self._unwritten[event.seq] = begun

    def put_into(self, events: list[StoredEvent]) -> None:
        """Replaces the first events of joined chunks by the joined events, and ends them."""
        joined = {seq: one for seq, one in self._unwritten.items() if len(one.texts) > 1}
        self._open.clear()
        self._unwritten.clear()
        if joined:
            events[:] = [joined[event.seq].event() if event.seq in joined else event for event in events]


def _parsed(kind: str, payload: Mapping[str, Any] | Encoded) -> dict[str, Any] | None:
    """Returns the payload of a chunk that can be joined to another one."""
    if not is_chunk(kind) or (isinstance(payload, Encoded) and len(payload) > LONGEST_PART):
        return None
    try:
        part = payload.value if isinstance(payload, Encoded) else dict(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(part, dict) or not isinstance(part.get("chunk"), str):
        return None
    tool = part.get("tool_call")
    if tool is None:
        return part
    function = tool.get("function") if isinstance(tool, dict) else None
    return part if isinstance(function, dict) and isinstance(function.get("arguments"), str) else None


def _key(kind: str, part: Mapping[str, Any]) -> tuple[str, ...]:
    tool = part.get("tool_call")
    call = (str(part.get(name, "")) for name in CALL)
    return (kind, *call, str(tool.get("index")) if tool else "text")
