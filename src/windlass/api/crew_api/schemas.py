"""The models of requests and responses, for validation and for the OpenAPI document."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    StrictBool,
    StrictInt,
    StringConstraints,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from windlass.api.crew_api.examples import AT, EXAMPLE_ID
from windlass.api.crew_api.limits_member import LimitsMember
from windlass.kickoffs.limits import MOST
from windlass.kickoffs.states import AttemptEnd


def _of_form(pattern: str, wanted: str) -> BeforeValidator:
    """Returns a validator that is stricter than pydantic. Pydantic accepts a number as a time, and a URL with a
    newline.
    """
    form = re.compile(pattern, re.ASCII)

    def check(value: object) -> object:
        if isinstance(value, str) and form.fullmatch(value):
            return value
        raise PydanticCustomError("wrong_form", "Input should be {wanted}", {"wanted": wanted})

    return BeforeValidator(check)


NO_NUL = r"^[^\x00]*$"
Key = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=255, pattern=NO_NUL)]
Url = Annotated[HttpUrl, _of_form(r"(?i:https?)://[^\s\x00-\x20\x7f]+", "a URL such as https://example.com/hook")]
Time = Annotated[
    AwareDatetime,
    _of_form(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", "a time such as 2026-01-15T09:30:00Z"),
]
Profile = Literal["documented", "live"]
StatusWord = Literal["running", "pending_human_input", "completed", "error"]
StateWord = Literal["PENDING", "STARTED", "PENDING_HUMAN_INPUT", "SUCCESS", "FAILED"]
Strategy = Literal["enqueue", "reject", "cancel_running"]
LARGEST_BATCH = 1000
"""Kickoffs in one request."""
LONGEST_AHEAD = timedelta(days=366)


def _within_a_year(at: datetime) -> datetime:
    if at > datetime.now(UTC) + LONGEST_AHEAD:
        raise PydanticCustomError("too_late", "Input should be at most 366 days ahead")
    return at


def _with_a_key(strategy: Strategy, found: ValidationInfo) -> Strategy:
    if found.data.get("concurrencyKey", "malformed, and reported as such") is None:
        raise PydanticCustomError("no_key", "Input should come with a concurrencyKey")
    return strategy


def _whole(given: object) -> object:
    """Converts a float such as 5.0 to an integer, because JSON Schema counts it as an integer."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


class Bearer(BaseModel):
    strategy: Literal["bearer"]
    token: str


class Basic(BaseModel):
    strategy: Literal["basic"]
    username: str
    password: str


Authentication = Annotated[Bearer | Basic, Field(discriminator="strategy")]


class Webhooks(BaseModel):
    events: list[str] = Field(description="Names of the events to send.")
    url: Url
    realtime: StrictBool = Field(False, description="Send events one by one, not in batches.")
    authentication: Authentication | None = None


class HumanInputWebhook(BaseModel):
    url: Url
    authentication: Authentication | None = None


NO_STRATEGY_WITHOUT_A_KEY: list[Any] = [
    {"properties": {"concurrencyStrategy": {"type": "null"}}},
    {"required": ["concurrencyKey"], "properties": {"concurrencyKey": {"type": "string"}}},
]


class KickoffRequest(BaseModel):
    """Starts a crew. Members that are not listed are ignored."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "examples": [{"inputs": {"topic": "tides", "audience": "sailors"}}],
            "anyOf": NO_STRATEGY_WITHOUT_A_KEY,
        },
    )

    inputs: dict[str, Any] = Field(description="Input name -> value. Any JSON; the crew gets it unchanged.")
    meta: dict[str, Any] | None = Field(None, description="Any object. The status returns it unchanged.")
    idempotencyKey: Key | None = Field(  # noqa: N815 - the wire's name
        None,
        description="The same key within 24 h returns the same kickoff. The header `Idempotency-Key` is equivalent.",
    )
    taskWebhookUrl: Url | None = Field(None, description="Stored, but not called by this release.")  # noqa: N815
    stepWebhookUrl: Url | None = Field(None, description="Stored, but not called by this release.")  # noqa: N815
    crewWebhookUrl: Url | None = Field(None, description="Stored, but not called by this release.")  # noqa: N815
    webhooks: Webhooks | None = Field(None, description="Stored, but not called by this release.")
    humanInputWebhook: HumanInputWebhook | None = Field(None, description="Stored, but not called by this release.")  # noqa: N815
    priority: Annotated[StrictInt, Field(ge=-100, le=100), BeforeValidator(_whole)] | None = Field(
        None, description="Waiting kickoffs of the crew with a higher priority start first. 0 if not given."
    )
    runAt: Annotated[Time, AfterValidator(_within_a_year)] | None = Field(  # noqa: N815
        None,
        description="RFC 3339. The kickoff does not start before. At most a year ahead; a past time means at once.",
    )
    timeout: Annotated[float, Field(strict=True, gt=0, le=MOST)] | None = Field(
        None,
        description="Seconds from the first start to the end. Short for `limits.timeout`; of both, the smaller counts.",
    )
    limits: LimitsMember | None = Field(
        None, description="Limits of the run. They lower the crew's limits, and never raise them."
    )
    concurrencyKey: Key | None = Field(  # noqa: N815
        None, description="Only one of the crew's kickoffs with the same key runs at a time."
    )
    concurrencyStrategy: Annotated[Strategy, AfterValidator(_with_a_key)] | None = Field(  # noqa: N815
        None,
        description="The effect of an open kickoff with the same key: the new one waits (`enqueue`), is refused "
        "with 409 (`reject`), or stops the others (`cancel_running`). If not given, the crew's own strategy.",
    )


UNACTED: dict[str, str] = {
    "taskWebhookUrl": "webhooks_not_delivered",
    "stepWebhookUrl": "webhooks_not_delivered",
    "crewWebhookUrl": "webhooks_not_delivered",
    "webhooks": "webhooks_not_delivered",
    "humanInputWebhook": "webhooks_not_delivered",
}
"""Members that this release stores without acting on them -> the code of the warning."""


class KickoffsRequest(BaseModel):
    """Starts the crew many times. The body may also be the list alone."""

    kickoffs: list[KickoffRequest | Any] = Field(
        max_length=LARGEST_BATCH,
        description="Bodies of `/kickoff`. The answer has an error for each invalid or refused item.",
    )
    idempotencyKey: Key | None = Field(  # noqa: N815 - the wire's name
        None,
        description="The same key within 24 h returns the same kickoffs, by their places in the list. The header "
        "`Idempotency-Key` is equivalent.",
    )


class KickoffAnswer(BaseModel):
    kickoff_id: str = Field(description="The id. The kickoff is committed, and survives a crash of the server.")


class StopAnswer(BaseModel):
    kickoff_id: str
    status: StatusWord
    state: StateWord
    message: str = Field(
        description="The effect of the stop, for a person. The stop is stored, and repeating it changes nothing."
    )


class DeleteAnswer(BaseModel):
    kickoff_id: str
    message: str


class StopRequest(BaseModel):
    """Stops the open kickoffs that match all of these and that the token may stop."""

    model_config = ConfigDict(extra="forbid")  # a misspelt filter would stop too many kickoffs

    state: Literal["PENDING", "STARTED", "PENDING_HUMAN_INPUT"] | None = Field(
        None, description="Only kickoffs in this state."
    )
    user: Annotated[str, StringConstraints(strict=True, min_length=1, pattern=NO_NUL)] | None = Field(
        None, description="Only kickoffs that this user started, by the user's name."
    )
    before: Time | None = Field(None, description="RFC 3339. Only kickoffs that were created by this time.")


class StopAllAnswer(BaseModel):
    stopped: int = Field(
        description="Number of stopped kickoffs. Waiting ones never start. Running ones are being ended."
    )
    message: str


class InputsAnswer(BaseModel):
    inputs: list[str] = Field(description="Names of the required inputs, in the order in which the crew mentions them.")
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema 2020-12 of the inputs object.")


class WarningBody(BaseModel):
    code: str
    message: str
    task_id: str | None = None


class WaitingBody(BaseModel):
    code: str = Field(
        description="`slot`, `concurrency`, `key`, `time`, `retry`, `paused`, `worker`, `zygote`, `human`, `end`."
    )
    message: str = Field(description='The reason for a person. It completes the sentence "It waits for ...".')
    place: int | None = Field(
        description="Its place in the queue of the crew's kickoffs that wait for the same thing, 1 for the next. "
        "Null without a queue, or after the 200th place."
    )


class Progress(BaseModel):
    completed_tasks: int
    total_tasks: int


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


class StatusAnswer(BaseModel):
    kickoff_id: str
    status: StatusWord
    state: StateWord
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
    current_task: str | None = Field(None, description="Until the end: name of the running task.")
    progress: Progress | None = Field(None, description="Until the end: counts of tasks.")
    waiting_for: WaitingBody | None = Field(
        None, description="Until the end: the reason why the kickoff waits, or null."
    )
    result: Result | str | None = Field(
        None,
        description="SUCCESS only: an object in the profile `documented`, the final output as a string in `live`.",
    )
    result_json: Any = Field(None, description="SUCCESS only, in the profile `live`: the structured output.")
    tasks_output: list[TaskOutputBody] | None = Field(
        None, description="SUCCESS only, in the profile `live`: the outputs of the tasks."
    )
    token_usage: TokenUsageBody | None = Field(None, description="After the end: the sum over all model calls.")
    execution_time: float | None = Field(None, description="After the end: seconds from the first start.")


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
        description="The final state of the kickoff, if it ended with this attempt. Else `lost` (its process or worker "
        "died), `released` (its worker stopped) or `retried` (it failed, and the project configures another attempt). "
        "Null while it runs."
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
