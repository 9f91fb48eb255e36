"""The models of responses, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from windlass.api.crew_api.examples import AT, EXAMPLE_ID
from windlass.api.crew_api.schemas import LiveStateWord, StateWord, StatusWord
from windlass.kickoffs.states import AttemptEnd


class KickoffAnswer(BaseModel):
    kickoff_id: str = Field(description="The id. The kickoff is committed, and survives a crash of the server.")


class StopAnswer(BaseModel):
    kickoff_id: str
    status: StatusWord
    state: StateWord
    message: str = Field(
        description="The effect of the stop, for a person. The stop is stored, and repeating it changes nothing."
    )


class ResumeAnswer(BaseModel):
    status: Literal["resumed", "retrying", "completed"] = Field(
        description="`retrying`: the task runs again with the words of the person, and asks again."
    )
    message: str = Field(description="What happens now, for a person.")
    kickoff_id: str


class HumanInputBody(BaseModel):
    """What a kickoff asks a person. `POST /resume` answers."""

    task_id: str = Field(description="The id of the question, for `POST /resume`.")
    task: str | None = Field(description="The name of the task or method that asks, or the id of a task without one.")
    method: str | None = Field(description="The method of the flow that asks. Null: a task asks.")
    question: str
    draft: str = Field(description="The text that the person judges.")
    response_schema: dict[str, Any] = Field(
        description="JSON Schema of `human_feedback`. With an `enum`, each of its words decides without a model call."
    )
    asked_at: str
    expires_at: str | None = Field(description="Null: the question waits for ever.")


class DeleteAnswer(BaseModel):
    kickoff_id: str
    message: str


class StopAllAnswer(BaseModel):
    stopped: int = Field(
        description="Number of stopped kickoffs. Waiting ones never start. Running ones are being ended."
    )
    message: str


class WarningBody(BaseModel):
    code: str
    message: str
    task_id: str | None = None


class InputsAnswer(BaseModel):
    inputs: list[str] = Field(description="Names of the required inputs, in the order in which the crew mentions them.")
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema 2020-12 of the inputs object.")
    warnings: list[WarningBody] | None = Field(
        default=None,
        description="What will not work in the project, and what the framework's version can't do. Absent without any.",
    )


class WaitingBody(BaseModel):
    code: str = Field(
        description="`slot`, `concurrency`, `key`, `time`, `retry`, `paused`, `worker`, `environment`, `zygote`, "
        "`human`, `end`."
    )
    message: str = Field(description='The reason for a person. It completes the sentence "It waits for ...".')
    place: int | None = Field(
        description="Its place in the queue of the crew's kickoffs that wait for the same thing, 1 for the next. "
        "Null without a queue, or after the 200th place."
    )


class Progress(BaseModel):
    completed_tasks: int
    total_tasks: int
    unit: Literal["task"] | None = Field(None, description="This and the next ones: in the profile `live`.")
    completed: int | None = None
    total: int | None = None
    remaining: int | None = None
    current: str | None = None
    current_agent: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    duration_seconds: float | None = None


class TaskRecordBody(BaseModel):
    task_id: str
    key: str = Field(description="MD5 of the task's description as written.")
    name: str | None
    agent: str | None
    state: Literal["pending_run", "running", "pending_human_input", "completed", "failed", "skipped"]
    unregistered: bool = Field(description="True if the version's manifest has no task with this description.")
    started_at: str | None
    finished_at: str | None


class TaskOutputBody(BaseModel):
    task_id: str
    name: str | None
    output: str | None
    agent: str | None
    execution_time: float | None = Field(description="Seconds.")


class FileBody(BaseModel):
    path: str = Field(description="The path in the working folder of the run, with `/` between names.")
    size: int = Field(description="Bytes.")
    sha256: str
    media_type: str = Field(description="Derived from the ending of the path.")


class TicketAnswer(BaseModel):
    """A ticket for streams of the crew's events."""

    ticket: str = Field(description="For `?ticket=` of `GET /events/{kickoff_id}`.")
    expires_in: int = Field(description="Seconds until the ticket can open no stream. An open stream continues.")


class FilesAnswer(BaseModel):
    kickoff_id: str
    files: list[FileBody] = Field(description="By path.")


class Result(BaseModel):
    output: str = Field(description="The final output.")
    structured: Any = Field(alias="json", description="The structured output, or null if the crew has none.")
    tasks: list[TaskOutputBody]


class TokenUsageBody(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_prompt_tokens: int
    reasoning_tokens: int
    successful_requests: int = Field(description="Answered model calls.")


class LastTaskBody(BaseModel):
    task_id: str
    name: str | None
    agent: str | None
    started_at: str | None
    finished_at: str | None


class LastStepBody(BaseModel):
    type: str = Field(description="The type of its event.")
    at: str
    data: dict[str, Any] | None = Field(description="The payload of its event, null above 64 KB.")


class TriggerBody(BaseModel):
    type: Literal["organization", "user"]
    id: str | None = Field(description="The id of the user.")


class StatusAnswer(BaseModel):
    kickoff_id: str
    status: StatusWord | str | None = Field(
        description="One of four words in the profile `documented`. A sentence in `live`, null after a success."
    )
    state: StateWord | LiveStateWord
    created_at: str
    started_at: str | None
    finished_at: str | None
    meta: dict[str, Any] | None
    attempt: int = Field(description="Number of times that a worker has started it. 0 before the first start.")
    tasks: list[TaskRecordBody]
    reason: Literal["cancelled", "timed_out", "limit", "crashed", "lost", "secrets", "error"] | None = Field(
        None, description="FAILED only: why the kickoff failed."
    )
    error: str | None = Field(None, description="FAILED only: one line for a person about the error.")
    warnings: list[WarningBody] | None = Field(None, description="Only if there are any.")
    files: list[FileBody] | None = Field(
        None, description="Files that the run wrote, if there are any: the first 100 by path. `/files` lists all."
    )
    file_count: int | None = Field(None, description="Number of files, if there are any.")
    current_task: str | None = Field(None, description="Until the end: name of the running task.")
    progress: Progress | None = Field(None, description="Counts of tasks: until the end, in the profile `live` always.")
    waiting_for: WaitingBody | None = Field(
        None, description="Until the end: the reason why the kickoff waits, or null."
    )
    human_input: HumanInputBody | None = Field(
        None, description="While it waits for a person: what it asks. Absent otherwise."
    )
    result: Result | str | None = Field(
        None,
        description="SUCCESS only: an object in the profile `documented`, the final output as a string in `live`.",
    )
    result_json: Any = Field(None, description="SUCCESS only, in the profile `live`: the structured output.")
    tasks_output: list[TaskOutputBody] | None = Field(
        None, description="SUCCESS only, in the profile `live`: the outputs of the tasks."
    )
    usage_metrics: TokenUsageBody | None = Field(None, description="In the profile `live`: `token_usage` at any time.")
    last_executed_task: LastTaskBody | None = Field(
        None, description="In the profile `live`: the task that was completed last."
    )
    last_step: LastStepBody | None = Field(None, description="In the profile `live`: the last step of an agent.")
    events_count: int | None = Field(None, description="In the profile `live`: the number of the last event.")
    triggered_by: TriggerBody | None = Field(None, description="In the profile `live`: who started the kickoff.")
    execution_origin: Literal["api", "ui"] | None = Field(
        None, description="In the profile `live`: what the kickoff was started with."
    )
    token_usage: TokenUsageBody | None = Field(None, description="After the end: the sum over all model calls.")
    execution_time: float | None = Field(
        None,
        description="After the end: seconds from the first start, without the waits for a person.",
    )


class ListedKickoffBody(BaseModel):
    kickoff_id: str
    status: StatusWord
    state: StateWord
    created_at: str
    started_at: str | None
    finished_at: str | None
    attempt: int = Field(description="Number of times that a worker has started it. 0 before the first start.")
    user: str | None = Field(description="Name of the user who started it. Null for an organization token.")
    reason: str | None = Field(description="FAILED only: why the kickoff failed, as in the status.")
    error: str | None = Field(description="FAILED only: one line for a person about the error.")
    total_tokens: int | None = Field(description="Tokens of all model calls so far, if there are any.")
    execution_time: float | None = Field(description="After the end: seconds from the first start.")


class KickoffListAnswer(BaseModel):
    kickoffs: list[ListedKickoffBody] = Field(description="Newest first.")
    next_cursor: str | None = Field(
        description="The `cursor` of the next page, null after the last page. A page may have fewer kickoffs than "
        "`limit`, even none, although more follow."
    )


class EventBody(BaseModel):
    seq: int = Field(description="Number of the event. It counts from 1 over all attempts.")
    attempt: int
    type: str = Field(
        description="`output_stdout` and `output_stderr` for printed lines, otherwise the framework's name, such as "
        "`llm_call_completed`."
    )
    at: str
    payload: dict[str, Any]


class EventsAnswer(BaseModel):
    kickoff_id: str
    status: StatusWord
    state: StateWord = Field(description="Read before the events. After the end, `more` false means: these are all.")
    events: list[EventBody] = Field(description="In the order of `seq`.")
    next: int = Field(description="The `after` of the next page.")
    more: bool = Field(description="Whether later events are stored already.")


class ErrorBody(BaseModel):
    error: str
    message: str = Field(description="What happened, and what to do.")
    details: dict[str, Any]


class ItemError(ErrorBody):
    status: int = Field(description="The status code of `/kickoff` for this item.")
    retry_after: int | None = Field(None, description="Seconds after which the item may succeed.")


class RefusedItem(BaseModel):
    error: ItemError


class KickoffsAnswer(BaseModel):
    kickoffs: list[KickoffAnswer | RefusedItem] = Field(description="One for each item, in the order of the items.")


class AttemptBody(BaseModel):
    attempt: int = Field(description="1 for the first.")
    started_at: str
    ended_at: str | None = Field(description="Null while it runs.")
    ended_as: AttemptEnd | None = Field(
        description="The final state of the kickoff, if it ended with this attempt. Else `paused` (it asked a person), "
        "`lost` (its process or worker died), `released` (its worker stopped) or `retried` (it failed, and the project "
        "configures another attempt). Null while it runs."
    )
    why: str | None = Field(description="The reason, for a person.")
    host: str | None = Field(description="The machine of its worker. Null for a user token.")
    restored: int = Field(description="Number of journal entries at its start.")
    from_journal: list[str] = Field(description="Names of the tasks whose outputs it took from the journal.")
    ran: list[str] = Field(description="Names of the tasks that it ran, except those that a later attempt ran again.")


class AttemptsAnswer(BaseModel):
    kickoff_id: str
    attempts: list[AttemptBody] = Field(description="The newest 100, oldest first.")


ATTEMPTS_EXAMPLE: dict[str, Any] = {
    "kickoff_id": EXAMPLE_ID,
    "attempts": [
        {
            "attempt": 1,
            "started_at": AT,
            "ended_at": AT,
            "ended_as": "lost",
            "why": "its worker's lease ended: the worker died, stood still, or could not reach the database",
            "host": "worker-1",
            "restored": 0,
            "from_journal": [],
            "ran": ["plan"],
        },
        {
            "attempt": 2,
            "started_at": AT,
            "ended_at": None,
            "ended_as": None,
            "why": None,
            "host": "worker-2",
            "restored": 1,
            "from_journal": ["plan"],
            "ran": ["write_brief"],
        },
    ],
}

KICKOFFS_EXAMPLE: dict[str, Any] = {
    "kickoffs": [
        {
            "kickoff_id": EXAMPLE_ID,
            "status": "completed",
            "state": "SUCCESS",
            "created_at": AT,
            "started_at": AT,
            "finished_at": AT,
            "attempt": 1,
            "user": "ann",
            "reason": None,
            "error": None,
            "total_tokens": 4310,
            "execution_time": 61.8,
        }
    ],
    "next_cursor": EXAMPLE_ID,
}
EVENTS_EXAMPLE: dict[str, Any] = {
    "kickoff_id": EXAMPLE_ID,
    "status": "running",
    "state": "STARTED",
    "events": [
        {"seq": 1, "attempt": 1, "type": "output_stdout", "at": AT, "payload": {"line": "looking up tides"}},
        {"seq": 2, "attempt": 1, "type": "task_started", "at": AT, "payload": {"task_name": "plan"}},
    ],
    "next": 2,
    "more": False,
}
