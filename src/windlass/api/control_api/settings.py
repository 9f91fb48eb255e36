"""Endpoints of the settings and the variables of a deployment."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field, SecretStr

from windlass.api.control_api.answers import Body, Text
from windlass.api.control_api.callers import Caller, ControlRoute, Developer, Viewer
from windlass.api.control_api.dependencies import Control
from windlass.api.control_api.deployments import Slug
from windlass.deployments.settings import DeploymentSettings, ShownSettings
from windlass.deployments.variables import LONGEST_SECRET_NAME, GivenVariable, ValueSource, Variable
from windlass.rights import Role
from windlass.secrets.secret import Secret

router = APIRouter(route_class=ControlRoute, tags=["settings"])
VariableName = Annotated[str, Path(description="The name of the variable.")]


class SettingWarningItem(BaseModel):
    setting: str = Field(description="The name of the setting.")
    message: str


class SettingsAnswer(BaseModel):
    """The settings of a deployment."""

    settings: dict[str, Any] = Field(description="The settings that count.")
    own: DeploymentSettings = Field(description="Those that were set for this deployment.")
    defaults: dict[str, Any] = Field(
        description="Those that count where `own` has none: the project's options, else the server's defaults."
    )
    project: dict[str, Any] = Field(description="Those that the project sets.")
    warnings: list[SettingWarningItem] = Field(
        description="Parts of settings without an effect, such as approvers who are no users."
    )


class SourceItem(BaseModel):
    """Where the value of a variable comes from."""

    type: Literal["value", "default", "credential"] = Field(
        description="`value`: it is set directly. `default`: it is read with the default credential of the provider. "
        "`credential`: it is read with this credential."
    )
    provider: str | None
    credential: str | None = Field(description="The name of the credential, with the type `credential`.")


class VariableItem(BaseModel):
    name: str
    secret: bool
    value: str | None = Field(description="Null for a secret variable, and for viewers.")
    source: SourceItem
    secret_name: str | None = Field(description="The name of the secret at the provider: `name` or `name#json_key`.")
    read: Literal["at deploy", "at each kickoff"] | None = Field(
        description="When the value is read from the secret manager. Null for a direct value, and without a credential."
    )
    read_at: datetime | None = Field(description="When a deploy has read the value that kickoffs get.")
    updated_at: datetime
    updated_by: str | None


class VariablesAnswer(BaseModel):
    """All variables of a deployment, in the order of their names."""

    items: list[VariableItem]
    next_cursor: None = None


class GivenSource(Body):
    """Where the value of a variable comes from."""

    type: Literal["value", "default", "credential"] = Field(
        description="`value`: the member `value`. `default`: the default credential of `provider`. `credential`: the "
        "credential with this name."
    )
    provider: Text | None = Field(None, description="Such as `aws`.")
    credential: Text | None = Field(None, description="The name of a credential.")


class VariableValue(Body):
    value: SecretStr | None = Field(
        None, description="Text of at most 64 KB. Null: the variable keeps its value. Not with a secret manager."
    )
    secret: bool = Field(True, description="A secret value is never shown again. One of a secret manager is secret.")
    source: GivenSource = Field(GivenSource(type="value"), description="By default, the value is set directly.")
    secret_name: str | None = Field(
        None,
        max_length=LONGEST_SECRET_NAME,
        description="With a secret manager: the name of the secret, `name`, or `name#json_key` for a member of a JSON "
        "object.",
    )


class NamedVariable(VariableValue):
    name: str


class VariablesBody(Body):
    """Variables to set. All of them are set, or none. Others keep their values."""

    variables: list[NamedVariable] = Field(max_length=500)


@router.get("/deployments/{slug}/settings")
async def show_settings(_: Viewer, control: Control, slug: Slug) -> SettingsAnswer:
    """Returns the settings of a deployment, and where they come from."""
    return _settings(await control.management.settings(slug))


@router.patch("/deployments/{slug}/settings")
async def change_settings(caller: Developer, control: Control, slug: Slug, body: DeploymentSettings) -> SettingsAnswer:
    """Changes settings of a deployment. The body is a JSON Merge Patch of `own`: null resets a member.

    Only a person with the role owner may change `egress` and `files`. Settings of runs act from the next kickoff on,
    the others at once. Of two changes at the same time both are made, one after the other.
    """
    patch = body.model_dump(exclude_unset=True)
    return _settings(await control.management.change_settings(slug, patch, caller.actor, caller.role))


@router.get("/deployments/{slug}/variables")
async def list_variables(caller: Viewer, control: Control, slug: Slug) -> VariablesAnswer:
    """Lists the variables that the crew gets in addition to those of the server."""
    return _variables(await control.management.variables(slug), caller)


@router.put("/deployments/{slug}/variables")
async def set_variables(caller: Developer, control: Control, slug: Slug, body: VariablesBody) -> VariablesAnswer:
    """Sets variables. They act from the next kickoff on. The answer has all variables of the deployment.

    The value of a variable with a static credential is read at the next deploy.
    """
    given = [_given(one.name, one) for one in body.variables]
    return _variables(await control.management.set_variables(slug, given, caller.actor), caller)


@router.put("/deployments/{slug}/variables/{name}")
async def set_variable(
    caller: Developer, control: Control, slug: Slug, name: VariableName, body: VariableValue
) -> VariableItem:
    """Sets one variable. It acts from the next kickoff on."""
    found = await control.management.set_variables(slug, [_given(name, body)], caller.actor)
    (item,) = [one for one in _variables(found, caller).items if one.name == name]
    return item


@router.delete("/deployments/{slug}/variables/{name}", status_code=204)
async def unset_variable(caller: Developer, control: Control, slug: Slug, name: VariableName) -> None:
    """Removes one variable. The next kickoff does not get it."""
    await control.management.unset_variable(slug, name, caller.actor)


def _settings(found: ShownSettings) -> SettingsAnswer:
    own = DeploymentSettings.model_construct(_fields_set=set(found.own), **found.own)
    warnings = [SettingWarningItem(setting=one.setting, message=one.message) for one in found.warnings]
    return SettingsAnswer(
        settings=found.effective, own=own, defaults=found.defaults, project=found.project, warnings=warnings
    )


def _given(name: str, body: VariableValue) -> GivenVariable:
    value = None if body.value is None else Secret(body.value.get_secret_value())
    source = ValueSource(body.source.type, body.source.provider, body.source.credential)
    return GivenVariable(name, value, body.secret, source, body.secret_name)


def _variables(found: list[Variable], caller: Caller) -> VariablesAnswer:
    shows = caller.role.includes(Role.DEVELOPER)
    return VariablesAnswer(
        items=[
            VariableItem(
                name=one.name,
                secret=one.secret,
                value=one.value if shows else None,
                source=SourceItem(type=one.source.type, provider=one.source.provider, credential=one.source.credential),
                secret_name=one.secret_name,
                read=one.read,
                read_at=one.read_at,
                updated_at=one.updated_at,
                updated_by=one.updated_by,
            )
            for one in found
        ]
    )
