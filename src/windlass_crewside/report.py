from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from windlass_crewside import processes
from windlass_crewside.budget import size_in_words
from windlass_crewside.faults import LimitReached
from windlass_crewside.messages import LARGEST_FRAME, Event, Failed, Succeeded, TaskEnded, TooLarge, Warned
from windlass_crewside.stopping import Stopping
from windlass_crewside.surroundings import flush_output

if TYPE_CHECKING:
    from windlass_crewside.messages import Message
    from windlass_crewside.veil import Veil


class Sends(Protocol):
    def send(self, message: Message) -> None:
        """Raises OSError when no one is there to hear it."""


class Report:
    """How a framework tells the worker what happens in a run. Safe from any thread; waits while the worker is busy."""

    def __init__(self, channel: Sends, veil: Veil, stopping: Stopping | None = None) -> None:
        self._channel = channel
        self._veil = veil
        self.stopping = stopping or Stopping()

    def send(self, message: Message) -> None:
        """Raises ProjectFault for a result that is too large. Of all else that is, only that it was is told."""
        try:
            self._channel.send(message)
        except OSError as error:
            end_unheard(error)
        except TooLarge as error:
            if isinstance(message, Succeeded):
                words = (
                    f"its result is {size_in_words(error.size)}; the most that can be is {size_in_words(LARGEST_FRAME)}"
                )
                raise LimitReached(words, "Return less, or where it is stored.") from error
            self._send_without_its_bulk(message, error.size)

    def _send_without_its_bulk(self, message: Message, size: int) -> None:
        what = f"the event {message.type}" if isinstance(message, Event) else f"a message ({type(message).__name__})"
        if isinstance(message, TaskEnded):
            what = "the output of a task"
            self.send(replace(message, output=None))
        limit = size_in_words(LARGEST_FRAME)
        self.warn("too_large", f"{what} is {size_in_words(size)} and is not kept; the most that can be is {limit}")

    def event(self, name: str, payload: dict[str, Any], at: float | None = None) -> None:
        """`at` is Unix time in seconds, now when it isn't given."""
        self.send(Event(name, time.time() if at is None else at, self._veil.plain(payload)))

    def warn(self, code: str, message: str, task: int | None = None) -> None:
        self.send(Warned(code, self._veil.text(message), task))

    def fail(self, failed: Failed) -> None:
        message, trace, hint = [self._veil.text(words) for words in (failed.message, failed.trace, failed.hint)]
        self.send(Failed(failed.stage, message, trace, hint, failed.reason))


CLOSED = b"the crew's code closed the socket that its process reports on; look for os.closerange or os.close\n"


def end_unheard(error: OSError) -> NoReturn:
    """Ends this process for an error of its channel."""
    if error.errno != errno.EBADF:
        end_with_the_worker()
    flush_output()
    with contextlib.suppress(OSError):
        os.write(2, CLOSED)
    processes.end_all_below()
    os._exit(os.EX_OSERR)


def end_with_the_worker() -> NoReturn:
    """No one is left to run for: ends this process and all that it started."""
    processes.end_all_below()
    os.killpg(0, signal.SIGKILL)
    os._exit(1)
