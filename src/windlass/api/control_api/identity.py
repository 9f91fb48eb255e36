"""Endpoints of the identity by which providers of secrets know the server."""

from dataclasses import asdict
from datetime import datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from windlass.api.control_api.answers import Body
from windlass.api.control_api.callers import ControlRoute, Owner
from windlass.api.control_api.dependencies import Control
from windlass.secrets.provider import Provider
from windlass.secrets.providers import NAMES, provider

router = APIRouter(route_class=ControlRoute, tags=["identity"])


class SigningKeyItem(BaseModel):
    """A public key of the issuer."""

    id: str = Field(description="The `kid` in tokens: the thumbprint of the public key.")
    state: Literal["signing", "waiting", "published"] = Field(
        description="`waiting`: published already, and signs from `signs_from` on. `published`: it does not sign, and "
        "its tokens are still valid."
    )
    created_at: datetime | None = Field(description="Null for a key of OIDC_PRIVATE_KEY.")
    signs_from: datetime | None


class ProviderValues(BaseModel):
    """What to enter at a provider, so that it trusts this server."""

    title: str
    audience: str = Field(description="The audience of the tokens for this provider.")
    values: dict[str, str] = Field(description="Field -> value to paste.")
    commands: str = Field(description="Commands of the provider's own command line. Replace names in capitals.")


class IdentityAnswer(BaseModel):
    """The identity of this server."""

    issuer: str = Field(description="The address of the OIDC issuer: the `iss` of tokens.")
    discovery_url: str
    jwks_url: str
    organization_id: str
    subject: str = Field(description="The `sub` of tokens.")
    warning: str | None = Field(description="Why cloud providers would refuse this issuer.")
    keys: list[SigningKeyItem] = Field(description="The published keys, the next one to sign last.")
    providers: dict[str, ProviderValues] = Field(description="Provider -> the values to paste.")


class Rotation(Body):
    now: bool = Field(False, description="Whether the new key signs at once, and not after 24 hours.")
    compromised: bool = Field(
        False, description="Whether all other keys are removed at once, because one of them is in wrong hands."
    )


@router.get("/identity")
async def show_identity(_: Owner, control: Control) -> IdentityAnswer:
    """Returns the identity of the server: its OIDC issuer, and what to enter at each provider.

    Makes the first signing key if there is none.
    """
    await control.identity.prepare()
    return identity_answer(control)


@router.post("/identity/rotate")
async def rotate_signing_key(caller: Owner, control: Control, body: Rotation) -> IdentityAnswer:
    """Adds a signing key, and removes those that no provider needs any more.

    The new key is published at once, and signs after 24 hours. By then, providers know it. With `now`, a key that
    waits signs at once instead.
    """
    await control.identity.rotate(caller.actor, now=body.now, withdraw=body.compromised)
    return identity_answer(control)


def identity_answer(control: Control) -> IdentityAnswer:
    """Returns the identity of the server. Raises NoIssuer."""
    identity = control.identity
    document = identity.discovery()
    issuer = document["issuer"]
    return IdentityAnswer(
        issuer=issuer,
        discovery_url=f"{issuer}/.well-known/openid-configuration",
        jwks_url=document["jwks_uri"],
        organization_id=identity.organization_id,
        subject=identity.subject_name,
        warning=identity.doubt,
        keys=[SigningKeyItem(**asdict(key)) for key in identity.key_states()],
        providers={name: _values(provider(name), issuer, identity.subject_name) for name in NAMES},
    )


def _values(found: Provider, issuer: str, subject: str) -> ProviderValues:
    values = found.identity_values(issuer, subject)
    return ProviderValues(
        title=found.title, audience=values.audience, values=dict(values.values), commands=values.commands
    )
