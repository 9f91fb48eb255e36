"""A kickoff's row as the body of a status. What any JSON may stand in is passed on as the text that it is stored as."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windlass.api.times import utc
from windlass.kickoffs.states import State, TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from windlass.kickoffs.manifest import TaskDefinition
    from windlass.kickoffs.waiting import Waiting
    from windlass.store.kickoffs import KickoffStatus

Members = dict[str, str | list[str]]
"""Member -> JSON text, or parts of it: to put large ones together takes longer than all else."""
_text = json.JSONEncoder(separators=(",", ":")).encode


def status_body(
    kickoff: KickoffStatus, registered: Sequence[TaskDefinition], profile: str, waiting: Waiting | None
) -> list[str]:
    """JSON text, in parts. `registered` are the tasks of the kickoff's version: its records while no worker has claimed
    it.
    """
    members = _always(kickoff) | _tasks(kickoff, registered)
    if kickoff.warnings != "[]":
        members["warnings"] = kickoff.warnings
    if kickoff.state.ended:
        members |= _at_the_end(kickoff)
    else:
        members |= _on_the_way(kickoff, len(registered)) | {"waiting_for": _waiting(waiting)}
    if kickoff.state is State.SUCCESS:
        members |= _RESULTS[profile](kickoff)
    return _object(members)


def _object(members: Members) -> list[str]:
    parts = ["{"]
    for name, text in members.items():
        parts += [f'"{name}":', *([text] if isinstance(text, str) else text), ","]
    return [*parts[:-1], "}"]


def _always(kickoff: KickoffStatus) -> Members:
    return {
        "kickoff_id": f'"{kickoff.id}"',
        "status": f'"{kickoff.state.status_on_the_wire}"',
        "state": f'"{kickoff.state.state_on_the_wire}"',
        "created_at": _time(kickoff.created_at),
        "started_at": _time(kickoff.started_at),
        "finished_at": _time(kickoff.finished_at),
        "meta": kickoff.meta or "null",
        "attempt": str(kickoff.attempt),
    }


def _tasks(kickoff: KickoffStatus, registered: Sequence[TaskDefinition]) -> Members:
    return {"tasks": kickoff.tasks or _text([_pending(task) for task in registered])}


def _pending(task: TaskDefinition) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "key": task.key,
        "name": task.name,
        "agent": task.agent,
        "state": TaskState.PENDING_RUN,
        "unregistered": False,
        "started_at": None,
        "finished_at": None,
    }


def _on_the_way(kickoff: KickoffStatus, registered: int) -> Members:
    total = registered if kickoff.total_tasks is None else kickoff.total_tasks
    progress = f'{{"completed_tasks":{kickoff.completed_tasks or 0},"total_tasks":{total}}}'
    return {"current_task": _text(kickoff.current_task), "progress": progress}


def _waiting(waiting: Waiting | None) -> str:
    if waiting is None:
        return "null"
    return _text({"code": waiting.code, "message": waiting.message, "place": waiting.place})


def _at_the_end(kickoff: KickoffStatus) -> Members:
    members: Members = {"token_usage": kickoff.token_usage or "null", "execution_time": _text(_seconds(kickoff))}
    if kickoff.state is not State.SUCCESS:
        members |= {"reason": _text(kickoff.reason), "error": _text(kickoff.error)}
    return members


def _documented(kickoff: KickoffStatus) -> Members:
    result: Members = {
        "output": kickoff.output or "null",
        "json": kickoff.structured or "null",
        "tasks": kickoff.task_outputs or "[]",
    }
    return {"result": _object(result)}


def _live(kickoff: KickoffStatus) -> Members:
    return {
        "result": kickoff.output or "null",
        "result_json": kickoff.structured or "null",
        "tasks_output": kickoff.task_outputs or "[]",
    }


_RESULTS = {"documented": _documented, "live": _live}


def _seconds(kickoff: KickoffStatus) -> float | None:
    if kickoff.started_at is None or kickoff.finished_at is None:
        return None
    return round((kickoff.finished_at - kickoff.started_at).total_seconds(), 6)


def _time(at: datetime | None) -> str:
    return "null" if at is None else f'"{utc(at)}"'
