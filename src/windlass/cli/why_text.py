"""Explains the state of a kickoff in sentences, from its status as the API returns it. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from windlass.cli.progress import (
    PAUSED,
    RUNNING,
    STARTING,
    did_fail,
    failed_task,
    has_ended,
    running_task,
    seconds_in_words,
    seconds_since,
    waiting_for,
)
from windlass.kickoffs.waiting import how_often

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.cli.progress import Status

LIMITS = "docs/reference/limits.md lists where each limit is set."
AFTER_A_BAD_END = {
    "cancelled": "Its completed work is not undone. Kick it off again for another run.",
    "timed_out": LIMITS,
    "limit": LIMITS,
    "crashed": "Its last printed lines often show the cause: {logs}",
    "lost": "Look in the server's log for `kickoff.lost`. Often the machine ran out of memory. Then kick it off again.",
    "secrets": "If a value could not be read: `windlass env list DEPLOYMENT` shows where its variables come from, and "
    "`windlass credentials test NAME` why a provider refuses a credential. Then kick it off again.",
    "error": "The error ended the run. See what it did, with the traceback if there is one: {logs}",
}
"""Maps the reason of an end without success to what to do next. {name} stands for that command, for the kickoff."""
WHILE_IT_WAITS = {
    "slot": "WINDLASS_SLOTS is the number of kickoffs that one worker runs at once.",
    "concurrency": "`concurrency` under [tool.windlass] in pyproject.toml is how many of its kickoffs run at once.",
    "key": "It starts when that kickoff has ended. `windlass stop KICKOFF_ID` ends it sooner, if you may.",
    "time": "It starts at that time, or when the next slot is free after it.",
    "retry": "Steps in its journal are not run again. See how each attempt ended: {status --full}",
    "paused": "No kickoff of the crew starts until then. New ones are accepted.",
    "worker": "No kickoff of any crew starts until then.",
    "environment": "This happens once on each machine for a version, and takes longer if it has new packages.",
    "secrets": "Values that can't be read within 15 s end the kickoff.",
    "zygote": "This happens once for each project that is new or was idle.",
    "import": 'Code that runs when modules are imported takes its time at each kickoff. With preload = "project" under '
    "[tool.windlass] in pyproject.toml the project is imported once for all kickoffs.",
    "end": "That takes at most WINDLASS_STOP_GRACE seconds. If its worker is dead, it takes until its lease ends.",
    "human": "It continues when the question is answered: windlass approvals show ITS_ID",
}
"""Maps the code of `waiting_for` to what to do, or what will happen, as above."""
COMMAND = re.compile(r"\{([\w -]+)}")
Command = Callable[..., str]
"""Returns a command for the kickoff, with options, as a person would type it."""
UNITS = {"days": 86400, "hours": 3600, "minutes": 60}
"""The length of each unit in seconds."""


def explain(status: Status, at: datetime, command: Command) -> list[str]:
    """Returns lines that explain what the kickoff waits for, what it does, or why it ended, and what to do next."""
    if not has_ended(status):
        lines = _waits(status, at, command) or _runs(status, at, command)
    else:
        lines = _ended_badly(status, command) if did_fail(status) else _ended_well(status, command)
    warnings = [f"Warning: {warning.get('message')}" for warning in status.get("warnings") or []]
    return [line for line in (*lines, _actors(status), *warnings) if line]


def _actors(status: Status) -> str:
    """Returns who started and who stopped the kickoff, as far as the command knows it."""
    known = {"Started": status.get("started_by"), "stopped": status.get("stopped_by")}
    parts = ", ".join(f"{words} by {by}" for words, by in known.items() if by)
    return f"{parts[:1].upper()}{parts[1:]}." if parts else ""


def _waits(status: Status, at: datetime, command: Command) -> list[str]:
    wanted = waiting_for(status)
    if not wanted and status.get("state") in RUNNING:
        return []
    words = wanted.get("message") or ("a human" if status.get("state") in PAUSED else "a worker")
    since = seconds_since(status.get("created_at"), at)
    advice = WHILE_IT_WAITS.get(str(wanted.get("code")), "")
    return [
        f"It is starting: {words}." if wanted.get("code") in STARTING else f"It waits for {words}.",
        f"It was accepted {lapse(since)} ago." if since is not None else "",
        _earlier_attempts(status),
        _with_commands(advice.replace("ITS_ID", str(status.get("kickoff_id"))), command),
    ]


def _with_commands(text: str, command: Command) -> str:
    return COMMAND.sub(lambda found: command(*found[1].split()), text)


def _earlier_attempts(status: Status) -> str:
    attempts = status.get("attempt") or 0
    if status.get("state") == "PENDING" and attempts:
        return f"It was started {how_often(attempts)} before."
    return ""


def _runs(status: Status, at: datetime, command: Command) -> list[str]:
    return [_what_it_does(status, at), _how_far(status), _attempt(status, command)]


def _what_it_does(status: Status, at: datetime) -> str:
    task = running_task(status)
    began = seconds_since((task or status).get("started_at"), at)
    since = f", for {lapse(began)} now" if began is not None else ""
    if task is None:
        return f"It runs, between two tasks or before the first{since}."
    by = f", by {str(task['agent']).strip()}" if task.get("agent") else ""
    return f"It runs the task {task.get('name') or task.get('task_id')}{by}{since}."


def _how_far(status: Status) -> str:
    progress = status.get("progress") or {}
    total = progress.get("total_tasks")
    tasks = "task is" if total == 1 else "tasks are"
    return f"{progress.get('completed_tasks', 0)} of {total} {tasks} done." if total else ""


def _attempt(status: Status, command: Command) -> str:
    attempt = status.get("attempt") or 0
    if attempt <= 1:
        return ""
    return f"This is attempt {attempt}. See how the earlier attempts ended: {command('status', '--full')}"


def _ended_well(status: Status, command: Command) -> list[str]:
    return [f"It succeeded{_after(status)}. See its output: {command('status')}"]


def _ended_badly(status: Status, command: Command) -> list[str]:
    reason = str(status.get("reason") or "error")
    task = failed_task(status)
    return [
        f"It failed{_after(status)} ({reason}): {status.get('error') or 'the server gave no reason'}",
        f"The failed task is {task.get('name') or task.get('task_id')}." if task else "",
        _with_commands(AFTER_A_BAD_END.get(reason, ""), command),
    ]


def lapse(seconds: float) -> str:
    """Returns a duration for a person: `less than 1 s`, `90 s`, `5 minutes`, `3 hours`, `2 days`."""
    for unit, length in UNITS.items():
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"


def _after(status: Status) -> str:
    seconds = status.get("execution_time")
    return f" after {seconds_in_words(seconds)}" if isinstance(seconds, int | float) else ""
