"""The models of requests, for validation and for the OpenAPI document."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    PlainValidator,
    StrictBool,
    StrictInt,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from windlass.api.crew_api.examples import EXAMPLE_ID
from windlass.kickoffs.declared_settings import MOST, BadSetting, Kind, declared
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.questions import LONGEST_FEEDBACK
from windlass.webhooks.sending import has_host


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


LONGEST_REASON = 300
_WHOLE, _DECIMAL = r"[1-9][0-9]{0,12}", r"(\.[0-9]{1,3})?"
SIZE_PATTERN = rf"^\s*({_WHOLE}|(?=[0-9.]*[1-9])([0-9]{{1,6}}{_DECIMAL} ?[KkMm]|[0-9]{{1,3}}{_DECIMAL} ?[Gg])[Bb])\s*$"
"""Every size that matches is accepted. A few sizes that do not match are accepted as well."""


def _limits(value: object) -> Limits:
    if isinstance(value, Limits):
        return value
    if not isinstance(value, dict):
        raise _refused("Input should be an object such as {timeout: 600}")
    try:
        return Limits.parse(value)
    except BadSetting as error:
        raise _refused(str(error)) from None


def _refused(reason: str) -> PydanticCustomError:
    words = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}..."
    return PydanticCustomError("bad_limit", "{words}", {"words": words})


def _schema_of(kind: Kind) -> dict[str, Any]:
    number: dict[str, Any] = {
        "type": "number" if kind.form == "seconds" else "integer",
        "exclusiveMinimum": 0,
        "maximum": MOST,
    }
    text = [{"type": "string", "pattern": SIZE_PATTERN}] if kind.form == "size" else []
    return {"anyOf": [number, *text, {"type": "null"}]}


LIMITS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: _schema_of(one.kind) for name, one in declared(Limits).items()},
    "additionalProperties": False,
}
LimitsMember = Annotated[Limits, PlainValidator(_limits), WithJsonSchema(LIMITS_SCHEMA)]


NO_NUL = r"^[^\x00]*$"
Key = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=255, pattern=NO_NUL)]


def _with_a_host(url: object) -> object:
    """Refuses what could be no request later: pydantic accepts more than the client of webhooks can send to."""
    if not has_host(str(url)):
        raise PydanticCustomError("no_host", "Input should have a valid name or address of a host")
    return url


Url = Annotated[
    HttpUrl,
    BeforeValidator(_with_a_host),
    _of_form(r"(?i:https?)://[^\s\x00-\x20\x7f]+", "a URL such as https://example.com/hook"),
]
Time = Annotated[
    AwareDatetime,
    _of_form(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", "a time such as 2026-01-15T09:30:00Z"),
]
Profile = Literal["documented", "live"]
StatusWord = Literal["running", "pending_human_input", "completed", "error"]
LiveStateWord = Literal["PENDING", "STARTED", "RUNNING", "PAUSED", "SUCCESS", "FAILED"]
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


HeaderToken = Annotated[str, StringConstraints(max_length=8192, pattern=r"^[\x21-\x7e]+$")]


class Bearer(BaseModel):
    strategy: Literal["bearer"]
    token: HeaderToken = Field(description="Printable ASCII without spaces.")


class Basic(BaseModel):
    strategy: Literal["basic"]
    username: str
    password: str


Authentication = Annotated[Bearer | Basic, Field(discriminator="strategy")]


EventName = Annotated[str, StringConstraints(strict=True, pattern=r"^(\*|[A-Za-z][A-Za-z0-9_.]{0,99})$")]


class Webhooks(BaseModel):
    events: list[EventName] = Field(max_length=100, description='Names of the events to send; `["*"]` stands for all.')
    url: Url
    realtime: StrictBool = Field(False, description="Send events one by one, not in batches.")
    authentication: Authentication | None = None


class HumanInputWebhook(BaseModel):
    url: Url
    authentication: Authentication | None = None


class WebhookMembers(BaseModel):
    """The webhooks of a kickoff, as a request sets them. They follow the members of the other base class there."""

    taskWebhookUrl: Url | None = Field(None, description="Gets a POST after each task.")  # noqa: N815
    stepWebhookUrl: Url | None = Field(None, description="Gets a POST after each step of an agent.")  # noqa: N815
    crewWebhookUrl: Url | None = Field(None, description="Gets a POST at every end.")  # noqa: N815
    webhooks: Webhooks | None = Field(None, description="Gets the events of the run, in batches or one by one.")
    humanInputWebhook: HumanInputWebhook | None = Field(None, description="Gets a POST when a person is asked.")  # noqa: N815
    humanInputWebhookUrl: Url | None = Field(  # noqa: N815
        None, description="As `humanInputWebhook`, for a receiver without authentication."
    )


NO_STRATEGY_WITHOUT_A_KEY: list[Any] = [
    {"properties": {"concurrencyStrategy": {"type": "null"}}},
    {"required": ["concurrencyKey"], "properties": {"concurrencyKey": {"type": "string"}}},
]


class _Start(BaseModel):
    inputs: dict[str, Any] | None = Field(
        None,
        description="Input name -> value. Any JSON; the crew gets it unchanged. Null, or no such member, means {}.",
    )
    meta: dict[str, Any] | None = Field(None, description="Any object. The status returns it unchanged.")
    idempotencyKey: Key | None = Field(  # noqa: N815 - the wire's name
        None,
        description="The same key within 24 h returns the same kickoff. The header `Idempotency-Key` is equivalent.",
    )


class KickoffRequest(WebhookMembers, _Start):
    """Starts a crew. Members that are not listed are ignored."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "examples": [{"inputs": {"topic": "tides", "audience": "sailors"}}],
            "anyOf": NO_STRATEGY_WITHOUT_A_KEY,
        },
    )

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


ExecutionId = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200, pattern=NO_NUL)]


Feedback = Annotated[str, StringConstraints(strict=True, pattern=NO_NUL, max_length=LONGEST_FEEDBACK)]


class _Answer(BaseModel):
    execution_id: ExecutionId = Field(description="The kickoff_id.")
    task_id: ExecutionId = Field(
        description="The `task_id` of `human_input` in the status, or the id or name of the task that asks."
    )
    human_feedback: Feedback | None = Field(
        None, description="What to change, or the choice. An approval may have words too."
    )
    is_approve: StrictBool | None = Field(
        None, description="Whether the draft is approved. Not needed for a method of a flow, which gets the words."
    )


class CallbackRequest(BaseModel):
    """Answers the question of a flow at the `callback_url` of its webhook."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [{"feedback": "approved"}]})

    feedback: Feedback = Field(description="One of `emit_options`, or words about the draft.")
    source: Annotated[str, StringConstraints(strict=True, max_length=100, pattern=NO_NUL)] | None = Field(
        None, description="Who answers, for the audit log."
    )


class ResumeRequest(WebhookMembers, _Answer):
    """Answers the question of a kickoff. Each member also has the spelling `executionId` and so on.

    Webhooks replace those of the kickoff.
    """

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "examples": [
                {"execution_id": EXAMPLE_ID, "task_id": "write_brief", "human_feedback": "", "is_approve": True}
            ]
        },
    )


SPELLINGS = {
    "executionId": "execution_id",
    "taskId": "task_id",
    "humanFeedback": "human_feedback",
    "isApprove": "is_approve",
}
"""The other spelling of the members of ResumeRequest."""


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


UserName = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=NO_NUL)]


class StopRequest(BaseModel):
    """Stops the open kickoffs that match all of these and that the token may stop."""

    model_config = ConfigDict(extra="forbid")  # a misspelt filter would stop too many kickoffs

    state: Literal["PENDING", "STARTED", "PENDING_HUMAN_INPUT"] | None = Field(
        None, description="Only kickoffs in this state."
    )
    user: UserName | None = Field(None, description="Only kickoffs that this user started, by the user's name.")
    before: Time | None = Field(None, description="RFC 3339. Only kickoffs that were created by this time.")


LARGEST_PAGE_OF_KICKOFFS = 200
LARGEST_PAGE_OF_EVENTS = 500
MOST_EVENTS = 2**53
"""No kickoff has an event with a larger number. A JSON number can express it exactly."""


class KickoffsQuery(BaseModel):
    """The query of a list of kickoffs."""

    model_config = ConfigDict(extra="forbid")  # a misspelt filter would return too many kickoffs

    state: Literal["PENDING", "STARTED", "PENDING_HUMAN_INPUT", "SUCCESS", "FAILED"] | None = Field(
        None, description="Only kickoffs in this state. `FAILED` includes cancelled and timed-out kickoffs."
    )
    user: UserName | None = Field(None, description="Only kickoffs that this user started, by the user's name.")
    limit: int = Field(50, ge=1, le=LARGEST_PAGE_OF_KICKOFFS, description="The most kickoffs of the page.")
    cursor: UUID | None = Field(None, description="The `next_cursor` of the page before.")


class StreamQuery(BaseModel):
    """The query of a stream of events."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(
        0, ge=0, le=MOST_EVENTS, description="Only events with a larger `seq`. `Last-Event-ID` overrides it."
    )
    ticket: str | None = Field(
        None, description="For a stream, in place of the header Authorization: a ticket of `POST /stream-tickets`."
    )


class EventsQuery(BaseModel):
    """The query of a page of events."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(
        0, ge=0, le=MOST_EVENTS, description="The `next` of the page before. Only events with a larger `seq`."
    )
    limit: int = Field(
        100,
        ge=1,
        le=LARGEST_PAGE_OF_EVENTS,
        description="The most events of the page. A page has fewer events if they are large.",
    )
