"""The shapes of requests and answers, for the checks and for the OpenAPI document."""

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

from windlass.api.limits_member import LimitsMember
from windlass.kickoffs.limits import MOST


def _of_form(pattern: str, wanted: str) -> BeforeValidator:
    """Refuses what pydantic would read generously: a number as a time, a URL with a line end in it."""
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
    if found.data.get("concurrencyKey", "of a wrong form, which is told already") is None:
        raise PydanticCustomError("no_key", "Input should come with a concurrencyKey")
    return strategy


def _whole(given: object) -> object:
    """5.0 is an integer in JSON Schema."""
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
    realtime: StrictBool = Field(False, description="One by one, not in batches.")
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

    inputs: dict[str, Any] = Field(description="Input name -> value; any JSON, handed to the crew unchanged.")
    meta: dict[str, Any] | None = Field(None, description="Returned unchanged in the status.")
    idempotencyKey: Key | None = Field(  # noqa: N815 - the wire's name
        None, description="The same key within 24 h gives the same kickoff; also as the header `Idempotency-Key`."
    )
    taskWebhookUrl: Url | None = Field(None, description="Stored; not called by this release.")  # noqa: N815
    stepWebhookUrl: Url | None = Field(None, description="Stored; not called by this release.")  # noqa: N815
    crewWebhookUrl: Url | None = Field(None, description="Stored; not called by this release.")  # noqa: N815
    webhooks: Webhooks | None = Field(None, description="Stored; not called by this release.")
    humanInputWebhook: HumanInputWebhook | None = Field(None, description="Stored; not called by this release.")  # noqa: N815
    priority: Annotated[StrictInt, Field(ge=-100, le=100), BeforeValidator(_whole)] | None = Field(
        None, description="Kickoffs of the crew with a higher one are begun first; 0 if not given."
    )
    runAt: Annotated[Time, AfterValidator(_within_a_year)] | None = Field(  # noqa: N815
        None, description="RFC 3339. Not begun before; at once when it has passed. A year ahead at most."
    )
    timeout: Annotated[float, Field(strict=True, gt=0, le=MOST)] | None = Field(
        None, description="Seconds from the first start to the end: short for `limits.timeout`. The smaller counts."
    )
    limits: LimitsMember | None = Field(
        None, description="What the run may use at most. They lower the crew's limits, and never raise them."
    )
    concurrencyKey: Key | None = Field(  # noqa: N815
        None, description="Of the crew's kickoffs with the same key, one runs at a time."
    )
    concurrencyStrategy: Annotated[Strategy, AfterValidator(_with_a_key)] | None = Field(  # noqa: N815
        None,
        description="What a kickoff does when another of its key is open: wait (`enqueue`), be refused with 409 "
        "(`reject`), or stop the others (`cancel_running`). The crew's own if not given.",
    )


UNACTED: dict[str, str] = {
    "taskWebhookUrl": "webhooks_not_delivered",
    "stepWebhookUrl": "webhooks_not_delivered",
    "crewWebhookUrl": "webhooks_not_delivered",
    "webhooks": "webhooks_not_delivered",
    "humanInputWebhook": "webhooks_not_delivered",
}
"""Members that this release stores without acting on them -> the code of the warning that says so."""


class KickoffsRequest(BaseModel):
    """Starts the crew many times. The list alone, without the object around it, is taken as well."""

    kickoffs: list[KickoffRequest | Any] = Field(
        max_length=LARGEST_BATCH,
        description="Each is a body of `/kickoff`. One that is not, or is refused, has its error in the answer.",
    )
    idempotencyKey: Key | None = Field(  # noqa: N815 - the wire's name
        None,
        description="The same key within 24 h gives the same kickoffs, by their places in the list; also as the header "
        "`Idempotency-Key`.",
    )


class KickoffAnswer(BaseModel):
    kickoff_id: str = Field(description="Committed: the kickoff survives the death of the server from here on.")


class StopAnswer(BaseModel):
    kickoff_id: str
    status: StatusWord
    state: StateWord
    message: str = Field(
        description="What the stop came to, for a person. It is recorded: repeating it changes nothing."
    )


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
    message: str = Field(description='The same for a person: it completes the sentence "It waits for ...".')
    place: int | None = Field(
        description="Its place among those of the crew that wait for the same, 1 for the next; "
        "null where there is no queue, or it is further back than the 200th."
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
    unregistered: bool = Field(description="The task's description is not one that was registered.")
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
    structured: Any = Field(alias="json", description="The structured output where the crew gives one, else null.")
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
    attempt: int = Field(description="How often a worker has begun it; 0 while it waits for the first time.")
    tasks: list[TaskRecordBody]
    reason: Literal["cancelled", "timed_out", "limit", "crashed", "lost", "secrets", "error"] | None = Field(
        None, description="Why it ended badly."
    )
    error: str | None = Field(None, description="One line that a person can act on, when it ended badly.")
    warnings: list[WarningBody] | None = Field(None, description="When there are any.")
    current_task: str | None = Field(None, description="Name of the task that runs; until the end.")
    progress: Progress | None = Field(None, description="Until the end.")
    waiting_for: WaitingBody | None = Field(None, description="Until the end: what it waits for now, else null.")
    result: Result | str | None = Field(
        None,
        description="When completed: an object in the profile `documented`, the final output as a string in `live`.",
    )
    result_json: Any = Field(None, description="When completed, in the profile `live`: the structured output.")
    tasks_output: list[TaskOutputBody] | None = Field(None, description="When completed, in the profile `live`.")
    token_usage: TokenUsageBody | None = Field(None, description="At the end: the sum over all model calls.")
    execution_time: float | None = Field(None, description="At the end: seconds from the first start.")


class ErrorBody(BaseModel):
    error: str
    message: str = Field(description="What to do.")
    details: dict[str, Any]


class ItemError(ErrorBody):
    status: int = Field(description="That `/kickoff` would have answered with.")
    retry_after: int | None = Field(None, description="Seconds after which to try again, where that may help.")


class RefusedItem(BaseModel):
    error: ItemError


class KickoffsAnswer(BaseModel):
    kickoffs: list[KickoffAnswer | RefusedItem] = Field(description="One for each item, in the order of the items.")
