"""The journal of a kickoff: its finished steps, which no attempt runs again (docs/journal.md)."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from windlass_crewside.messages import Journaled

if TYPE_CHECKING:
    from windlass_crewside.messages import Message, Remember


class Sends(Protocol):
    def send(self, message: Message) -> None:
        """Raises OSError when no one is there to hear it, and TooLarge."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A step that an earlier attempt has finished. `output` is that of the task record which it named."""

    number: int
    value: Any
    output: str | None


class Journal:
    """What earlier attempts have finished, each step to be taken once; and the way to add to it, from any thread."""

    def __init__(self, channel: Sends) -> None:
        self._channel = channel
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._last = 0
        self._entries: dict[str, Entry] = {}
        self._awaited: dict[int, threading.Event] = {}

    def remember(self, entry: Remember) -> None:
        self._last = max(self._last, entry.number)
        with contextlib.suppress(ValueError):  # then it is as if it was not there
            self._entries[entry.key] = Entry(entry.number, json.loads(entry.record), entry.output)

    def take(self, key: str) -> Entry | None:
        return self._entries.pop(key, None)

    def take_all(self, beginning: str) -> dict[str, Entry]:
        """Those whose keys begin so, by what comes behind it, in the order in which they were written."""
        keys = [key for key in self._entries if key.startswith(beginning)]
        taken = {key.removeprefix(beginning): self._entries.pop(key) for key in keys}
        return dict(sorted(taken.items(), key=lambda item: item[1].number))

    def values(self) -> list[Any]:
        """What the entries hold that were not taken yet."""
        return [entry.value for entry in self._entries.values()]

    def left(self) -> int:
        """How many were not taken."""
        return len(self._entries)

    def record(self, key: str, value: Any, position: int | None = None, *, apart: bool = False) -> None:
        """Gives it to the worker, which commits what it is given in this order; `position` and `apart` are those of
        its Journaled.

        Raises OSError when no one is there, TooLarge, and TypeError, ValueError or RecursionError for what is not JSON.
        """
        record = json.dumps(value, separators=(",", ":"))
        if os.getpid() == self._owner:  # a process that crew code forked is not heard
            self._send(key, record, position, apart=apart)

    def committed(self) -> None:
        """Waits until the worker has committed all that it was given so far."""
        if os.getpid() != self._owner:
            return  # it would wait for ever
        with self._lock:
            awaited = list(self._awaited.values())
        for one in awaited:
            one.wait()

    def written(self, number: int) -> None:
        """The worker has committed this one."""
        awaited = self._awaited.pop(number, None)
        if awaited is not None:
            awaited.set()

    def _send(self, key: str, record: str, position: int | None, *, apart: bool) -> None:
        with self._lock:
            number = self._last + 1
            self._awaited[number] = threading.Event()
            try:
                self._channel.send(Journaled(number, key, record, position, apart))
            except BaseException:
                del self._awaited[number]
                raise
            self._last = number
