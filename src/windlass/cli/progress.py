"""Converts one or two statuses of a kickoff to lines for a person who watches it. Pure functions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Status = dict[str, Any]

COMPLETED, FAILED, WAITING_FOR_HUMAN = "SUCCESS", "FAILED", "PENDING_HUMAN_INPUT"
RUNNING, PAUSED = {"STARTED", "RUNNING"}, {WAITING_FOR_HUMAN, "PAUSED"}
"""The second word of each is that of the profile `live`."""
STATES = {
    "PENDING": "is accepted",
    **dict.fromkeys(RUNNING, "runs"),
    **dict.fromkeys(PAUSED, "waits for a human"),
}
STARTING = {
    "zygote": "its process is prepared, which takes some seconds",
    "import": "its process imports the project's code",
}
"""What a kickoff does before it runs, by the code of `waiting_for`."""
LONGEST_LINE = 200
TASK_STATES = {"pending_human_input": "waits for a human"}


def has_ended(status: Status) -> bool:
    return status.get("state") in {COMPLETED, FAILED}


def did_fail(status: Status) -> bool:
    return status.get("state") == FAILED


def changes(before: Status | None, after: Status) -> list[str]:
    """Returns a line for each change between two statuses. With `before` None, returns all changes so far."""
    return [
        *_state_changes(before or {}, after),
        *task_changes(before or {}, after),
        *_questions(before or {}, after),
        *_new_warnings(before or {}, after),
    ]


def now(status: Status, at: datetime) -> str:
    """Returns one line with the current progress."""
    progress = status.get("progress") or {}
    total = progress.get("total_tasks", "?")
    counts = f"{progress.get('completed_tasks', 0)} of {total} {'task' if total == 1 else 'tasks'} done"
    task = status.get("current_task")
    running = running_task(status)
    began = moment(running.get("started_at")) if running else None
    since = began or moment(status.get("started_at")) or moment(status.get("created_at"))
    seconds = f", {(at - since).total_seconds():.0f} s" if since else ""
    words = waits(status) or task or STATES.get(str(status.get("state")), "")
    return f"{counts}; {words}{seconds}"


def waiting_for(status: Status) -> Mapping[str, Any]:
    return status.get("waiting_for") or {}


def running_task(status: Status) -> Mapping[str, Any] | None:
    return next((task for task in tasks_of(status) if task.get("state") == "running"), None)


def failed_task(status: Status) -> Mapping[str, Any] | None:
    return next((task for task in tasks_of(status) if task.get("state") == "failed"), None)


def seconds_since(text: object, at: datetime) -> float | None:
    began = moment(text)
    return (at - began).total_seconds() if began else None


def waits(status: Status) -> str | None:
    """Describes what the kickoff waits for, and its place.

    Returns None when it waits for nothing, or when the cause is unknown.
    """
    message = waiting_for(status).get("message")
    if words := STARTING.get(str(waiting_for(status).get("code"))):
        return f"is starting: {words}"
    return f"waits for {message}" if message else None


def ending(status: Status) -> str:
    """Describes in one line how the kickoff ended."""
    if did_fail(status):
        reason = status.get("reason") or "error"
        return f"failed ({reason}): {status.get('error') or 'the server gave no reason'}"
    facts = [_seconds(status.get("execution_time")), _tokens(status)]
    return ", ".join(["completed", *filter(None, facts)])


def file_count(status: Status) -> str | None:
    """Returns the number of files that the run wrote, in words; None without files."""
    count = status.get("file_count")
    return f"{count:,} {'file' if count == 1 else 'files'}" if isinstance(count, int) and count else None


def final_output(status: Status) -> str:
    """Returns the text of the crew's result, from either form of the status (docs/how-to/tokens.md, profiles)."""
    result = status.get("result")
    output = result.get("output") if isinstance(result, dict) else result
    return "" if output is None else str(output)


def _questions(before: Status, after: Status) -> list[str]:
    """Returns the question that the kickoff asks a person now, and the command that answers it."""
    asked = after.get("human_input") or {}
    if not asked or asked.get("task_id") == (before.get("human_input") or {}).get("task_id"):
        return []
    question = " ".join(str(asked.get("question") or "").split())
    lines = [f"asks: {question if len(question) <= LONGEST_LINE else f'{question[: LONGEST_LINE - 3]}...'}"]
    return [*lines, f"read the draft and answer: windlass approvals show {asked.get('task_id')}"]


def _state_changes(before: Status, after: Status) -> list[str]:
    if not _has_moved(before, after):
        return []
    words = waits(after) or STATES.get(str(after.get("state")), "")
    if not words:
        return []
    again = f" again (attempt {after['attempt']})" if _is_repeated(after) and not waits(after) else ""
    return [words + again]


def _has_moved(before: Status, after: Status) -> bool:
    """Returns whether the state, the attempt or the cause of waiting changed. A new place in the queue is no change."""
    known, now = [(STATES.get(str(one.get("state"))), one.get("attempt")) for one in (before, after)]
    if not before or known != now:
        return True
    code = waiting_for(after).get("code")
    return code != waiting_for(before).get("code") and (code is not None or after.get("state") in RUNNING)


def _is_repeated(status: Status) -> bool:
    return status.get("state") in RUNNING and (status.get("attempt") or 0) > 1


def task_changes(before: Status, after: Status) -> list[str]:
    known = {task.get("task_id"): task.get("state") for task in tasks_of(before)}
    return [
        f"  {task_name(task, number)}: {task_words(task)}"
        for number, task in enumerate(tasks_of(after), 1)
        if task.get("state") != known.get(task.get("task_id"), "pending_run")
    ]


def task_name(task: Mapping[str, Any], number: int) -> str:
    """Returns the task's name, or its number when it has none. The task id is a hash, which helps no person."""
    return str(task.get("name") or f"task {number}")


def task_words(task: Mapping[str, Any]) -> str:
    state = str(task.get("state"))
    words = TASK_STATES.get(state, state.replace("_", " "))
    if state == "running" and task.get("agent"):
        return f"{words}, by {str(task['agent']).strip()}"
    began, ended = moment(task.get("started_at")), moment(task.get("finished_at"))
    return f"{words} in {seconds_in_words((ended - began).total_seconds())}" if began and ended else words


def _new_warnings(before: Status, after: Status) -> list[str]:
    known = before.get("warnings") or []
    return [f"warning: {warning.get('message')}" for warning in after.get("warnings") or [] if warning not in known]


def tasks_of(status: Status) -> list[dict[str, Any]]:
    return status.get("tasks") or []


def seconds_in_words(seconds: float) -> str:
    """Returns `3 ms`, `140 ms`, `4.2 s`: what is quick is not "0.0 s"."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(0.0, seconds) * 1000:.0f} ms"


def _seconds(value: object) -> str | None:
    return seconds_in_words(value) if isinstance(value, int | float) else None


def _tokens(status: Status) -> str | None:
    total = (status.get("token_usage") or {}).get("total_tokens")
    return f"{total:,} {'token' if total == 1 else 'tokens'}" if total else None


def moment(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
