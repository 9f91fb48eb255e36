"""The errors of the control API as Problems. `windlass.api.application.Application` answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from windlass.access.tokens import (
    LastOwner,
    NoSuchToken,
    NoSuchUser,
    TokenTooLong,
    TooManyTokens,
    UserCanNot,
    UserExists,
)
from windlass.api.errors import RETRY_AFTER, Problem, bad_request, wrong_method
from windlass.deployments.configurations import BadConfiguration
from windlass.deployments.credentials import NoSuchCredential
from windlass.deployments.deploys import BadName, NoSuchBuild
from windlass.deployments.identity import KeysAreFixed
from windlass.deployments.members import NoSuchMember, NotAnOwner, NothingSeen
from windlass.deployments.settings import BadSettings, OwnersOnly
from windlass.deployments.variables import BadVariable, NoSuchVariable
from windlass.deployments.webhooks import NoSuchDelivery, NoSuchWebhook, TooManyTests
from windlass.errors import ProjectError
from windlass.lifecycle.deletion import KickoffsStillOpen
from windlass.secrets.provider import CredentialNotPermitted, NoIssuer, ProviderUnavailable, SecretError
from windlass.store.credentials import CredentialExists, CredentialInUse, TooManyCredentials
from windlass.store.managing import (
    AnotherVersion,
    BuildOpen,
    KickoffsOpen,
    NameTaken,
    NoEarlierVersion,
    NoSuchDeployment,
    NoSuchVersion,
)
from windlass.store.members import TooManyMembers
from windlass.store.signing_keys import KeyWaits
from windlass.store.variables import TooManyVariables

if TYPE_CHECKING:
    from windlass.rights import Role

STATUSES: dict[type, int] = {
    BadName: 400,
    BadSettings: 400,
    BadVariable: 400,
    ProjectError: 400,
    SecretError: 400,
    CredentialNotPermitted: 403,
    TokenTooLong: 400,
    NoSuchBuild: 404,
    NoSuchCredential: 404,
    NoSuchDelivery: 404,
    NoSuchMember: 404,
    NotAnOwner: 403,
    NothingSeen: 404,
    NoSuchDeployment: 404,
    NoSuchToken: 404,
    NoSuchUser: 404,
    NoSuchVariable: 404,
    NoSuchVersion: 404,
    NoSuchWebhook: 404,
    OwnersOnly: 403,
    AnotherVersion: 409,
    BuildOpen: 409,
    CredentialExists: 409,
    CredentialInUse: 409,
    KeyWaits: 409,
    KeysAreFixed: 409,
    KickoffsOpen: 409,
    KickoffsStillOpen: 409,
    LastOwner: 409,
    NameTaken: 409,
    NoIssuer: 503,
    NoEarlierVersion: 409,
    TooManyCredentials: 409,
    TooManyMembers: 409,
    TooManyTokens: 409,
    TooManyVariables: 409,
    UserCanNot: 409,
    UserExists: 409,
}


def translated(error: Exception) -> Exception:
    """Returns the Problem for an error of an operation or of FastAPI. Returns any other error unchanged."""
    match error:
        case HTTPException(status_code=404):
            return Problem(404, "There is nothing at this path. `GET /api/v1/openapi.json` lists the paths.")
        case HTTPException(status_code=405):
            return wrong_method(error.headers or {})
        case HTTPException():  # FastAPI replaces errors at the reading of a body
            unread = "The server can't read the body. Send JSON, with `Content-Type: application/json`."
            return error.__cause__ if isinstance(error.__cause__, Exception) else bad_request(unread)
        case ProviderUnavailable() | TooManyTests():
            status = 429 if isinstance(error, TooManyTests) else 503
            return Problem(status, str(error), _details(error), headers={"Retry-After": str(RETRY_AFTER)})
    found = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
    return Problem(found, str(error), _details(error)) if found else error


def _details(error: Exception) -> dict[str, Any]:
    match error:
        case NameTaken():
            return {"slug": error.slug}
        case BuildOpen():
            return {"build": str(error.build)}
        case BadSettings() | BadConfiguration():
            return {"invalid": error.invalid}
        case CredentialInUse():
            return {"variables": error.variables}
        case SecretError():
            return {"code": error.code}
    return {}


def invalid(found: Any) -> Problem:
    """Returns the Problem for members of a body, a path or a query that are not as their model describes."""
    reasons = {".".join(map(str, one["loc"][1:])) or str(one["loc"][0]): _reason(one) for one in found}
    listed = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    return bad_request(f"The request is not valid. {listed}.", invalid=reasons)


def _reason(fault: Any) -> str:
    if fault["type"] == "extra_forbidden":
        return "there is no such member"
    return str(fault["msg"]).removeprefix("Value error, ")


def unauthorized_to_control() -> Problem:
    message = (
        "The control API needs a valid personal access token: send the header `Authorization: Bearer wlp_...`. "
        "`windlass tokens create --personal` prints one. Tokens of crews are not valid here."
    )
    return Problem(401, message, headers={"WWW-Authenticate": "Bearer"})


def no_control_access() -> Problem:
    message = (
        "The user of this token has no role, so no access to the control API. An owner sets one with: "
        "windlass admin users change NAME --role ROLE"
    )
    return Problem(403, message)


def role_missing(needed: Role, role: Role) -> Problem:
    message = (
        f"This operation needs the role {needed}, and the user of the token has the role {role}. An owner changes the "
        "role with: windlass admin users change NAME --role ROLE"
    )
    return Problem(403, message, {"required_role": str(needed)})
