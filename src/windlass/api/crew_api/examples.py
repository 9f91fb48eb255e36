"""Example responses for the OpenAPI document: one kickoff in each state."""

from __future__ import annotations

from typing import Any

from windlass.api.errors import TITLES
from windlass.offline_model.schema_sample import sample

EXAMPLE_ID = "0199b0c2-7f3a-7c11-9d52-0a4b6c8e1f23"
AT = "2026-01-15T09:30:00.000000Z"
TASK = {
    "task_id": "write_brief",
    "key": "5d41402abc4b2a76b9719d911017c592",
    "name": "write_brief",
    "agent": "Writer",
    "unregistered": False,
}
USAGE = {
    "prompt_tokens": 310,
    "completion_tokens": 120,
    "total_tokens": 430,
    "cached_prompt_tokens": 0,
    "reasoning_tokens": 0,
    "successful_requests": 4,
}
OUTPUT = {
    "task_id": "write_brief",
    "name": "write_brief",
    "output": "Tides ...",
    "agent": "Writer",
    "execution_time": 4.2,
}


def _status(status: str | None, state: str, task: str, **members: Any) -> dict[str, Any]:
    """Returns the status of a kickoff that has started, and whose only task is in the state `task`."""
    ended = None if state == "STARTED" else AT
    return {
        "kickoff_id": EXAMPLE_ID,
        "status": status,
        "state": state,
        "created_at": AT,
        "started_at": AT,
        "finished_at": ended,
        "meta": None,
        "attempt": 1,
        "tasks": [{**TASK, "state": task, "started_at": AT, "finished_at": ended}],
        **members,
    }


AT_THE_END = {"token_usage": USAGE, "execution_time": 4.3}
PROGRESS = {"completed_tasks": 0, "total_tasks": 1}
WAITING_FOR = {"code": "slot", "message": "a free slot: 4 of 4 are taken; it is the 3rd in the queue of this crew"}

HUMAN_INPUT = {
    "task_id": "0199b0c2-9a11-7d40-8f25-6b0c9e2d7a54",
    "task": "write_brief",
    "method": None,
    "question": "Is this brief good?",
    "draft": "# Tides ...",
    "response_schema": {"type": "string"},
    "asked_at": AT,
    "expires_at": None,
}

STATUS_EXAMPLES: dict[str, dict[str, Any]] = {
    "waiting": {
        **_status("running", "PENDING", "pending_run", current_task=None, progress=PROGRESS),
        "started_at": None,
        "finished_at": None,
        "attempt": 0,
        "tasks": [{**TASK, "state": "pending_run", "started_at": None, "finished_at": None}],
        "waiting_for": {**WAITING_FOR, "place": 3},
    },
    "running": _status(
        "running", "STARTED", "running", current_task="write_brief", progress=PROGRESS, waiting_for=None
    ),
    "waiting for a person": {
        **_status(
            "pending_human_input",
            "PENDING_HUMAN_INPUT",
            "pending_human_input",
            current_task="write_brief",
            progress=PROGRESS,
            waiting_for={"code": "human", "message": "a person to answer a question of its crew", "place": None},
            human_input=HUMAN_INPUT,
        ),
        "finished_at": None,
        "tasks": [{**TASK, "state": "pending_human_input", "started_at": AT, "finished_at": None}],
    },
    "completed": _status(
        "completed",
        "SUCCESS",
        "completed",
        **AT_THE_END,
        result={"output": "Tides ...", "json": None, "tasks": [OUTPUT]},
    ),
    "completed (profile live)": _status(
        None,
        "SUCCESS",
        "completed",
        **AT_THE_END,
        result="Tides ...",
        result_json=None,
        tasks_output=[OUTPUT],
        usage_metrics=USAGE,
        progress={
            "completed_tasks": 1,
            "total_tasks": 1,
            "unit": "task",
            "completed": 1,
            "total": 1,
            "remaining": 0,
            "current": None,
            "current_agent": None,
            "started_at": AT,
            "updated_at": AT,
            "duration_seconds": 4.3,
        },
        last_executed_task={
            "task_id": "write_brief",
            "name": "write_brief",
            "agent": "Writer",
            "started_at": AT,
            "finished_at": AT,
        },
        last_step={"type": "agent_execution_completed", "at": AT, "data": {"output": "Tides ..."}},
        events_count=31,
        triggered_by={"type": "organization", "id": None},
        execution_origin="api",
    ),
    "failed": _status(
        "error",
        "FAILED",
        "failed",
        **AT_THE_END,
        reason="crashed",
        error="the crew's process was killed by SIGKILL. Perhaps the machine ran out of memory.",
    ),
    "stopped": _status(
        "error",
        "FAILED",
        "failed",
        **AT_THE_END,
        reason="cancelled",
        error="the kickoff was stopped on request.",
    ),
}


FILE_EXAMPLE = {
    "path": "output/report.md",
    "size": 5120,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "media_type": "text/markdown",
}
STATUS_EXAMPLES["completed"] |= {"files": [FILE_EXAMPLE], "file_count": 1}

BATCH_ANSWER = {
    "kickoffs": [
        {"kickoff_id": EXAMPLE_ID},
        {
            "error": {
                "status": 422,
                "error": TITLES[422],
                "message": "Required inputs are missing: audience. GET /inputs describes them.",
                "details": {"missing_inputs": ["audience"]},
            }
        },
    ]
}


def example_inputs(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a valid example value for each required input."""
    properties = schema.get("properties", {})
    return {name: _example(properties.get(name, {}), name, schema) for name in schema.get("required", ())}


def _example(expected: dict[str, Any], name: str, schema: dict[str, Any]) -> Any:
    values = expected.get("examples") or expected.get("enum")
    return values[0] if values else sample({"$defs": schema.get("$defs", {}), **expected}, f"some {name}")


ERRORS: dict[int, tuple[str, dict[str, Any]]] = {
    400: (
        "The body, a value in it, or the path is malformed.",
        {"invalid_inputs": {"budget": "'many' is not of type 'integer'"}},
    ),
    401: ("The token is missing, or it is not valid for this crew.", {}),
    403: ("The token does not have the scope that the operation needs, or may not answer.", {"required_scope": "run"}),
    404: ("The crew or kickoff does not exist, or the token may not see it.", {}),
    405: ("The path does not accept the method.", {}),
    408: ("The request did not arrive in time.", {}),
    409: (
        (
            "The idempotency key was used with another body, a kickoff with this concurrencyKey is open (`reject`), "
            "a kickoff to delete has not ended, or another answer came first."
        ),
        {"kickoff_id": EXAMPLE_ID},
    ),
    413: ("The body is too large.", {"limit": 1048576}),
    416: ("The file does not have the requested range.", {"size": 5120}),
    421: ("The server does not accept the host name of the request.", {}),
    422: ("Required inputs are missing.", {"missing_inputs": ["topic", "audience"]}),
    429: (
        "Too many kickoffs of the crew or the user wait, or the client sends too many requests. See `Retry-After`.",
        {"waiting": 10000, "max_waiting": 10000},
    ),
    431: ("The first line and the headers are too long.", {"limit": 65536}),
    500: ("The server failed. `message` holds the reference of the error in the server's log.", {}),
    503: ("The server is unavailable. `Retry-After` is the time to wait before the next request.", {}),
}
"""Maps a status to its description and to an example of `details`."""
