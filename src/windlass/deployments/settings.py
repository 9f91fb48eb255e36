"""The settings of a deployment. They replace the options of its project, [tool.windlass] in its pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from windlass.errors import WindlassError
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.retention import Retention
from windlass.kickoffs.retries import Retries
from windlass.projects.options import LARGEST, LEAST, MOST, MOST_RUNS, Options

if TYPE_CHECKING:
    from windlass.store.deployments import Deployment

ORIGIN = re.compile(r"\*|https?://(?:[a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
MOST_ORIGINS = 100
MOST_A_SECOND = 100_000
TABLES: dict[str, Callable[[Mapping[str, Any]], Limits | Retention | Retries]] = {
    "limits": Limits.parse,
    "retention": Retention.parse,
    "retries": Retries.parse,
}
Table = dict[str, Any]


class BadSettings(WindlassError):  # noqa: N818 - describes the settings
    """`invalid` maps the names of members to the reasons."""

    def __init__(self, invalid: dict[str, str]) -> None:
        listed = "; ".join(f"{name}: {why}" for name, why in invalid.items())
        super().__init__(f"The settings are not valid. {listed}.")
        self.invalid = invalid


def _table(name: str) -> AfterValidator:
    def check(value: Table | None) -> Table | None:
        """Raises ValueError for an unknown name or an invalid value. A member that is null resets that member."""
        TABLES[name](_without_nulls(value or {}))
        return value

    return AfterValidator(check)


def _origins(given: list[str] | None) -> list[str] | None:
    for one in given or ():
        if not ORIGIN.fullmatch(one):
            raise ValueError(f"{one[:100]!r} is no origin such as https://app.example.com, and not *")
    return given


class DeploymentSettings(BaseModel):
    """The deployment's own settings. Null: the project's option counts, else the server's default."""

    model_config = ConfigDict(extra="forbid", strict=True)

    concurrency: int | None = Field(
        None, ge=1, le=LARGEST, description="The most kickoffs that run at once, over all workers."
    )
    weight: float | None = Field(
        None, ge=LEAST, le=MOST, allow_inf_nan=False, description="Its share of the slots, relative to others."
    )
    max_waiting: int | None = Field(None, ge=1, le=LARGEST, description="The most kickoffs that wait in its queue.")
    concurrency_strategy: Literal["enqueue", "reject", "cancel_running"] | None = Field(
        None, description="The effect of an open kickoff with the same concurrency key."
    )
    limits: Annotated[Table | None, _table("limits")] = Field(
        None, description="Limits of a run, such as `timeout` in seconds and `memory_limit` in bytes or as text."
    )
    retries: Annotated[Table | None, _table("retries")] = Field(
        None, description="When a failed kickoff runs again: `attempts`, `backoff`, `longest_backoff`, `reasons`."
    )
    retention: Annotated[Table | None, _table("retention")] = Field(
        None, description="Days that `kickoffs`, `events` and `journal` are kept after the end of a kickoff."
    )
    preload: Literal["framework", "project"] | None = Field(
        None, description="What is imported before a run's process is forked."
    )
    reuse: int | None = Field(
        None, ge=1, le=MOST_RUNS, description="How many kickoffs one process may run, one after the other."
    )
    profile: Literal["documented", "live"] | None = Field(None, description="The form of the result in its statuses.")
    secret_in_prompt: Literal["warn", "refuse"] | None = Field(
        None, description="The effect of the value of a secret variable in a prompt: a warning, or the end of the run."
    )
    cors_origins: Annotated[list[str] | None, AfterValidator(_origins)] = Field(
        None,
        max_length=MOST_ORIGINS,
        description="Origins of web pages that may use its crew API, such as `https://app.example.com`. `*`: all.",
    )
    rate_limit: float | None = Field(
        None, gt=0, le=MOST_A_SECOND, allow_inf_nan=False, description="Requests a second of each token."
    )


@dataclass(frozen=True, slots=True)
class ServerDefaults:
    """The settings of the server that count for deployments without their own."""

    limits: Limits
    retention: Retention
    max_waiting: int


@dataclass(frozen=True, slots=True)
class ShownSettings:
    """`effective` are the settings that count, `own` those of the deployment, `defaults` those without `own`.
    `project` are those that the project sets.
    """

    effective: dict[str, Any]
    own: dict[str, Any]
    defaults: dict[str, Any]
    project: dict[str, Any]


def shown_settings(deployment: Deployment, own: Mapping[str, Any], server: ServerDefaults) -> ShownSettings:
    found = deployment.version.source.get("options", {}) if deployment.version else {}
    defaults = _with_server(Options.from_json(found), server)
    effective = _with_server(Options.from_json(found).replaced_by(own), server)
    without_option: dict[str, Any] = {"cors_origins": [], "rate_limit": None}
    return ShownSettings(
        {**effective, **{name: own.get(name, usual) for name, usual in without_option.items()}},
        dict(own),
        {**defaults, **without_option},
        {name: value for name, value in found.items() if name in defaults},
    )


def _with_server(options: Options, server: ServerDefaults) -> dict[str, Any]:
    return {
        "concurrency": options.concurrency,
        "weight": options.weight,
        "max_waiting": options.max_waiting or server.max_waiting,
        "concurrency_strategy": options.concurrency_strategy,
        "limits": asdict(server.limits.replaced_by(options.limits)),
        "retries": {**asdict(options.retries), "reasons": list(options.retries.reasons)},
        "retention": asdict(options.retention.over(server.retention)),
        "preload": options.preload,
        "reuse": options.reuse,
        "profile": options.profile,
        "secret_in_prompt": options.secret_in_prompt,
    }


def merged(own: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the own settings after a JSON Merge Patch (RFC 7396): null removes a member. Raises BadSettings."""
    found = _patched(own, patch)
    try:
        checked = DeploymentSettings.model_validate(found)
    except ValidationError as error:
        reasons = {".".join(map(str, one["loc"])): one["msg"].removeprefix("Value error, ") for one in error.errors()}
        raise BadSettings(reasons) from None
    given = checked.model_dump(exclude_none=True)
    if "limits" in given:
        given["limits"] = Limits.parse(given["limits"]).to_json()  # sizes may be text
    return given


def _patched(own: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(own)
    for name, value in patch.items():
        before = found.get(name)
        if isinstance(value, Mapping):
            found[name] = _patched(before if isinstance(before, Mapping) else {}, value)
        else:
            found[name] = value
    return {name: value for name, value in found.items() if value is not None and value != {}}


def _without_nulls(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value is not None}
