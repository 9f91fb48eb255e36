"""The settings of a deployment. They replace the options of its project, [tool.windlass] in its pyproject.toml."""

# See docs/decisions/security.md#owners-of-a-deployment-do-not-set-what-its-crew-may-reach

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from windlass.errors import WindlassError
from windlass.kickoffs.declared_settings import Declaration, declared
from windlass.kickoffs.limits import Limits
from windlass.projects.options import Options
from windlass.rights import APPROVERS, Role

if TYPE_CHECKING:
    from collections.abc import Collection

    from windlass.store.deployments import Deployment


class BadSettings(WindlassError):  # noqa: N818 - describes the settings
    """`invalid` maps the names of members to the reasons."""

    def __init__(self, invalid: dict[str, str]) -> None:
        listed = "; ".join(f"{name}: {why}" for name, why in invalid.items())
        super().__init__(f"The settings are not valid. {listed}.")
        self.invalid = invalid


class OwnersOnly(WindlassError):  # noqa: N818 - describes the settings
    """Reports settings that only a person with the role owner may change."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(
            f"Only a person with the role owner may change {', '.join(names)}.", "Ask an owner of the server for it."
        )


def _lines(value: Any) -> Any:
    """Returns the list for text with commas, as people write it in a command."""
    return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value


def check_role(patch: Mapping[str, Any], role: Role) -> None:
    """Raises OwnersOnly for a change of settings that this role does not permit."""
    names = sorted(name for name, one in declared(Options).items() if one.by == "owner" and name in patch)
    if names and not role.includes(Role.OWNER):
        raise OwnersOnly(names)


def _member(declaration: Declaration) -> Any:
    """Returns the type of a member. A member that is null is reset."""
    kind = declaration.kind

    def check(value: Any) -> Any:
        if value is not None:
            kind.value(value)
        return value

    text = [BeforeValidator(_lines)] if kind.form == "lines" else []
    return Annotated[kind.type | None, AfterValidator(check), *text], Field(
        None, description=declaration.meaning, **kind.bounds
    )


MEMBERS = {name: _member(one) for name, one in declared(Options).items() if one.by != "project"}
_MODEL: Any = create_model("Members", __config__=ConfigDict(extra="forbid", strict=True), **MEMBERS)


class DeploymentSettings(_MODEL):  # type: ignore[misc]  # its members are those that are declared
    """The deployment's own settings. Null: the project's option counts, else the server's default."""


@dataclass(frozen=True, slots=True)
class SettingWarning:
    """A part of a setting that has no effect. `setting` is its name."""

    setting: str
    message: str


@dataclass(frozen=True, slots=True)
class ShownSettings:
    """`effective` are the settings that count, `own` those of the deployment, `defaults` those without `own`.
    `project` are those that the project sets.
    """

    effective: dict[str, Any]
    own: dict[str, Any]
    defaults: dict[str, Any]
    project: dict[str, Any]
    warnings: tuple[SettingWarning, ...] = ()

    @property
    def approvers(self) -> set[str]:
        """The names of users in the setting `approvers`."""
        return set(self.effective["approvers"]) - set(APPROVERS)

    def with_users(self, known: Collection[str]) -> ShownSettings:
        """Returns the settings with a warning for each approver who is no user. A user may be added later."""
        unknown = sorted(self.approvers - set(known))
        return replace(self, warnings=tuple(SettingWarning("approvers", _unknown(name)) for name in unknown))


def _unknown(name: str) -> str:
    near = get_close_matches(name.lower(), APPROVERS, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return (
        f"There is no user {name!r}.{meant} The roles are {', '.join(APPROVERS)}. Nobody may answer by this name until "
        "such a user is added."
    )


def shown_settings(deployment: Deployment, own: Mapping[str, Any], server: Options) -> ShownSettings:
    """`server` are the settings of the server that count for deployments without their own."""
    found = deployment.version.source.get("options", {}) if deployment.version else {}
    options = Options.from_json(found)
    return ShownSettings(
        options.replaced_by(own).over(server).settings(),
        dict(own),
        options.over(server).settings(),
        {name: value for name, value in found.items() if name in MEMBERS},
    )


def merged(own: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the own settings after a JSON Merge Patch (RFC 7396): null removes a member. Raises BadSettings."""
    found = _patched(own, patch)
    try:
        checked = DeploymentSettings.model_validate(found)
    except ValidationError as error:
        reasons = {".".join(map(str, one["loc"])): one["msg"].removeprefix("Value error, ") for one in error.errors()}
        raise BadSettings(reasons) from None
    given: dict[str, Any] = checked.model_dump(exclude_none=True)
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
