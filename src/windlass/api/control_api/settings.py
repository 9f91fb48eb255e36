"""Endpoints of the settings and the variables of a deployment."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field, SecretStr

from windlass.api.control_api.answers import Body
from windlass.api.control_api.callers import Caller, ControlRoute, Developer, Viewer
from windlass.api.control_api.dependencies import Control
from windlass.api.control_api.deployments import Slug
from windlass.deployments.settings import DeploymentSettings, ShownSettings
from windlass.deployments.variables import GivenVariable, Variable
from windlass.kickoffs.roles import Role
from windlass.secrets.secret import Secret

router = APIRouter(route_class=ControlRoute, tags=["settings"])
VariableName = Annotated[str, Path(description="The name of the variable.")]


class SettingsAnswer(BaseModel):
    """The settings of a deployment."""

    settings: dict[str, Any] = Field(description="The settings that count.")
    own: DeploymentSettings = Field(description="Those that were set for this deployment.")
    defaults: dict[str, Any] = Field(
        description="Those that count where `own` has none: the project's options, else the server's defaults."
    )


class VariableItem(BaseModel):
    name: str
    secret: bool
    value: str | None = Field(description="Null for a secret variable, and for viewers.")
    updated_at: datetime
    updated_by: str | None


class VariablesAnswer(BaseModel):
    """All variables of a deployment, in the order of their names."""

    items: list[VariableItem]
    next_cursor: None = None


class VariableValue(Body):
    value: SecretStr = Field(description="Text of at most 64 KB.")
    secret: bool = Field(True, description="A secret value is never shown again.")


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

    They act from the next kickoff on. Of two changes at once both are made, one after the other.
    """
    return _settings(await control.management.change_settings(slug, body.model_dump(exclude_unset=True), caller.actor))


@router.get("/deployments/{slug}/variables")
async def list_variables(caller: Viewer, control: Control, slug: Slug) -> VariablesAnswer:
    """Lists the variables that the crew gets in addition to those of the server."""
    return _variables(await control.management.variables(slug), caller)


@router.put("/deployments/{slug}/variables")
async def set_variables(caller: Developer, control: Control, slug: Slug, body: VariablesBody) -> VariablesAnswer:
    """Sets variables. They act from the next kickoff on. The answer has all variables of the deployment."""
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
    return SettingsAnswer(settings=found.effective, own=own, defaults=found.defaults)


def _given(name: str, body: VariableValue) -> GivenVariable:
    return GivenVariable(name, Secret(body.value.get_secret_value()), body.secret)


def _variables(found: list[Variable], caller: Caller) -> VariablesAnswer:
    shows = caller.role.includes(Role.DEVELOPER)
    return VariablesAnswer(
        items=[
            VariableItem(
                name=one.name,
                secret=one.secret,
                value=one.value if shows else None,
                updated_at=one.updated_at,
                updated_by=one.updated_by,
            )
            for one in found
        ]
    )
