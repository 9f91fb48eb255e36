"""Sends what happens in a run to the server: events, task records, journal entries, warnings, the result."""

# See docs/decisions/journal.md#a-large-output-is-sent-and-written-once

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

from windlass_child.journal.journal import Journal
from windlass_child.journal.questions import Questions
from windlass_child.masking.chunks import Chunks
from windlass_child.process import processes
from windlass_child.process.budget import Stopping
from windlass_child.process.error_text import LimitReached, ProjectFault, explain, text_of
from windlass_child.process.output import drop_output, flush_output
from windlass_child.process.prompts import Prompts
from windlass_child.protocol.frames import TooLarge
from windlass_child.protocol.lease import LAPSED
from windlass_child.protocol.messages import Asked, Event, Succeeded, TaskEnded, TaskStarted, Warned
from windlass_child.protocol.sizes import size_in_words
from windlass_child.protocol.truncation import beginning, cut, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windlass_child.journal.journal import Sends
    from windlass_child.journal.questions import Question
    from windlass_child.masking.redaction import Redaction
    from windlass_child.masking.server_paths import ServerPaths
    from windlass_child.protocol.messages import Answered, Message


LONGEST_WARNING = 2000
"""The most characters of a warning's text."""
LONGEST_QUESTION = 20_000
"""The most characters of a question."""
PAUSE_SECONDS = 5.0
"""How long code of the crew may run after the last question of an attempt, for example to close connections."""
LARGE = 64 * 1024
"""An output with more characters is not sent twice."""
MOST_WRITERS = 32
"""The most threads that wait for journal entries to be written. They are started on demand."""


class Report:
    """Sends what happens in a run to the worker. Safe from any thread. A call waits while the worker is busy."""

    def __init__(
        self,
        channel: Sends,
        redaction: Redaction,
        stopping: Stopping | None = None,
        journal: Journal | None = None,
        *,
        refuse_secrets: bool = False,
        paths: ServerPaths | None = None,
    ) -> None:
        """With `refuse_secrets`, a prompt with the value of a secret variable ends the run. `paths` are left out of
        errors and warnings.
        """
        self._channel = channel
        self._redaction = redaction
        self._paths = paths
        self._chunks = Chunks(redaction.secrets)
        self.prompts = Prompts(redaction.secrets, refuse=refuse_secrets)
        self.stopping = stopping or Stopping()
        self.journal = journal or Journal(channel)
        self.questions = Questions(self)
        self._writers = ThreadPoolExecutor(MOST_WRITERS, "windlass-journal")
        self._last_large: TaskEnded | None = None

    def send(self, message: Message) -> None:
        """Sends a message. Raises ProjectFault for a result that is too large. In place of another message that is too
        large it sends a warning, or a cut event.
        """
        message = self._redaction.message(message)
        if isinstance(message, Succeeded):
            self._send_held_chunks()
            message = self._without_what_was_sent(message)
        try:
            self._channel.send(message)
            self._note(message)
        except OSError as error:
            end_without_reader(error)
        except TooLarge as error:
            if isinstance(message, Succeeded):
                size, most = size_in_words(error.size), size_in_words(error.most)
                words = f"its result is {size}; the limit is {most}"
                raise LimitReached(words, "Return less, or the place where the result is stored.") from error
            self._send_without_its_bulk(message, error)

    def _note(self, message: Message) -> None:
        last = self._last_large
        if last and isinstance(message, TaskStarted | TaskEnded) and message.position == last.position:
            self._last_large = None  # the task record has another output now
        if isinstance(message, TaskEnded) and isinstance(message.output, str) and len(message.output) > LARGE:
            self._last_large = message

    def _without_what_was_sent(self, result: Succeeded) -> Succeeded:
        task = self._last_large
        if task is None or task.output != result.output:
            return result
        return replace(result, output="", output_of=task.position)

    def _send_without_its_bulk(self, message: Message, error: TooLarge) -> None:
        if isinstance(message, Event) and "cut" not in message.payload:
            self.send(replace(message, payload=cut(message.payload)))
            return
        what = f"the event {message.type}" if isinstance(message, Event) else f"a message ({type(message).__name__})"
        if isinstance(message, TaskEnded):
            what = "the output of a task"
            self.send(replace(message, output=None))
        size, most = size_in_words(error.size), size_in_words(error.most)
        self.warn("too_large", f"{what} is {size} and is not kept; the limit is {most}")

    def has_secret(self, text: str) -> bool:
        """Returns whether the text contains the value of a secret variable."""
        return self._redaction.secrets.are_in(text)

    def restore_journal(self) -> None:
        """Puts the values of secret variables into the entries of earlier attempts."""
        for reason in sorted(set(self.journal.put_values(self._redaction.secrets).values())):
            self.warn("journal_unfit", f"a finished step is run again: {reason}")

    def event(self, name: str, payload: dict[str, Any], at: float | None = None) -> None:
        """Sends an event. `at` is Unix time in seconds; None for now."""
        for one, masked in self._chunks.take(name, payload):
            self._send_event(one, masked, time.time() if at is None else at)

    def _send_event(self, name: str, payload: dict[str, Any], at: float) -> None:
        # Cut after the redaction: the redaction does not recognise half a secret.
        masked = self._redaction.plain(payload)
        if self._paths:
            masked = self._paths.out_of_event(masked)
        self.send(Event(self._redaction.secrets.masked(name), at, shortened(masked)))

    def _send_held_chunks(self) -> None:
        for name, payload in self._chunks.end():
            self._send_event(name, payload, time.time())

    def warn(self, code: str, message: str, task: int | None = None) -> None:
        self.send(Warned(code, beginning(self.shown(message), LONGEST_WARNING), task))

    def shown(self, text: str) -> str:
        """Returns the text of an error or a warning as others may read it."""
        text = self._redaction.text(text)
        return self._paths.out_of(text) if self._paths else text

    def warn_all(self, warnings: Iterable[Warned]) -> None:
        for warning in warnings:
            self.warn(warning.code, warning.message, warning.task)

    def finished(
        self, key: str, value: Any, step: str, position: int | None = None, output_elsewhere: bool = False
    ) -> bool:
        """Records a finished step in the journal. `step` is its name in warnings. The caller calls `committed` before
        other code of the project runs.

        Returns False for a step that can't be recorded: the run goes on, and a later attempt runs this step again.
        """
        try:
            self.journal.record(key, value, position, output_elsewhere=output_elsewhere)
        except OSError as error:
            end_without_reader(error)
        except TooLarge as error:
            size, limit = size_in_words(error.size), size_in_words(error.most)
            self.not_journaled(step, f"its output is {size}; the limit is {limit}")
        except (TypeError, ValueError, RecursionError) as error:
            self.not_journaled(step, text_of(error))
        else:
            return True
        return False

    def ask(self, question: Question, *, waits: bool) -> int:
        """Sends a question and returns its number. Without `waits` nothing is sent after it, and this process ends
        soon.

        Raises ProjectFault for a question that can't be sent.
        """

        def made(number: int, key: str, record: str, files: bool) -> Asked:
            text = beginning(self._redaction.secrets.masked(question.text), LONGEST_QUESTION)
            place, choices = (question.position, question.method), [*question.choices]
            message = Asked(number, key, text, question.draft, *place, choices, record, waits, files)
            return replace(message, **self._redaction.masked_fields(message))

        try:
            number = self.journal.ask(question.key, question.record, made)
        except OSError as error:
            end_without_reader(error)
        except TooLarge as error:
            size, most = size_in_words(error.size), size_in_words(error.most)
            raise LimitReached(
                f"asked a person about {size} of text; the limit is {most}", "Ask about less."
            ) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise ProjectFault(f"a person can't be asked: {text_of(error)}") from error
        if not waits:
            end_soon()
        return number

    def keep_question(self, question: Question) -> None:
        """Records a question that is asked later, so that the next attempt need not work for it again."""
        self.finished(question.key, question.record, "a task whose result a person judges")

    def answered(self, question: Question, answer: Answered) -> None:
        where = {"task": question.task or question.method, "method": question.method, "question": question.text}
        given = {"approved": answer.approved, "feedback": answer.feedback}
        self.event("human_input_received", where | given)

    def stopping_or(self, abort: Callable[[ProjectFault], NoReturn]) -> None:
        """Ends the run by `abort` if the worker has asked for its end."""
        try:
            self.stopping.check()
        except ProjectFault as fault:
            abort(fault)

    def committed(self) -> None:
        """Waits until all finished steps are committed."""
        self.journal.committed()

    async def finished_meanwhile(self, *entry: Any) -> bool:
        """Calls `finished` and `committed` in a thread, while the event loop goes on. It uses no thread of the loop's
        own executor: crew code may keep all of those busy.
        """
        return await asyncio.get_running_loop().run_in_executor(self._writers, self._finished_for_sure, *entry)

    def _finished_for_sure(self, *entry: Any) -> bool:
        finished = self.finished(*entry)
        self.committed()
        return finished

    def warn_of_leftovers(self, more: int = 0) -> None:
        """Warns at the end of a run of journal entries that this attempt did not use. `more` is the number of entries
        that were taken from the journal and not used.
        """
        if left := self.journal.left() + more:
            steps = "a finished step" if left == 1 else f"{left} finished steps"
            self.warn(
                "journal_unused",
                f"{steps} of an earlier attempt did not occur in this attempt, so other steps ran and were paid for: "
                "the code took another path, or kicked off a crew with other inputs (the time, a random number)",
            )

    def not_journaled(self, step: str, why: str) -> None:
        self.warn("not_journaled", f"{step} is run again if the kickoff is interrupted after it: {why}")

    def close(self) -> None:
        """Ends the threads that wait for journal entries, after the answer of a process that goes on."""
        self._writers.shutdown()

    def fail(self, error: BaseException, stage: str, root: str) -> None:
        """Reports the end of the run by an exception. `root` is the project's folder."""
        self._send_held_chunks()
        self.send(explain(error, stage, root, self.shown))


def end_soon() -> None:
    """Ends this process as after an ordinary end, in PAUSE_SECONDS, unless it ends before.

    A framework prints errors about the end of a paused run. They are dropped.
    """
    drop_output()

    def end() -> None:
        processes.end_all_below()
        os._exit(os.EX_OK)

    timer = threading.Timer(PAUSE_SECONDS, end)
    timer.daemon = True
    timer.start()


CLOSED = b"the crew's code closed the socket that its process reports on; look for os.closerange or os.close\n"
ENDING = threading.RLock()


def end_without_reader(error: OSError) -> NoReturn:
    """Ends this process after an error of its channel."""
    if error.errno != errno.EBADF:
        end_with_the_worker()
    with ENDING:  # several threads may get the error at once
        flush_output()
        with contextlib.suppress(OSError):
            os.write(2, CLOSED)
        processes.end_all_below()
        os._exit(os.EX_OSERR)


def end_with_the_lease() -> NoReturn:
    """Ends this process and all that it started, because its lease has ended. The zygote ends what is left of it."""
    processes.end_all_below()
    os._exit(LAPSED)


def end_with_the_worker() -> NoReturn:
    """Ends this process and all that it started, because the worker or the zygote is gone."""
    processes.end_all_below()
    os.killpg(0, signal.SIGKILL)
    os._exit(1)
