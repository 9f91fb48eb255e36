"""Converts rows of kickoffs to response bodies. Stored JSON is passed on as text, without parsing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.states import State, TaskState
from windlass.store.reading import Stored

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.manifest import TaskDefinition
    from windlass.kickoffs.questions import QuestionRow
    from windlass.kickoffs.states import Attempt
    from windlass.kickoffs.waiting import Waiting
    from windlass.store.kickoff_list import KickoffPage, KickoffRow
    from windlass.store.reading import EventRow, KickoffDetails, KickoffStatus


def utc(at: datetime) -> str:
    """Formats a time, for example `2026-01-15T09:30:00.000000Z`."""
    return f"{at.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"


def attempts_body(kickoff: UUID, attempts: Sequence[Attempt], *, asker: UUID | None) -> dict[str, Any]:
    """Returns the attempts as the user `asker` may see them; None is the organization. Only the organization sees
    hosts.
    """
    with_host = asker is None
    return {"kickoff_id": str(kickoff), "attempts": [_attempt(attempt, with_host=with_host) for attempt in attempts]}


def _attempt(attempt: Attempt, *, with_host: bool) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "started_at": utc(attempt.started_at),
        "ended_at": utc(attempt.ended_at) if attempt.ended_at else None,
        "ended_as": attempt.ended_as,
        "why": attempt.why,
        "host": attempt.host if with_host else None,
        "restored": attempt.restored,
        "from_journal": list(attempt.from_journal),
        "ran": list(attempt.ran),
    }


def stop_body(before: KickoffStatus, state: State, grace: float) -> dict[str, str]:
    """Returns the answer to a stop. `before` is the kickoff before the stop, `state` its state after the stop is
    stored. The processes of a running kickoff end within `grace` seconds.
    """
    return {
        "kickoff_id": str(before.id),
        "status": state.status_on_the_wire,
        "state": state.state_on_the_wire,
        "message": _message(before, state, grace),
    }


def resume_body(question: QuestionRow) -> dict[str, str]:
    """Returns the answer to an answer that counts. `question` is as it is now."""
    if State(question.state).ended:
        status, message = "completed", "The kickoff has ended. Its status has the result."
    elif question.approved or question.choices or question.method:
        status, message = "resumed", "The kickoff goes on."
    else:
        status, message = "retrying", "The task runs again with the feedback, and asks again."
    return {"status": status, "message": message, "kickoff_id": str(question.kickoff_id)}


def stop_all_body(stopped: int, grace: float) -> dict[str, Any]:
    """Returns the answer to a stop of many. `stopped` is their number. Their processes end within `grace` seconds."""
    if stopped == 0:
        message = "No open kickoff that this token may stop matches."
    else:
        kickoffs = "1 kickoff is" if stopped == 1 else f"{stopped} kickoffs are"
        message = f"{kickoffs} stopped. The processes of those that ran are gone within {grace:g} seconds."
    return {"stopped": stopped, "message": message}


def _message(before: KickoffStatus, state: State, grace: float) -> str:
    if not state.ended:
        seconds = "second" if grace == 1 else "seconds"
        return f"It is being stopped: its processes are gone within {grace:g} {seconds}."
    if before.state.ended or state is not State.CANCELLED:
        return "It had ended before: nothing is left to stop."
    if before.state is State.STARTED:
        return "It is stopped."
    return "It was waiting and will never start." if before.attempt == 0 else "It was waiting and will not go on."


def kickoffs_body(page: KickoffPage) -> dict[str, Any]:
    return {
        "kickoffs": [_listed(kickoff) for kickoff in page.rows],
        "next_cursor": None if page.next is None else str(page.next),
    }


def _listed(kickoff: KickoffRow) -> dict[str, Any]:
    return {
        "kickoff_id": str(kickoff.id),
        "status": kickoff.state.status_on_the_wire,
        "state": kickoff.state.state_on_the_wire,
        "created_at": utc(kickoff.created_at),
        "started_at": utc(kickoff.started_at) if kickoff.started_at else None,
        "finished_at": utc(kickoff.finished_at) if kickoff.finished_at else None,
        "attempt": kickoff.attempt,
        "user": kickoff.user,
        "reason": kickoff.reason,
        "error": kickoff.error,
        "total_tokens": kickoff.tokens,
        "execution_time": _seconds(kickoff),
    }


def events_body(kickoff: KickoffStatus, events: Sequence[EventRow], after: int) -> list[str]:
    """Returns a page of events as parts of JSON text. `kickoff` was read before the events. `after` is the number of
    the last event of the page before.
    """
    head = {
        "kickoff_id": str(kickoff.id),
        "status": kickoff.state.status_on_the_wire,
        "state": kickoff.state.state_on_the_wire,
        "next": events[-1].seq if events else after,
        "more": bool(events and events[-1].more),
    }
    parts = [_text(head)[:-1], ',"events":[']
    for place, event in enumerate(events):
        parts += ["," if place else "", event_text(event)]
    return [*parts, "]}"]


def event_text(event: EventRow) -> str:
    """Returns the event as JSON text."""
    known = {"seq": event.seq, "attempt": event.attempt, "type": event.type, "at": utc(event.at)}
    return f'{_text(known)[:-1]},"payload":{event.payload}}}'


Part = str | Stored
"""JSON text, or a member whose text is read from the database while the response is sent."""
Members = dict[str, Part | list[Part]]
"""Member -> JSON text, or parts of it. Joining large parts would take longer than all other work."""
_text = json.JSONEncoder(separators=(",", ":")).encode


def status_body(
    kickoff: KickoffStatus,
    registered: Sequence[TaskDefinition],
    waiting: Waiting | None,
    details: KickoffDetails | None = None,
) -> list[Part]:
    """Returns the status as parts of JSON text, with `details` in the profile `live`. `registered` are the tasks of the
    kickoff's version. They stand in place of task records while no worker has claimed the kickoff.
    """
    members = _always(kickoff) | _tasks(kickoff, registered)
    if kickoff.warnings != "[]":
        members["warnings"] = kickoff.warnings
    if kickoff.files:
        members |= {"files": kickoff.files, "file_count": str(kickoff.file_count)}
    if kickoff.state.ended:
        members |= _at_the_end(kickoff)
    else:
        members |= _on_the_way(kickoff, len(registered)) | {"waiting_for": _waiting(waiting)}
    if kickoff.human_input:
        members["human_input"] = kickoff.human_input
    if kickoff.state is State.SUCCESS:
        members |= _documented(kickoff) if details is None else _live(kickoff)
    if details is not None:
        members |= _as_the_original(kickoff, registered, waiting, details)
    return _object(members)


def _object(members: Members) -> list[Part]:
    parts: list[Part] = ["{"]
    for name, text in members.items():
        parts += [f'"{name}":', *(text if isinstance(text, list) else [text]), ","]
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


LIVE_STATES = {State.PENDING_HUMAN_INPUT: "PAUSED"}


def _as_the_original(
    kickoff: KickoffStatus, registered: Sequence[TaskDefinition], waiting: Waiting | None, details: KickoffDetails
) -> Members:
    """Returns the members that the original product answers with, beside those of its public description."""
    state = "RUNNING" if kickoff.state is State.STARTED and kickoff.current_task else None
    return {
        "state": _text(state or LIVE_STATES.get(kickoff.state, kickoff.state.state_on_the_wire)),
        "status": _text(_sentence(kickoff, waiting)),
        "usage_metrics": kickoff.token_usage or "null",
        "progress": _text(_progress(kickoff, len(registered), details)),
        "last_executed_task": details.last_task or "null",
        "last_step": details.last_step or "null",
        "events_count": str(details.events_count),
        "triggered_by": _text(_trigger(details)),
        "execution_origin": _text(_origin(details)),
    }


def _sentence(kickoff: KickoffStatus, waiting: Waiting | None) -> str | None:
    if kickoff.state.ended:
        return kickoff.error
    if waiting is not None:
        return f"The kickoff waits for {waiting.message}."
    return f"The task {kickoff.current_task} runs." if kickoff.current_task else "The kickoff runs."


def _progress(kickoff: KickoffStatus, registered: int, details: KickoffDetails) -> dict[str, Any]:
    total = registered if kickoff.total_tasks is None else kickoff.total_tasks
    completed = kickoff.completed_tasks or 0
    until = kickoff.finished_at or details.read_at
    lasted = (until - kickoff.started_at - kickoff.paused_for).total_seconds() if kickoff.started_at else None
    updated = kickoff.finished_at or details.updated_at or kickoff.started_at
    return {
        "completed_tasks": completed,
        "total_tasks": total,
        "unit": "task",
        "completed": completed,
        "total": total,
        "remaining": total - completed,
        "current": kickoff.current_task,
        "current_agent": details.current_agent,
        "started_at": utc(kickoff.started_at) if kickoff.started_at else None,
        "updated_at": utc(updated) if updated else None,
        "duration_seconds": None if lasted is None else round(lasted, 6),
    }


def _trigger(details: KickoffDetails) -> dict[str, str | None]:
    if details.user_id is None:
        return {"type": "organization", "id": None}
    return {"type": "user", "id": str(details.user_id)}


def _origin(details: KickoffDetails) -> str:
    return "ui" if "(dashboard" in (details.started_by or "") else "api"


def _seconds(kickoff: KickoffStatus | KickoffRow) -> float | None:
    if kickoff.started_at is None or kickoff.finished_at is None:
        return None
    return round((kickoff.finished_at - kickoff.started_at - kickoff.paused_for).total_seconds(), 6)


def _time(at: datetime | None) -> str:
    return "null" if at is None else f'"{utc(at)}"'
