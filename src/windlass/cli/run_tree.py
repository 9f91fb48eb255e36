"""Shows the runs of a server live, as a tree of lines.

Each line starts with the number of its run, because several runs may be shown at once.
"""

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
from windlass_child.process.messages import Event, TaskEnded, TaskStarted, Tokens, Warned
from windlass_child.process.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from windlass.store.kickoffs import Claimed

LONGEST = 120
"""Most characters of a name or a message of a crew."""
AT_ONCE, WHILE = 20, 1.0
"""At most AT_ONCE lines of a run's output are shown per WHILE seconds. One more line has the number of the others."""
TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>])")
FRAME = re.compile(r'  File "(?P<file>.*)", line \d+')
OURS = ("/windlass_child/", "<frozen importlib.")


@dataclass(slots=True)
class Shown:
    """A run that is shown, with its counts so far."""

    number: int
    began: float
    tokens: int = 0
    tasks: dict[int, str] = field(default_factory=dict)
    """The names of running tasks, by position."""
    calls: dict[str, float] = field(default_factory=dict)
    """The start of each open model call, by its id."""
    printed: int = 0
    """The number of lines of output since `since`. The first AT_ONCE of them were shown."""
    since: float = 0.0


class RunTree:
    """A Watcher that prints a line for each message of a run that matters to the author of a crew."""

    def __init__(
        self,
        notify: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        width: Callable[[], int] = lambda: shutil.get_terminal_size((LONGEST, 0)).columns,
    ) -> None:
        self._width = width
        self._notify = notify
        self._clock = clock
        self._runs: dict[tuple[UUID, int], Shown] = {}
        self._last = 0

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
            self._print_line(run, 2, f"> ({run.printed - AT_ONCE:,} more lines)")
            run.printed = AT_ONCE
        if isinstance(message, Output):
            self._print_output(run, message.line, over=over)
        for depth, words in lines:
            self._print_line(run, depth, words)

    def _print_output(self, run: Shown, line: str, *, over: bool) -> None:
        words = plain(line)
        if not words:
            return
        if over:
            run.printed, run.since = 0, self._clock()
        run.printed += 1
        if run.printed <= AT_ONCE:
            self._notify(line_of(run, 2, f"> {words}")[: self._width()])  # cut, because folded tables are hard to read

    def _begin(self, kickoff: Claimed) -> None:
        self._last += 1
        self._runs[kickoff.id, kickoff.attempt] = Shown(self._last, self._clock())
        again = f", attempt {kickoff.attempt}" if kickoff.attempt > 1 else ""
        self._notify(f"[{self._last}] {kickoff.slug}: kickoff {kickoff.id}{again}")

    def _print_line(self, run: Shown, depth: int, words: str) -> None:
        self._notify(line_of(run, depth, words))

    def _lines(self, run: Shown, message: object) -> list[tuple[int, str]]:
        match message:
            case TaskStarted():
                run.tasks[message.position] = name = shown(message.name or f"task {message.position + 1}")
                return [(1, f"task {name}" + (f" ({shown(message.agent)})" if message.agent else ""))]
            case TaskEnded():
                return self._end_of_task(run, message)
            case Tokens():
                run.tokens += message.total
            case Event():
                return [(2, words) for words in self._event(run, message)]
            case Warned():
                return [(1, f"warning: {shown(message.message)}")]
            case Outcome():
                return [*((1, line) for line in without_our_frames(message.trace)), (0, self._outcome(run, message))]
        return []

    def _end_of_task(self, run: Shown, task: TaskEnded) -> list[tuple[int, str]]:
        name = run.tasks.pop(task.position, None)
        if name is None:
            return []  # a skipped task never started: its end is not shown
        took = "" if task.seconds is None else f" in {task.seconds:.1f} s"
        return [(1, f"task {name}: {task.state}{took}")]

    def _event(self, run: Shown, event: Event) -> list[str]:
        payload = value_of(event)
        match event.type:
            case "llm_call_started":
                run.calls[str(payload.get("call_id"))] = event.at
            case "llm_call_completed" | "llm_call_failed":
                return [self._model_call(run, event)]
            case "tool_usage_finished" | "tool_usage_error":
                ended = "failed" if event.type == "tool_usage_error" or payload.get("failure") else "done"
                return [f"tool {shown(payload.get('tool_name'))}: {ended}"]
            case "agent_execution_started" if payload.get("agent_role"):
                return [f"agent {shown(payload['agent_role'])}"]
            case "journal_restored":
                kept = [*payload.get("tasks", []), *payload.get("methods", [])]
                return [f"taken from the journal: {shown(', '.join(map(str, kept)))}"]
        return []

    def _model_call(self, run: Shown, event: Event) -> str:
        payload = value_of(event)
        began = run.calls.pop(str(payload.get("call_id")), None)
        parts = [] if began is None else [f"{max(0.0, event.at - began):.1f} s"]
        usage = payload.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("total_tokens"), int):
            parts.append(f"{usage['total_tokens']:,} tokens")
        if event.type == "llm_call_failed":
            parts.append(f"failed: {shown(payload.get('error'))}")
        return f"model {shown(payload.get('model') or 'of the crew')}: {', '.join(parts) or 'answered'}"

    def _outcome(self, run: Shown, outcome: Outcome) -> str:
        state = "completed" if outcome.state is State.SUCCESS else outcome.state.lower()
        summary = f"{state} in {self._clock() - run.began:.1f} s, {run.tokens:,} tokens"
        return summary if outcome.error is None else f"{summary}: {shown(outcome.error)}"


def value_of(event: Event) -> dict[str, Any]:
    """Returns the payload of the event. A large payload arrives as encoded JSON."""
    payload: Any = event.payload
    found: dict[str, Any] = payload.value if isinstance(payload, Encoded) else payload
    return found


def line_of(run: Shown, depth: int, words: str) -> str:
    return f"[{run.number}] {'|  ' * depth}{words}"


def shown(value: Any) -> str:
    """Returns the value as one short line, with terminal codes escaped."""
    words = printable(" ".join(str(value).split()))
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 3]}..."


def plain(line: str) -> str:
    """Returns the visible text of a line of output: what a terminal would finally show, "" for nothing."""
    return printable(TERMINAL_CODES.sub("", line).rstrip().rpartition("\r")[2].expandtabs())


def without_our_frames(trace: str) -> list[str]:
    """Returns the lines of a traceback, except the frames of Windlass that call the crew's code."""
    lines, ours = [], False
    for line in trace.splitlines():
        if frame := FRAME.match(line):
            ours = any(part in frame["file"] for part in OURS)
        elif not line.startswith("    "):
            ours = False
        if not ours:
            lines.append(printable(line))
    return lines
