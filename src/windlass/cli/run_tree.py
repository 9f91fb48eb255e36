"""The runs of a server as they go, as a tree that grows line by line: of several at once each line tells its run."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.cli.printing import printable
from windlass.kickoffs.outcome import Outcome
from windlass.kickoffs.states import State
from windlass.runner import Output
from windlass_crewside.messages import Event, TaskEnded, TaskStarted, Tokens, Warned

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from windlass.store.kickoffs import Claimed

LONGEST = 120
"""Characters of what a crew calls its things, or says."""
AT_ONCE, WHILE = 20, 1.0
"""Lines of a run's output that are shown in so many seconds; of the others it is told how many they were."""
TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>])")
FRAME = re.compile(r'  File "(?P<file>.*)", line \d+')
OURS = ("/windlass_crewside/", "<frozen importlib.")


@dataclass(slots=True)
class Shown:
    """A run that is being shown."""

    number: int
    began: float
    tokens: int = 0
    tasks: dict[int, str] = field(default_factory=dict)
    """The names of those that run, by position."""
    calls: dict[str, float] = field(default_factory=dict)
    """When each model call began, by its id."""
    printed: int = 0
    """Lines of output since `since`, of which AT_ONCE were shown."""
    since: float = 0.0


class RunTree:
    """A Watcher that says a line for what matters to somebody who writes a crew."""

    def __init__(
        self,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        width: Callable[[], int] = lambda: shutil.get_terminal_size((LONGEST, 0)).columns,
    ) -> None:
        self._width = width
        self._say = say
        self._clock = clock
        self._runs: dict[tuple[UUID, int], Shown] = {}
        self._last = 0

    def __call__(self, kickoff: Claimed, what: object) -> None:
        with suppress(Exception):  # whatever can't be shown is not worth a run
            self._show(kickoff, what)

    def _show(self, kickoff: Claimed, what: object) -> None:
        key = (kickoff.id, kickoff.attempt)
        if what is None:
            self._begin(kickoff)
        elif key in self._runs:
            self._go_on(self._runs[key], what)
            if isinstance(what, Outcome):
                del self._runs[key]

    def _go_on(self, run: Shown, what: object) -> None:
        lines = self._lines(run, what)
        over = self._clock() - run.since >= WHILE
        if (over or lines) and run.printed > AT_ONCE:
            self._tell(run, 2, f"> ({run.printed - AT_ONCE:,} more lines)")
            run.printed = AT_ONCE
        if isinstance(what, Output):
            self._print(run, what.line, over=over)
        for depth, words in lines:
            self._tell(run, depth, words)

    def _print(self, run: Shown, line: str, *, over: bool) -> None:
        words = plain(line)
        if not words:
            return
        if over:
            run.printed, run.since = 0, self._clock()
        run.printed += 1
        if run.printed <= AT_ONCE:
            self._say(line_of(run, 2, f"> {words}")[: self._width()])  # tables are no easier to read when folded

    def _begin(self, kickoff: Claimed) -> None:
        self._last += 1
        self._runs[kickoff.id, kickoff.attempt] = Shown(self._last, self._clock())
        again = f", attempt {kickoff.attempt}" if kickoff.attempt > 1 else ""
        self._say(f"[{self._last}] {kickoff.slug}: kickoff {kickoff.id}{again}")

    def _tell(self, run: Shown, depth: int, words: str) -> None:
        self._say(line_of(run, depth, words))

    def _lines(self, run: Shown, what: object) -> list[tuple[int, str]]:
        match what:
            case TaskStarted():
                run.tasks[what.position] = name = shown(what.name or f"task {what.position + 1}")
                return [(1, f"task {name}" + (f" ({shown(what.agent)})" if what.agent else ""))]
            case TaskEnded():
                return self._end_of_task(run, what)
            case Tokens():
                run.tokens += what.total
            case Event():
                return [(2, words) for words in self._event(run, what)]
            case Warned():
                return [(1, f"warning: {shown(what.message)}")]
            case Outcome():
                return [*((1, line) for line in without_our_frames(what.trace)), (0, self._outcome(run, what))]
        return []

    def _end_of_task(self, run: Shown, task: TaskEnded) -> list[tuple[int, str]]:
        name = run.tasks.pop(task.position, None)
        if name is None:
            return []  # it was skipped, which the others tell
        took = "" if task.seconds is None else f" in {task.seconds:.1f} s"
        return [(1, f"task {name}: {task.state}{took}")]

    def _event(self, run: Shown, event: Event) -> list[str]:
        told = event.payload
        match event.type:
            case "llm_call_started":
                run.calls[str(told.get("call_id"))] = event.at
            case "llm_call_completed" | "llm_call_failed":
                return [self._model_call(run, event)]
            case "tool_usage_finished" | "tool_usage_error":
                ended = "failed" if event.type == "tool_usage_error" or told.get("failure") else "done"
                return [f"tool {shown(told.get('tool_name'))}: {ended}"]
            case "agent_execution_started" if told.get("agent_role"):
                return [f"agent {shown(told['agent_role'])}"]
            case "journal_restored":
                kept = [*told.get("tasks", []), *told.get("methods", [])]
                return [f"taken from the journal: {shown(', '.join(map(str, kept)))}"]
        return []

    def _model_call(self, run: Shown, event: Event) -> str:
        told = event.payload
        began = run.calls.pop(str(told.get("call_id")), None)
        parts = [] if began is None else [f"{max(0.0, event.at - began):.1f} s"]
        usage = told.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("total_tokens"), int):
            parts.append(f"{usage['total_tokens']:,} tokens")
        if event.type == "llm_call_failed":
            parts.append(f"failed: {shown(told.get('error'))}")
        return f"model {shown(told.get('model') or 'of the crew')}: {', '.join(parts) or 'answered'}"

    def _outcome(self, run: Shown, outcome: Outcome) -> str:
        state = "completed" if outcome.state is State.SUCCESS else outcome.state.lower()
        told = f"{state} in {self._clock() - run.began:.1f} s, {run.tokens:,} tokens"
        return told if outcome.error is None else f"{told}: {shown(outcome.error)}"


def line_of(run: Shown, depth: int, words: str) -> str:
    return f"[{run.number}] {'|  ' * depth}{words}"


def shown(value: Any) -> str:
    """In one short line, without what a terminal would obey."""
    words = printable(" ".join(str(value).split()))
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 3]}..."


def plain(line: str) -> str:
    """What of a line of output a terminal would show in the end, "" for nothing."""
    return printable(TERMINAL_CODES.sub("", line).rstrip().rpartition("\r")[2].expandtabs())


def without_our_frames(trace: str) -> list[str]:
    """The lines of a traceback, but for how Windlass came to the crew's code."""
    lines, ours = [], False
    for line in trace.splitlines():
        if frame := FRAME.match(line):
            ours = any(part in frame["file"] for part in OURS)
        elif not line.startswith("    "):
            ours = False
        if not ours:
            lines.append(printable(line))
    return lines
