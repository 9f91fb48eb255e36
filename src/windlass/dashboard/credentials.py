"""The credentials for secret managers: list, add, edit, test, remove, and the values to paste at the provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.access.authentication import TooManyRequests
from windlass.api.control_api.credentials import ProviderItem, provider_item
from windlass.api.control_api.identity import identity_answer
from windlass.dashboard.routes import Routes, one_line, several_lines
from windlass.deployments.configurations import BadConfiguration
from windlass.deployments.credentials import CredentialPatch, GivenCredential, NoSuchCredential
from windlass.rights import Role
from windlass.secrets.provider import WORKLOAD_IDENTITY, BadCredential, NoIssuer
from windlass.store.credentials import CredentialExists, CredentialInUse, TooManyCredentials
from windlass.store.managing import NoSuchDeployment

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.api.control_api.credentials import MethodItem
    from windlass.api.control_api.identity import ProviderValues
    from windlass.dashboard.routes import Visit
    from windlass.deployments.credentials import Check, Credential
    from windlass.errors import WindlassError

ROUTES = Routes()
BAD, NOT_FOUND = 400, 404
MOST_SHOWN = 20
"""Variables that the page of a credential names."""
MEMBER = "member."
"""The beginning of the names of the fields of a configuration."""
NEW = "/credentials/providers/{provider}/{method}"
"""`providers` is no name that a credential can have."""
REFUSED = (
    BadCredential,
    CredentialExists,
    CredentialInUse,
    NoSuchDeployment,
    TooManyCredentials,
    TooManyRequests,
)


@ROUTES.get("/credentials", Role.DEVELOPER)
async def show(visit: Visit) -> Response:
    credentials = await visit.dashboard.control.credentials.all(sees=visit.actor.sees)
    titles = {one.name: one.title for one in _providers(visit)}
    return visit.page("credentials.html", credentials=credentials, titles=titles)


@ROUTES.get("/credentials/providers", Role.OWNER)
async def show_providers(visit: Visit) -> Response:
    return visit.page("credential_providers.html", providers=_providers(visit))


@ROUTES.get(NEW, Role.OWNER)
async def show_add(visit: Visit) -> Response:
    return await _add_page(visit)


@ROUTES.post(NEW, Role.OWNER)
async def add(visit: Visit) -> Response:
    name, is_default = one_line(visit.field("name")), visit.field("is_default") == "on"
    provider, method = _chosen(visit)
    members, permitted = _members(visit, method), _permitted(visit)
    roles, deployments = permitted["roles"], permitted["deployments"]
    given = GivenCredential(name, provider.name, method.name, members, is_default, roles, deployments)
    try:
        await visit.dashboard.control.credentials.add(given, visit.actor)
    except REFUSED as error:
        return await _add_page(visit, error, status=BAD)
    return visit.redirect(f"/ui/credentials/{name}", notice=f"The credential {name} is added. Test the connection.")


@ROUTES.post(f"{NEW}/test", Role.OWNER)
async def test_new(visit: Visit) -> Response:
    provider, method = _chosen(visit)
    given = GivenCredential("", provider.name, method.name, _members(visit, method))
    try:
        check = await visit.dashboard.control.credentials.test_unsaved(given, visit.actor)
    except REFUSED as error:
        return await _add_page(visit, error)  # htmx shows no answer of 400
    return await _add_page(visit, check=check)


@ROUTES.get("/credentials/{name}", Role.DEVELOPER)
async def show_one(visit: Visit) -> Response:
    return await _page(visit)


@ROUTES.post("/credentials/{name}", Role.OWNER)
async def change(visit: Visit) -> Response:
    name = visit.path["name"]
    found = await visit.dashboard.control.credentials.get(name)
    new_name, permitted = one_line(visit.field("name")) or name, _permitted(visit)
    patch = CredentialPatch(
        name=None if new_name == name else new_name,
        configuration=_members(visit, _method(visit, found.provider, found.method)),
        roles=[*permitted["roles"], *(one for one in found.roles if one == Role.OWNER)],  # the form does not have it
        deployments=permitted["deployments"],
    )
    try:
        await visit.dashboard.control.credentials.change(name, patch, visit.actor)
    except REFUSED as error:
        return await _page(visit, error, status=BAD)
    notice = "The credential is saved. It is used from the next kickoff, or the next deploy, on."
    return visit.redirect(f"/ui/credentials/{new_name}", notice=notice)


@ROUTES.post("/credentials/{name}/test", Role.DEVELOPER)
async def test(visit: Visit) -> Response:
    try:
        check = await visit.dashboard.control.credentials.test(visit.path["name"], visit.actor)
    except TooManyRequests as error:
        return await _page(visit, error)
    return await _page(visit, check=check)


@ROUTES.post("/credentials/{name}/default", Role.OWNER)
async def set_default(visit: Visit) -> Response:
    name, is_default = visit.path["name"], visit.field("is_default") == "on"
    try:
        await visit.dashboard.control.credentials.change(name, CredentialPatch(is_default=is_default), visit.actor)
    except REFUSED as error:
        return await _page(visit, error, status=BAD)
    notice = f"{name} is the default credential of its provider{'' if is_default else ' no more'}."
    return visit.redirect(f"/ui/credentials/{name}", notice=notice)


@ROUTES.post("/credentials/{name}/remove", Role.OWNER)
async def remove(visit: Visit) -> Response:
    name = visit.path["name"]
    try:
        await visit.dashboard.control.credentials.remove(name, visit.actor)
    except REFUSED as error:
        return await _page(visit, error, status=BAD)
    return visit.redirect("/ui/credentials", notice=f"The credential {name} is removed.")


async def _page(
    visit: Visit, error: WindlassError | None = None, check: Check | None = None, status: int = 200
) -> Response:
    credentials, name = visit.dashboard.control.credentials, visit.path["name"]
    sees = visit.actor.sees
    found = await credentials.get(name, sees=sees)
    method = _method(visit, found.provider, found.method)
    title = next(one.title for one in _providers(visit) if one.name == found.provider)
    return visit.page(
        "credential.html",
        status,
        credential=found,
        title=title,
        method=method,
        values=_values_of(visit, found),
        variables=await credentials.used_by(name, limit=MOST_SHOWN, sees=sees),
        permitted=_permitted(visit) if error else {"roles": found.roles, "deployments": found.deployments},
        paste=await _paste(visit, found.provider, found.method),
        error=error,
        faults=_faults(error),
        check=check,
    )


async def _add_page(
    visit: Visit, error: WindlassError | None = None, check: Check | None = None, status: int = 200
) -> Response:
    provider, method = _chosen(visit)
    return visit.page(
        "credential_new.html",
        status,
        provider=provider,
        method=method,
        name=visit.field("name"),
        is_default=visit.field("is_default") == "on",
        permitted=_permitted(visit),
        values=_sent(visit, method),
        paste=await _paste(visit, provider.name, method.name),
        error=error,
        faults=_faults(error),
        check=check,
    )


def _providers(visit: Visit) -> list[ProviderItem]:
    return [provider_item(one) for one in visit.dashboard.control.credentials.providers()]


def _chosen(visit: Visit) -> tuple[ProviderItem, MethodItem]:
    """Returns the provider and the method that the path names. Raises NoSuchCredential."""
    name, wanted = visit.path["provider"], visit.path["method"]
    for provider in _providers(visit):
        for method in provider.methods:
            if (provider.name, method.name) == (name, wanted):
                return provider, method
    raise NoSuchCredential(f"{name}/{wanted}")


def _method(visit: Visit, provider: str, method: str) -> MethodItem | None:
    """Returns the method, None for one that this release does not know."""
    methods = [one for item in _providers(visit) if item.name == provider for one in item.methods]
    return next((one for one in methods if one.name == method), None)


def _members(visit: Visit, method: MethodItem | None) -> dict[str, Any]:
    """Returns the configuration of the form. An empty secret member keeps its value."""
    names = [member.name for member in method.members] if method else []
    return {name: several_lines(visit.field(f"{MEMBER}{name}")).strip() for name in names}


def _permitted(visit: Visit) -> dict[str, list[str]]:
    """Returns the roles and the deployments of the form."""
    roles = [Role.DEVELOPER.value] if visit.field("for_developers") == "on" else []
    return {"roles": roles, "deployments": visit.field("deployments").replace("\0", "").split()}


def _sent(visit: Visit, method: MethodItem) -> dict[str, Any]:
    """Returns the members that the page shows again: no secret ones."""
    usual = {member.name: member.default or "" for member in method.members}
    shown = [member.name for member in method.members if not member.secret]
    return {name: visit.field(f"{MEMBER}{name}", str(usual[name])) for name in shown}


def _values_of(visit: Visit, found: Credential) -> dict[str, Any]:
    """Returns the members in the fields: those of the form after an error, else the stored ones. No secret ones."""
    method = _method(visit, found.provider, found.method)
    members = [member.name for member in method.members if not member.secret] if method else []
    stored = found.configuration or {}
    return {name: visit.field(f"{MEMBER}{name}", str(stored.get(name) or "")) for name in members}


def _faults(error: WindlassError | None) -> dict[str, str]:
    """Returns the reasons of an invalid configuration by its members."""
    if not isinstance(error, BadConfiguration):
        return {}
    return {name: f"{reason[:1].upper()}{reason[1:]}." for name, reason in error.invalid.items()}


async def _paste(visit: Visit, provider: str, method: str) -> ProviderValues | None:
    """Returns what to enter at the provider for workload identity. None for other methods, and for other roles."""
    if method != WORKLOAD_IDENTITY or not visit.may(Role.OWNER):
        return None
    try:
        return identity_answer(visit.dashboard.control).providers[provider]
    except NoIssuer:
        return None
