"""Masks secrets in the chunks of a model's answer, also one that the border of two chunks divides.

The end of a chunk that may be the beginning of a secret is held back, and given out with the next chunk of the call.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass_child.masking.encodings import from_utf8, utf8

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_child.masking.search import MaskedStream
    from windlass_child.masking.secret_values import SecretValues

CHUNK = "_chunk"
"""The end of the types of these events."""
ENDS = ("llm_call_completed", "llm_call_failed")
TEXT = "chunk"
CALLS = ("call_id", "context_id", "task_id", "agent_id")
"""Members of an event, of which the first one that it has identifies the call."""
MOST_CALLS = 200
"""Calls whose end is awaited. Of more, the oldest counts as ended."""

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """The stream of one call, with the type and the payload of its last event."""

    type: str
    payload: Payload
    stream: MaskedStream


class Chunks:
    """The chunks of all calls of a run. Safe from any thread."""

    def __init__(self, secrets: SecretValues) -> None:
        self._secrets = secrets
        self._calls: dict[tuple[str, ...], Held] = {}
        self._lock = threading.Lock()

    def take(self, kind: str, payload: Payload) -> list[tuple[str, Payload]]:
        """Returns the events that replace this one, as (type, payload)."""
        if not self._secrets or not (kind.endswith(CHUNK) or kind in ENDS):
            return [(kind, payload)]
        with self._lock:
            if kind in ENDS:
                return [*self._ended(call_of(payload)), (kind, payload)]
            return [*self._too_many(), (kind, self._masked(kind, payload))]

    def end(self) -> list[tuple[str, Payload]]:
        """Returns the events with the texts that are held back, at the end of the run."""
        with self._lock:
            return list(self._rests(list(self._calls)))

    def _masked(self, kind: str, payload: Payload) -> Payload:
        masked = dict(payload)
        if isinstance(text := payload.get(TEXT), str):
            masked[TEXT] = self._fed((kind, call_of(payload), TEXT), kind, payload, text)
        tool = payload.get("tool_call")
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(tool, dict) and isinstance(function, dict) and isinstance(text := function.get("arguments"), str):
            key = (kind, call_of(payload), f"tool {tool.get('index')}")
            masked["tool_call"] = {**tool, "function": {**function, "arguments": self._fed(key, kind, payload, text)}}
        return masked

    def _fed(self, key: tuple[str, ...], kind: str, payload: Payload, text: str) -> str:
        stream = self._calls[key].stream if key in self._calls else self._secrets.stream()
        self._calls[key] = Held(kind, payload, stream)
        return from_utf8(stream.feed(utf8(text)))

    def _ended(self, call: str) -> Iterator[tuple[str, Payload]]:
        return self._rests([key for key in self._calls if key[1] == call])

    def _too_many(self) -> Iterator[tuple[str, Payload]]:
        return self._rests(list(self._calls)[: max(len(self._calls) - MOST_CALLS, 0)])

    def _rests(self, keys: list[tuple[str, ...]]) -> Iterator[tuple[str, Payload]]:
        for key in keys:
            held = self._calls.pop(key)
            if rest := from_utf8(held.stream.end()):
                payload = {name: value for name, value in held.payload.items() if name != "tool_call"}
                if key[2] == TEXT:
                    yield held.type, {**payload, TEXT: rest}
                else:
                    tool = held.payload["tool_call"]
                    function = {**tool["function"], "arguments": rest}
                    yield held.type, {**payload, TEXT: "", "tool_call": {**tool, "function": function}}


def call_of(payload: Payload) -> str:
    return next((str(payload[name]) for name in CALLS if payload.get(name)), "")
