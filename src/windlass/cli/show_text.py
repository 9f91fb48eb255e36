"""Describes a kickoff in full, from its status and its attempts as the API returns them. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.cli.printing import columns
from windlass.cli.progress import file_count, moment, seconds_in_words, task_name, task_words, tasks_of
from windlass.cli.why_text import explain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from windlass.cli.progress import Status
    from windlass.cli.why_text import Command

    Attempt = Mapping[str, Any]

ENDS = {
    "SUCCESS": "succeeded",
    "FAILED": "failed",
    "TIMED_OUT": "timed out",
    "CANCELLED": "was stopped",
    "lost": "was lost",
    "released": "was released, to continue in another attempt",
    "paused": "asked a person, and waited for the answer",
    "retried": "failed, and another attempt was due",
}
"""Maps `ended_as` of an attempt to a verb."""
MOST_NAMED = 10
"""The number of tasks that a line names. It gives the number of the others."""


def describe(status: Status, attempts: Sequence[Attempt], at: datetime, command: Command) -> list[str]:
    """Returns lines that describe a kickoff. `command` returns a command for it."""
    summary = [*explain(status, at, command), _dates(status), _tokens(status), _files(status, command)]
    return [
        f"Kickoff {status.get('kickoff_id')}",
        *(line for line in summary if line),
        *_below("Tasks", _tasks(status)),
        *_below("Attempts", _attempts(status, attempts, at)),
    ]


def _below(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines)] if lines else []


def _dates(status: Status) -> str:
    steps = {"created_at": "Accepted", "started_at": "started", "finished_at": "ended"}
    known = [f"{words} {_when(status[member])}" for member, words in steps.items() if status.get(member)]
    return f"{', '.join(known)}." if known else ""


def _files(status: Status, command: Command) -> str:
    count = file_count(status)
    return f"Its run wrote {count}: {command('files')}" if count else ""


def _tokens(status: Status) -> str:
    usage = status.get("token_usage")
    if not usage:
        return ""
    calls = usage.get("successful_requests", 0)
    parts = f"{usage.get('prompt_tokens', 0):,} of prompts, {usage.get('completion_tokens', 0):,} of answers"
    return f"Tokens: {usage.get('total_tokens', 0):,} ({parts}), in {calls:,} model call{'' if calls == 1 else 's'}."


def _tasks(status: Status) -> list[str]:
    rows = [
        (task_name(task, number), _when(task.get("started_at")) or "-", task_words(task))
        for number, task in enumerate(tasks_of(status), 1)
    ]
    return columns(rows) if rows else []


def _attempts(status: Status, attempts: Sequence[Attempt], at: datetime) -> list[str]:
    if not attempts:
        return ["The attempts are not recorded."] if status.get("attempt") else []
    labels = {
        str(task.get("task_id")): task_name(task, number)
        for number, task in enumerate(tasks_of(status), 1)
        if not task.get("name")
    }
    return [line for attempt in attempts for line in (_course(attempt, at, status), *_work(attempt, labels))]


def _course(attempt: Attempt, at: datetime, status: Status) -> str:
    on = f" on {host}" if (host := attempt.get("host")) else ""
    began = f"{attempt.get('attempt')}. Started {_when(attempt.get('started_at'))}{on}"
    ended_as = attempt.get("ended_as")
    if ended_as is None:
        return f"{began}: it has run for {_seconds(attempt.get('started_at'), at)} and continues."
    lasted = _seconds(attempt.get("started_at"), moment(attempt.get("ended_at")))
    why = attempt.get("why") if attempt.get("why") != status.get("error") else None  # shown above
    words = f": {str(why).rstrip('.')}" if why else ""
    return f"{began}: after {lasted} it {ENDS.get(str(ended_as), str(ended_as))}{words}."


def _work(attempt: Attempt, labels: Mapping[str, str]) -> list[str]:
    """Describes the work of an attempt.

    `labels` maps the ids of tasks without a name to their labels in the list of tasks.
    """
    ran = [labels.get(name, name) for name in attempt.get("ran") or ()]
    parts = [_restored(attempt, labels), f"It ran {_names(ran)}." if ran else ""]
    return [f"   {' '.join(filter(None, parts))}"] if any(parts) else []


def _restored(attempt: Attempt, labels: Mapping[str, str]) -> str:
    restored = attempt.get("restored") or 0
    if names := [labels.get(name, name) for name in attempt.get("from_journal") or ()]:
        return f"{_names(names)} came from the journal."
    if restored:
        return f"{restored} finished step{'' if restored == 1 else 's'} came from the journal."
    return "The journal was empty, so it started at the beginning." if (attempt.get("attempt") or 1) > 1 else ""


def _names(names: Sequence[str]) -> str:
    """Joins names, such as `plan, research and write`."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _when(text: object) -> str:
    found = moment(text)
    return f"{found:%Y-%m-%d %H:%M:%S} UTC" if found else ""


def _seconds(began: object, ended: datetime | None) -> str:
    start = moment(began)
    return seconds_in_words((ended - start).total_seconds()) if start and ended else "some time"
