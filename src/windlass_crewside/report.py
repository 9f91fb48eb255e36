from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from windlass_crewside import processes
from windlass_crewside.budget import size_in_words
from windlass_crewside.faults import LimitReached, text_of
from windlass_crewside.frames import LARGEST_FRAME, TooLarge
from windlass_crewside.journal import Journal
from windlass_crewside.messages import Event, Failed, Succeeded, TaskEnded, TaskStarted, Warned
from windlass_crewside.shortening import shortened
from windlass_crewside.stopping import Stopping
from windlass_crewside.surroundings import flush_output

if TYPE_CHECKING:
    from windlass_crewside.journal import Sends
    from windlass_crewside.messages import Message
    from windlass_crewside.veil import Veil


LARGE = 64 * 1024
"""Characters of an output from which on it is not sent twice."""
MOST_WRITERS = 32
"""Threads that wait for entries to be written; none is started before there is one."""


class Report:
    """How a framework tells the worker what happens in a run. Safe from any thread; waits while the worker is busy."""

    def __init__(
        self, channel: Sends, veil: Veil, stopping: Stopping | None = None, journal: Journal | None = None
    ) -> None:
        self._channel = channel
        self._veil = veil
        self.stopping = stopping or Stopping()
        self.journal = journal or Journal(channel)
        self._writers = ThreadPoolExecutor(MOST_WRITERS, "windlass-journal")
        self._last_large: TaskEnded | None = None

    def send(self, message: Message) -> None:
        """Raises ProjectFault for a result that is too large. Of all else that is, only that it was is told."""
        if isinstance(message, Succeeded):
            message = self._without_what_was_sent(message)
        try:
            self._channel.send(message)
            self._note(message)
        except OSError as error:
            end_unheard(error)
        except TooLarge as error:
            if isinstance(message, Succeeded):
                words = (
                    f"its result is {size_in_words(error.size)}; the most that can be is {size_in_words(LARGEST_FRAME)}"
                )
                raise LimitReached(words, "Return less, or where it is stored.") from error
            self._send_without_its_bulk(message, error.size)

    def _note(self, message: Message) -> None:
        last = self._last_large
        if last and isinstance(message, TaskStarted | TaskEnded) and message.position == last.position:
            self._last_large = None  # its record has another output now
        if isinstance(message, TaskEnded) and len(message.output or "") > LARGE:
            self._last_large = message

    def _without_what_was_sent(self, result: Succeeded) -> Succeeded:
        task = self._last_large
        if task is None or task.output != result.output:
            return result
        return replace(result, output="", output_of=task.position)

    def _send_without_its_bulk(self, message: Message, size: int) -> None:
        what = f"the event {message.type}" if isinstance(message, Event) else f"a message ({type(message).__name__})"
        if isinstance(message, TaskEnded):
            what = "the output of a task"
            self.send(replace(message, output=None))
        limit = size_in_words(LARGEST_FRAME)
        self.warn("too_large", f"{what} is {size_in_words(size)} and is not kept; the most that can be is {limit}")

    def event(self, name: str, payload: dict[str, Any], at: float | None = None) -> None:
        """`at` is Unix time in seconds, now when it isn't given."""
        # cut after the veil, which would not know half a secret
        plain = shortened(self._veil.plain(payload))
        self.send(Event(name, time.time() if at is None else at, plain))

    def warn(self, code: str, message: str, task: int | None = None) -> None:
        self.send(Warned(code, self._veil.text(message), task))

    def finished(self, key: str, value: Any, step: str, position: int | None = None, apart: bool = False) -> bool:
        """Gives a finished step to the journal; `step` is what warnings call it. Before other code of the project runs,
        `committed` is to be awaited.

        False for one that can't be written: the run goes on, and a later attempt runs this step again.
        """
        try:
            self.journal.record(key, value, position, apart=apart)
        except OSError as error:
            end_unheard(error)
        except TooLarge as error:
            size, limit = size_in_words(error.size), size_in_words(LARGEST_FRAME)
            self.not_journaled(step, f"what it gave is {size}; the most that can be is {limit}")
        except (TypeError, ValueError, RecursionError) as error:
            self.not_journaled(step, text_of(error))
        else:
            return True
        return False

    def committed(self) -> None:
        """Waits until all finished steps are committed."""
        self.journal.committed()

    async def finished_meanwhile(self, *entry: Any) -> bool:
        """`finished` and `committed`, for code in an event loop, which goes on beside it. Not in one of the loop's own
        threads: crew code may keep all of them busy.
        """
        return await asyncio.get_running_loop().run_in_executor(self._writers, self._finished_for_sure, *entry)

    def _finished_for_sure(self, *entry: Any) -> bool:
        finished = self.finished(*entry)
        self.committed()
        return finished

    def warn_of_leftovers(self, more: int = 0) -> None:
        """At the end of a run: what earlier attempts have finished and this one did not come to, with `more` that were
        taken from the journal to no use.
        """
        if left := self.journal.left() + more:
            steps = "a finished step" if left == 1 else f"{left} finished steps"
            self.warn(
                "journal_unused",
                f"{steps} of an earlier attempt did not come up again, and what was run instead was paid for: the code "
                "went another way, or kicked off a crew with other inputs (the time, a random number)",
            )

    def not_journaled(self, step: str, why: str) -> None:
        self.warn("not_journaled", f"{step} is run again if the kickoff is interrupted after it: {why}")

    def fail(self, failed: Failed) -> None:
        message, trace, hint = [self._veil.text(words) for words in (failed.message, failed.trace, failed.hint)]
        self.send(Failed(failed.stage, message, trace, hint, failed.reason))


CLOSED = b"the crew's code closed the socket that its process reports on; look for os.closerange or os.close\n"
ENDING = threading.RLock()


def end_unheard(error: OSError) -> NoReturn:
    """Ends this process for an error of its channel."""
    if error.errno != errno.EBADF:
        end_with_the_worker()
    with ENDING:  # several threads may find out at once
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
