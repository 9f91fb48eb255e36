"""Endpoints of credentials for secret managers."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from inspect import getdoc
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from fastapi import Query as InQuery
from pydantic import BaseModel, Field

from windlass.api.control_api.answers import Body, Text
from windlass.api.control_api.callers import ControlRoute, Developer, Owner
from windlass.api.control_api.dependencies import Control
from windlass.deployments.configurations import secret_members
from windlass.deployments.credentials import Check, Credential, CredentialPatch, GivenCredential
from windlass.deployments.variables import when_read
from windlass.secrets.provider import Provider
from windlass.secrets.providers import NAMES

router = APIRouter(route_class=ControlRoute, tags=["credentials"])
CredentialName = Annotated[Text, Path(description="The name of the credential.")]
Read = Literal["at deploy", "at each kickoff"]
Members = Annotated[
    dict[str, Any],
    Field(description="The members of the method, which `GET /credentials/providers` lists."),
]
LONGEST_PREFIX = 500


Roles = Annotated[
    list[Literal["developer", "owner"]],
    Field(description="People with these roles use it for variables of every deployment that they may change."),
]
Deployments = Annotated[
    list[Text],
    Field(
        max_length=1000,
        description="Deployments whose variables may use it. Neither deployments nor roles: owners of the server do.",
    ),
]


class CredentialItem(BaseModel):
    """A credential. No answer has its secret members."""

    name: str
    provider: str = Field(description="One of " + ", ".join(f"`{name}`" for name in NAMES) + ".")
    method: str = Field(description="How the server proves to the provider who it is.")
    read: Read = Field(description="When values are read with it.")
    configuration: dict[str, Any] | None = Field(
        description="Its members that are not secret. Null: they can't be decrypted. Give all of them again."
    )
    is_default: bool = Field(description="Whether it is the default credential of its provider.")
    roles: Roles
    deployments: Deployments
    variables: int = Field(description="The number of variables that use it.")
    created_at: datetime
    created_by: str | None
    updated_at: datetime
    updated_by: str | None


class CredentialsAnswer(BaseModel):
    """All credentials, in the order of their names."""

    items: list[CredentialItem]
    next_cursor: None = None


class UnsavedCredential(Body):
    provider: Text
    method: Text
    configuration: Members


class NewCredentialBody(UnsavedCredential):
    """A credential to add."""

    name: Text = Field(description="Small letters, digits and hyphens, 63 at most.")
    is_default: bool = Field(False, description="Make it the default credential of its provider.")
    roles: Roles = Field(default_factory=list)
    deployments: Deployments = Field(default_factory=list)


class CredentialChange(Body):
    """Members that are left out stay as they are."""

    name: Text | None = None
    method: Text | None = None
    configuration: dict[str, Any] | None = Field(
        None,
        description="Members to change. Null or an empty text removes a member, but keeps a secret one.",
    )
    is_default: bool | None = None
    roles: Roles | None = None
    deployments: Deployments | None = None


class CheckAnswer(BaseModel):
    """The result of a handshake with the secret manager."""

    ok: bool
    message: str = Field(description="As whom the provider knows the server, or why the handshake failed.")
    hint: str = Field(description="What to change.")
    code: str | None = Field(description="The cause for programs, such as `credential_refused`. Null: it succeeded.")


class MemberItem(BaseModel):
    name: str
    description: str
    required: bool
    secret: bool = Field(description="Whether its value is never shown.")
    default: Any
    example: str | None


class MethodItem(BaseModel):
    name: str
    description: str
    read: Read = Field(description="When values are read with this method.")
    members: list[MemberItem] = Field(description="The members of the configuration.")


class ProviderItem(BaseModel):
    name: str
    title: str
    methods: list[MethodItem]


class ProvidersAnswer(BaseModel):
    """The providers of secret managers, with the methods of their credentials."""

    items: list[ProviderItem]
    next_cursor: None = None


class SecretNamesAnswer(BaseModel):
    """Names of secrets, as the secret manager lists them."""

    items: list[str]
    next_cursor: None = None


@router.get("/credentials")
async def list_credentials(caller: Developer, control: Control) -> CredentialsAnswer:
    """Lists the credentials that the caller may use in some deployment, without their secret members."""
    found = await control.credentials.all(sees=caller.actor.sees)
    return CredentialsAnswer(items=[_item(one) for one in found])


@router.post("/credentials", status_code=201)
async def add_credential(caller: Owner, control: Control, body: NewCredentialBody) -> CredentialItem:
    """Adds a credential. 409 if the name is taken.

    Nothing is sent to the provider. `POST /credentials/{name}/test` makes a handshake.
    """
    given = GivenCredential(
        body.name, body.provider, body.method, body.configuration, body.is_default, body.roles, body.deployments
    )
    return _item(await control.credentials.add(given, caller.actor))


@router.get("/credentials/providers")
async def list_providers(_: Developer, control: Control) -> ProvidersAnswer:
    """Lists the providers, with the methods of their credentials and the members of each method."""
    return ProvidersAnswer(items=[provider_item(one) for one in control.credentials.providers()])


@router.post("/credentials/test")
async def test_new_credential(caller: Owner, control: Control, body: UnsavedCredential) -> CheckAnswer:
    """Makes a handshake with a credential that is not stored. Reads no secret."""
    given = GivenCredential("", body.provider, body.method, body.configuration)
    return _check(await control.credentials.test_unsaved(given, caller.actor))


@router.get("/credentials/{name}")
async def show_credential(caller: Developer, control: Control, name: CredentialName) -> CredentialItem:
    """Returns a credential, without its secret members."""
    return _item(await control.credentials.get(name, sees=caller.actor.sees))


@router.patch("/credentials/{name}")
async def change_credential(
    caller: Owner, control: Control, name: CredentialName, body: CredentialChange
) -> CredentialItem:
    """Changes a credential. A changed one is used from the next kickoff, or the next deploy, on.

    A variable that may not use it any more fails the next kickoff.

    409 when variables use the default credential of the provider, and it would no longer be one.
    """
    patch = CredentialPatch(body.name, body.method, body.configuration, body.is_default, body.roles, body.deployments)
    return _item(await control.credentials.change(name, patch, caller.actor))


@router.delete("/credentials/{name}", status_code=204)
async def remove_credential(caller: Owner, control: Control, name: CredentialName) -> None:
    """Removes a credential. 409 while variables use it: `details.variables` names some."""
    await control.credentials.remove(name, caller.actor)


@router.post("/credentials/{name}/test")
async def test_credential(caller: Developer, control: Control, name: CredentialName) -> CheckAnswer:
    """Makes a handshake: proves to the provider who the server is. Reads no secret."""
    return _check(await control.credentials.test(name, caller.actor))


@router.get("/credentials/{name}/secrets")
async def list_secrets(
    caller: Developer,
    control: Control,
    name: CredentialName,
    prefix: Annotated[
        str, InQuery(max_length=LONGEST_PREFIX, pattern=r"^[^\x00]*$", description="The beginning of the names.")
    ] = "",
) -> SecretNamesAnswer:
    """Lists names of secrets at the provider, 100 at most, for completion. The credential must be permitted to list."""
    return SecretNamesAnswer(items=await control.credentials.names(name, prefix, caller.actor))


def _item(found: Credential) -> CredentialItem:
    return CredentialItem.model_validate(found, from_attributes=True)


def _check(found: Check) -> CheckAnswer:
    return CheckAnswer.model_validate(found, from_attributes=True)


def provider_item(provider: Provider) -> ProviderItem:
    """Returns the methods of a provider, and the members of each."""
    methods = [_method(name, model) for name, model in provider.methods.items()]
    return ProviderItem(name=provider.name, title=provider.title, methods=methods)


@cache
def _method(name: str, model: type[BaseModel]) -> MethodItem:
    schema, hidden = model.model_json_schema(), secret_members(model)
    required = set(schema.get("required", ()))
    members = [_member(one, of, one in required, one in hidden) for one, of in schema["properties"].items()]
    read = when_read(name) or "at deploy"
    return MethodItem(name=name, description=(getdoc(model) or ""), read=read, members=members)


def _member(name: str, schema: Mapping[str, Any], required: bool, secret: bool) -> MemberItem:
    example = next(iter(schema.get("examples", ())), None)
    return MemberItem(
        name=name,
        description=schema.get("description", ""),
        required=required,
        secret=secret,
        default=schema.get("default"),
        example=example,
    )
