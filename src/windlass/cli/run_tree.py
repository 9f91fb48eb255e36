"""Follows the runs of a server, and converts their messages to lines and to the current state of each run.

Each line starts with the number of its run, because several runs may be shown at once.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.cli.progress import seconds_in_words
from windlass.cli.run_words import LONGEST, model_of, plain, shown, without_our_frames
from windlass.kickoffs.files import FileChanges
from windlass.kickoffs.outcome import Outcome
from windlass.kickoffs.states import State
from windlass.runner import Output, Preparing
from windlass_child.protocol.messages import Event, TaskEnded, TaskStarted, Tokens, Warned
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from windlass.store.claiming import Claimed

AT_ONCE, WHILE = 20, 1.0
"""At most AT_ONCE lines of a run's output are shown per WHILE seconds. One more line has the number of the others."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line about the run `number`. `look` is what it is about, from which a terminal chooses its style."""

    number: int
    depth: int
    words: str
    look: str = ""

    def __str__(self) -> str:
        return f"{self.head}{self.words}"

    @property
    def head(self) -> str:
        return f"[{self.number}] {'|  ' * self.depth}"


@dataclass(frozen=True, slots=True)
class Activity:
    """A task that runs, or a model call that is open."""

    name: str
    began: float


@dataclass(slots=True)
class Shown:
    """A run that is shown, with its state and its counts so far."""

    number: int
    slug: str
    began: float
    tokens: int = 0
    tasks: dict[int, Activity] = field(default_factory=dict)
    """The running tasks, by position."""
    calls: dict[str, Activity] = field(default_factory=dict)
    """The open model calls, by id. Their times are those of their events."""
    printed: int = 0
    """The number of lines of output since `since`. The first AT_ONCE of them were shown."""
    since: float = 0.0
    kickoff: str = ""


class RunTree:
    """An Observer that shows a line for each message of a run that matters to the author of a crew."""

    def __init__(
        self,
        show: Callable[[Line], None],
        clock: Callable[[], float] = time.monotonic,
        width: Callable[[], int] = lambda: shutil.get_terminal_size((LONGEST, 0)).columns,
    ) -> None:
        self._width = width
        self._show_line = show
        self._clock = clock
        self._runs: dict[tuple[UUID, int], Shown] = {}
        self._last = 0

    @property
    def runs(self) -> list[Shown]:
        """The open runs, oldest first. Safe from any thread."""
        return list(self._runs.values())

    def __call__(self, kickoff: Claimed, message: object) -> None:
        with suppress(Exception):  # a message that can't be shown must not end the run
            self._show(kickoff, message)

    def _show(self, kickoff: Claimed, message: object) -> None:
        key = (kickoff.id, kickoff.attempt)
        if message is None:
            self._begin(kickoff)
        elif key in self._runs:
            self._continue(self._runs[key], message)
            if isinstance(message, Outcome):
                del self._runs[key]

    def _continue(self, run: Shown, message: object) -> None:
        lines = self._lines(run, message)
        over = self._clock() - run.since >= WHILE
        if (over or lines) and run.printed > AT_ONCE:
            self._print(run, 2, f"> ({run.printed - AT_ONCE:,} more lines)", "output")
            run.printed = AT_ONCE
        if isinstance(message, Output):
            self._print_output(run, message.line, over=over)
        for depth, words, look in lines:
            self._print(run, depth, words, look)

    def _print_output(self, run: Shown, line: str, *, over: bool) -> None:
        words = plain(line)
        if not words:
            return
        if over:
            run.printed, run.since = 0, self._clock()
        run.printed += 1
        if run.printed <= AT_ONCE:
            head = Line(run.number, 2, "> ").head
            self._print(run, 2, f"> {words}"[: self._width() - len(head)], "output")  # folded tables are hard to read

    def _begin(self, kickoff: Claimed) -> None:
        self._last += 1
        self._runs[kickoff.id, kickoff.attempt] = run = Shown(
            self._last, kickoff.slug, self._clock(), kickoff=str(kickoff.id)
        )
        again = f", attempt {kickoff.attempt}" if kickoff.attempt > 1 else ""
        self._print(run, 0, f"{kickoff.slug}: kickoff {kickoff.id}{again}", "run")

    def _print(self, run: Shown, depth: int, words: str, look: str) -> None:
        self._show_line(Line(run.number, depth, words, look))

    def _lines(self, run: Shown, message: object) -> list[tuple[int, str, str]]:
        match message:
            case TaskStarted():
                name = shown(message.name or f"task {message.position + 1}")
                run.tasks[message.position] = Activity(name, self._clock())
                return [(1, f"task {name}" + (f" ({shown(message.agent)})" if message.agent else ""), "task")]
            case TaskEnded():
                return self._end_of_task(run, message)
            case Tokens():
                run.tokens += message.total
            case Event():
                return [(2, *words) for words in self._event(run, message)]
            case Warned() | FileChanges() | Preparing(what="import"):
                return [(1, *self._note(run, message))]
            case Outcome():
                trace = [(1, line, "trace") for line in without_our_frames(message.trace)]
                return [*trace, (0, *self._outcome(run, message))]
        return []

    def _note(self, run: Shown, message: Warned | FileChanges | Preparing) -> tuple[str, str]:
        if isinstance(message, Warned):
            return f"warning: {shown(message.message)}", "warning"
        if isinstance(message, Preparing):
            return "importing the project's code", "journal"
        files = "1 file" if message.count == 1 else f"{message.count:,} files"
        return f"{files}: windlass files {run.kickoff}", "files"

    def _end_of_task(self, run: Shown, task: TaskEnded) -> list[tuple[int, str, str]]:
        activity = run.tasks.pop(task.position, None)
        if activity is None:
            return []  # a skipped task never started: its end is not shown
        took = "" if task.seconds is None else f" in {seconds_in_words(task.seconds)}"
        return [(1, f"task {activity.name}: {task.state}{took}", "failed" if task.state == "failed" else "completed")]

    def _event(self, run: Shown, event: Event) -> list[tuple[str, str]]:
        payload = value_of(event)
        match event.type:
            case "llm_call_started":
                run.calls[str(payload.get("call_id"))] = Activity(model_of(payload), event.at)
            case "llm_call_completed" | "llm_call_failed":
                return [self._model_call(run, event)]
            case "tool_usage_finished" | "tool_usage_error":
                failed = event.type == "tool_usage_error" or bool(payload.get("failure"))
                words = f"tool {shown(payload.get('tool_name'))}: {'failed' if failed else 'done'}"
                return [(words, "failed" if failed else "tool")]
            case "agent_execution_started" if payload.get("agent_role"):
                return [(f"agent {shown(payload['agent_role'])}", "agent")]
            case "journal_restored":
                kept = [*payload.get("tasks", []), *payload.get("methods", [])]
                return [(f"taken from the journal: {shown(', '.join(map(str, kept)))}", "journal")]
        return []

    def _model_call(self, run: Shown, event: Event) -> tuple[str, str]:
        payload = value_of(event)
        call = run.calls.pop(str(payload.get("call_id")), None)
        parts = [] if call is None else [seconds_in_words(event.at - call.began)]
        usage = payload.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("total_tokens"), int):
            parts.append(f"{usage['total_tokens']:,} tokens")
        failed = event.type == "llm_call_failed"
        if failed:
            parts.append(f"failed: {shown(payload.get('error'))}")
        return f"{model_of(payload)}: {', '.join(parts) or 'answered'}", "failed" if failed else "model"

    def _outcome(self, run: Shown, outcome: Outcome) -> tuple[str, str]:
        succeeded = outcome.state is State.SUCCESS
        state = "completed" if succeeded else outcome.state.lower()
        summary = f"{state} in {seconds_in_words(self._clock() - run.began)}, {run.tokens:,} tokens"
        words = summary if outcome.error is None else f"{summary}: {shown(outcome.error)}"
        return words, "completed" if succeeded else "failed"


def value_of(event: Event) -> dict[str, Any]:
    """Returns the payload of the event. Those of a child arrive as encoded JSON."""
    payload: Any = event.payload
    try:
        found: dict[str, Any] = payload.value if isinstance(payload, Encoded) else payload
    except (ValueError, RecursionError):  # only PostgreSQL checks that it is JSON
        return {}
    return found
