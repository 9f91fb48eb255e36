"""The answers of the control API, as pydantic models. The OpenAPI document has their descriptions."""

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from windlass.rights import Role

Item = TypeVar("Item")
Answer = TypeVar("Answer", bound=BaseModel)
NO_NUL = r"^[^\x00]*$"
Text = Annotated[str, StringConstraints(max_length=500, pattern=NO_NUL)]
"""Text in a query or a body that is compared with texts of the database, which hold no NUL."""

LARGEST_PAGE = 1000
Limit = Annotated[int, Field(ge=1, le=LARGEST_PAGE, description="The most items of the page.")]
Cursor = Annotated[
    Text | None,
    AfterValidator(lambda cursor: cursor or None),
    Field(description="The `next_cursor` of the page before."),
]
"""An empty one is that of the first page, as without the parameter."""


class Query(BaseModel):
    """The query of a list. An unknown member is an error: a misspelt filter would return too much."""

    model_config = ConfigDict(extra="forbid")

    limit: Limit = 100
    cursor: Cursor = None


class Body(BaseModel):
    """The body of a request. An unknown member is an error: it would be ignored in silence."""

    model_config = ConfigDict(extra="forbid", strict=True)


def answer_of(model: type[Answer], row: object, **others: object) -> Answer:
    """Returns the answer with the members that `row` has by the same names, and `others`."""
    found = {name: getattr(row, name) for name in model.model_fields if name not in others and hasattr(row, name)}
    return model.model_validate({**found, **others}, from_attributes=True)


class Page(BaseModel, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    next_cursor: str | None = Field(description="The `cursor` of the next page. Null: this page is the last one.")


class ErrorBody(BaseModel):
    """Every answer of 400 and above."""

    error: str = Field(description="The title of the status.")
    message: str = Field(description="What happened, and what to do.")
    details: dict[str, object] = Field(description="Facts for programs.")


class OwnToken(BaseModel):
    id: UUID
    name: str | None
    expires_at: datetime | None
    sign_in_until: datetime | None = Field(
        description="After this time it is refused until its user signs in with OpenID Connect. Null: no such limit."
    )


class MeAnswer(BaseModel):
    """The person and the token of the request."""

    user: str
    role: Role
    token: OwnToken


class BuildSummary(BaseModel):
    id: UUID
    state: Literal["queued", "building", "ready", "failed", "superseded"]


class DeploymentAnswer(BaseModel):
    """A deployment and the load of its queue."""

    id: UUID
    slug: str
    state: Literal["building", "online", "paused", "failed"] = Field(
        description="`building`: it has no version yet. `failed`: its latest build failed, and it has no version."
    )
    base_url: str = Field(
        description="The address of its crew API. A path, if the server does not know its own address "
        "(WINDLASS_PUBLIC_URL)."
    )
    version: int | None = Field(description="The number of its current version.")
    paused_at: datetime | None
    running: int = Field(description="Kickoffs that run now.")
    waiting: int = Field(description="Kickoffs that wait in the queue.")
    concurrency: int | None = Field(description="How many may run at once. Null: the number of slots.")
    weight: float = Field(description="Its share of the slots against that of other crews.")
    last_kickoff_at: datetime | None
    created_at: datetime
    visible_to: Literal["everybody", "members"] = Field(
        description="`members`: only its members and the owners of the server see it."
    )
    latest_build: BuildSummary | None


class DeploymentWarning(BaseModel):
    """A warning of the current version, or of the newest kickoffs."""

    code: str
    message: str
    kickoff_id: UUID | None = Field(description="The newest kickoff with it. Null: it is one of the version.")
    kickoffs: int = Field(description="How many of the 20 newest kickoffs have it.")


class DeploymentDetails(DeploymentAnswer):
    """A deployment, the load of its queue, and its warnings."""

    warnings: list[DeploymentWarning] = Field(
        description="Warnings of the current version, and of its 20 newest kickoffs, one for each code."
    )


class ShownTokensAnswer(BaseModel):
    """The two tokens of a crew that can be shown again."""

    organization_token: str
    user_token: str
    user: str = Field(description="The name of the user of the user token.")


class KickoffItem(BaseModel):
    """A kickoff in a list. The crew API has its status, its events and its files."""

    kickoff_id: UUID
    deployment: str
    version: int | None
    state: Literal["PENDING", "STARTED", "PENDING_HUMAN_INPUT", "SUCCESS", "FAILED"]
    reason: str | None = Field(description="Why it ended without success, such as `cancelled` or `timed_out`.")
    user: str | None = Field(description="The user whose user token started it. Null: another token started it.")
    started_by: str | None = Field(
        description="Who started it: a person and how, or a token of the crew by its last four characters. The words "
        "stay when the user or the token is removed."
    )
    stopped_by: str | None = Field(description="Who asked for its stop. Null: nobody.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class BoundaryPartItem(BaseModel):
    part: Literal["users", "files", "network"]
    holds: Literal["yes", "partly", "no"]
    text: str = Field(description="What the part does, what can be bypassed, and what to do then.")


class WorkerItem(BaseModel):
    id: UUID
    host: str
    pid: int
    slots: int
    alive: bool = Field(description="Whether it has reported in time.")
    started_at: datetime
    seen_at: datetime
    version: str | None = Field(description="The version of Windlass. Null, as the next three: an older one.")
    running: int | None = Field(description="The kickoffs that it runs.")
    zygotes: int | None = Field(description="The processes that start the runs of crews.")
    zygote_memory: int | None = Field(description="The memory of these processes, in bytes.")
    boundary: list[BoundaryPartItem] = Field(
        description="What separates its runs from its machine and from each other. Empty: a worker of a former release."
    )
