"""Holds the journal of a kickoff: its finished steps, which no attempt runs again (docs/concepts/journal.md)."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from windlass_child.journal.markers import Markers
from windlass_child.journal.step_context import QUESTION, question_keys, task_keys
from windlass_child.masking.secret_values import SecretValues
from windlass_child.process.error_text import text_of
from windlass_child.protocol.messages import JournalAppend

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass_child.protocol.messages import Answered, Asked, JournalReplay, Message

MARKED = "marked"
STATES = "state"
"""The level of the markers in the texts of a flow's state, which are parts of entries."""


class Sends(Protocol):
    def send(self, message: Message) -> None:
        """Sends a message. Raises OSError if no receiver is connected, and TooLarge."""


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step that an earlier attempt has finished. `output` is that of the task record which the entry names."""

    number: int
    value: Any
    output: str | None


class Journal:
    """The finished steps of earlier attempts, each of which can be taken once. Any thread can add steps.

    `has_files` returns whether the run may have written files by now.
    """

    def __init__(self, channel: Sends) -> None:
        self._channel = channel
        self.has_files: Callable[[], bool] = lambda: True
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._last = 0
        self._entries: dict[str, FinishedStep] = {}
        self._awaited: dict[int, threading.Event] = {}
        self.asked_before = False
        """Whether an earlier attempt asked a person."""
        self._answers: dict[int, Answered] = {}
        self._ended = False
        self._use(Markers(SecretValues({})))

    def _use(self, markers: Markers) -> None:
        self._markers, self.of_states = markers, markers.of_level(STATES)

    def put_values(self, values: SecretValues) -> dict[str, str]:
        """Puts the values of this run's secret variables into the remembered entries. Later entries get markers for
        them. It is called before the first entry is taken.

        Drops the entries for which that is not possible, and returns their keys with the reasons.
        """
        nonces = [one.value[MARKED] for one in self._entries.values() if is_marked(one.value)]
        self._use(Markers(values, nonces[-1] if nonces else None))
        dropped = {}
        for key, entry in list(self._entries.items()):
            if is_marked(entry.value):
                try:
                    value = Markers(values, entry.value[MARKED]).shown(entry.value["value"])
                except (ValueError, RecursionError) as error:
                    dropped[key] = text_of(error)
                    del self._entries[key]
                else:
                    self._entries[key] = replace(entry, value=value)
        return dropped

    def remember(self, entry: JournalReplay) -> None:
        self._last = max(self._last, entry.number)
        self.asked_before = self.asked_before or entry.key.startswith(QUESTION)
        with contextlib.suppress(ValueError):  # an entry that is not JSON is ignored
            self._entries[entry.key] = FinishedStep(entry.number, json.loads(entry.record), entry.output)

    def take(self, key: str) -> FinishedStep | None:
        return self._entries.pop(self._markers.without_values(key), None)

    def take_all(self, beginning: str) -> dict[str, FinishedStep]:
        """Takes the entries whose keys begin with `beginning`, in the order in which they were written.

        The keys of the result are the rests of the keys, after `beginning`.
        """
        beginning = self._markers.without_values(beginning)
        keys = [key for key in self._entries if key.startswith(beginning)]
        taken = {key.removeprefix(beginning): self._entries.pop(key) for key in keys}
        return dict(sorted(taken.items(), key=lambda item: item[1].number))

    def drop_within(self, step: str) -> None:
        """Drops the entries of a step that is not run again: of crews that it kicked off, and of its questions."""
        for keys in task_keys(step), question_keys(step):
            self.take_all(keys)

    def values(self) -> list[Any]:
        """Returns the values of the entries that were not taken yet."""
        return [entry.value for entry in self._entries.values()]

    def left(self) -> int:
        """Returns the number of entries that were not taken."""
        return len(self._entries)

    def record(self, key: str, value: Any, position: int | None = None, *, output_elsewhere: bool = False) -> None:
        """Sends an entry to the worker, which commits entries in the order in which they are sent.

        `position` and `output_elsewhere` are those of JournalAppend. Raises OSError if no receiver is connected,
        TooLarge, and TypeError, ValueError or RecursionError for a value that is not JSON.
        """
        key, record, files = self._markers.without_values(key), self._record_of(value), self.has_files()
        if os.getpid() == self._owner:  # the server receives nothing from a process that crew code forked
            with self._lock:
                number = self._last + 1
                self._awaited[number] = threading.Event()
                try:
                    self._send(JournalAppend(number, key, record, position, output_elsewhere, files))
                except BaseException:
                    del self._awaited[number]
                    raise

    def ask(self, key: str, value: Any, made: Callable[[int, str, str, bool], Asked]) -> int:
        """Sends the entry of a question, and returns its number. `made` makes the message of number, key, record and
        files. Entries after a question without `waits` are not sent. Raises as `record` does.
        """
        if os.getpid() != self._owner:
            raise ValueError("the code asks in another process than the run's; ask in the process that the run is in")
        key, record, files = self._markers.without_values(key), self._record_of(value), self.has_files()
        with self._lock:
            asked = made(self._last + 1, key, record, files)
            self._send(asked)
            self._ended = self._ended or not asked.waits
            return asked.number

    def _record_of(self, value: Any) -> str:
        record = self._markers.text_of(value)
        if self._markers.used or self.of_states.used:  # from then on each entry: those without a marker don't differ
            record = f'{{"{MARKED}":"{self._markers.nonce}","value":{record}}}'
        return record

    def _send(self, message: JournalAppend | Asked) -> None:
        if not self._ended:
            self._channel.send(message)
            self._last = message.number

    def answered(self, answer: Answered) -> None:
        self._answers[answer.number] = answer

    def answer(self, number: int) -> Answered | None:
        """Returns the answer to the question with this number, or None."""
        return self._answers.get(number)

    def committed(self) -> None:
        """Waits until the worker has committed all entries that were sent so far."""
        if self._ended or os.getpid() != self._owner:
            return  # a forked process would wait for ever
        with self._lock:
            awaited = list(self._awaited.values())
        for one in awaited:
            one.wait()

    def written(self, number: int) -> None:
        """Marks an entry as committed by the worker."""
        awaited = self._awaited.pop(number, None)
        if awaited is not None:
            awaited.set()


def is_marked(value: Any) -> bool:
    """Returns whether this is the value of an entry with markers in it."""
    return isinstance(value, dict) and value.keys() == {MARKED, "value"}
