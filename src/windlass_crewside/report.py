from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from windlass_crewside.messages import Event, Failed, Warned

if TYPE_CHECKING:
    from windlass_crewside.messages import Message
    from windlass_crewside.veil import Veil


class Sends(Protocol):
    def send(self, message: Message) -> None:
        """Raises OSError when no one is there to hear it."""


class Report:
    """How a framework tells the worker what happens in a run. Safe from any thread; waits while the worker is busy."""

    def __init__(self, channel: Sends, veil: Veil) -> None:
        self._channel = channel
        self._veil = veil

    def send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            end_with_the_worker()

    def event(self, name: str, payload: dict[str, Any], at: float | None = None) -> None:
        """`at` is Unix time in seconds, now when it isn't given."""
        self.send(Event(name, time.time() if at is None else at, self._veil.plain(payload)))

    def warn(self, code: str, message: str, task: int | None = None) -> None:
        self.send(Warned(code, self._veil.text(message), task))

    def fail(self, failed: Failed) -> None:
        words = [self._veil.text(words) for words in (failed.message, failed.trace, failed.hint)]
        self.send(Failed(failed.stage, *words))


def end_with_the_worker() -> NoReturn:
    """No one is left to run for: ends this process and all that it started in its group."""
    os.killpg(0, signal.SIGKILL)
    os._exit(1)
