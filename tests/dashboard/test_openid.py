"""Signing in with OpenID Connect, against a provider of the test's own."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio
from joserfc.jwk import OctKey, RSAKey

from dashboard.identity_provider import CLIENT, SECRET, IdentityProvider
from dashboard.people import Visitor, user
from windlass.access.openid import OpenId, RoleRules
from windlass.dashboard.openid_client import OpenIdClient
from windlass.errors import SettingsError
from windlass.rights import Role
from windlass.secrets.secret import Secret
from windlass.store.audit import AuditFilter, AuditStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
BEGIN = "/ui/sign-in/openid"
_numbers = itertools.count(1)


def person(**claims: Any) -> dict[str, Any]:
    number = next(_numbers)
    return {"sub": f"subject {number}", "email": f"person{number}@example.com", "email_verified": True, **claims}


def client_of(
    provider: IdentityProvider, *rules: str, default: str | None = None, claim: str = "email"
) -> OpenIdClient:
    roles = RoleRules.parse(rules, default)
    return OpenIdClient(OpenId(provider.url, CLIENT, Secret(SECRET), claim, "groups", roles), bytes(32))


@pytest_asyncio.fixture(loop_scope="session")
async def provider(server: Server) -> AsyncIterator[IdentityProvider]:
    provider = IdentityProvider()
    running = await provider.start()
    server.dashboard.openid = client_of(provider, default="viewer")
    yield provider
    server.dashboard.openid = None
    await running.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server)
    yield visitor
    await visitor.close()


async def sign_in(visitor: Visitor, following: str = "/ui/account") -> httpx.Response:
    """The answer of the server to a person who comes back from the provider."""
    to_provider = await visitor.get(f"{BEGIN}?next={following}")
    assert to_provider.status_code == 302, to_provider.text
    async with httpx.AsyncClient() as at_provider:
        back = await at_provider.get(to_provider.headers["location"])
    assert back.status_code == 307, back.text
    return await visitor.get(back.headers["location"])


async def test_a_new_person_becomes_a_user_with_the_default_role(
    server: Server, provider: IdentityProvider, visitor: Visitor
) -> None:
    provider.person = person()
    name = provider.person["email"]
    page = await visitor.get("/ui/sign-in")
    assert f'href="{BEGIN}"' in page.text
    answer = await sign_in(visitor)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/account")
    assert name in (await visitor.get("/ui/account")).text
    assert (await server.tokens.user(name)).role is Role.VIEWER
    entries = await AuditStore(server.database).listed(AuditFilter(target=name), limit=10)
    assert {one.action for one in entries} == {"session.begin", "user.link", "user.add"}
    assert "you need no password here" in (await visitor.get("/ui/account")).text
    refused = await visitor.post("/ui/account/password", new="correct horse battery", again="correct horse battery")
    assert (refused.status_code, "You sign in with OpenID Connect." in refused.text) == (400, True)
    again = await Visitor.of(server)
    provider.person["email"] = "another@example.com"  # the provider renamed the person, who stays the same user
    await sign_in(again)
    assert name in (await again.get("/ui/account")).text
    await again.close()


async def test_an_added_user_is_linked_once_and_keeps_the_role(
    server: Server, provider: IdentityProvider, visitor: Visitor
) -> None:
    server.dashboard.openid = client_of(provider)
    name = await user(server, Role.DEVELOPER)
    server.dashboard.openid = client_of(provider, claim="name")
    provider.person = person(name=name)
    assert (await sign_in(visitor)).status_code == 303
    assert (await server.tokens.user(name)).role is Role.DEVELOPER
    await visitor.post("/ui/sign-out")
    provider.person = person(name=name)  # another person of the provider with the same name
    refused = await sign_in(visitor)
    assert refused.status_code == 403
    assert "Another person of your provider" in refused.text
    provider.person = person(name="a stranger")
    refused = await sign_in(visitor)
    assert (refused.status_code, "There is no user" in refused.text) == (403, True)


async def test_groups_decide_the_role_at_each_sign_in(
    server: Server, provider: IdentityProvider, visitor: Visitor
) -> None:
    server.dashboard.openid = client_of(provider, "staff=viewer", "platform=developer")
    provider.person = person(groups=["staff", "platform", "other"])
    name = provider.person["email"]
    await sign_in(visitor)
    assert (await server.tokens.user(name)).role is Role.DEVELOPER
    provider.person["groups"] = ["staff"]
    await sign_in(visitor)
    assert (await server.tokens.user(name)).role is Role.VIEWER
    provider.person["groups"] = "other"
    assert (await sign_in(visitor)).status_code == 403
    assert (await server.tokens.user(name)).role is None
    assert (await visitor.get("/ui/account")).status_code == 303  # the session of before has ended, too


async def test_a_disabled_user_is_refused(server: Server, provider: IdentityProvider, visitor: Visitor) -> None:
    provider.person = person()
    await sign_in(visitor)
    await server.tokens.disable_user(provider.person["email"])
    answer = await sign_in(visitor)
    assert (answer.status_code, "your user is disabled" in answer.text) == (403, True)


def _lie(claims: dict[str, Any], lie: dict[str, Any]) -> None:
    """Changes the claims. A claim that becomes None is left out."""
    claims.update(lie)
    for name in [name for name, value in claims.items() if value is None]:
        del claims[name]


async def test_an_id_token_for_several_clients_is_accepted_from_this_one(
    provider: IdentityProvider, visitor: Visitor
) -> None:
    provider.person = person()
    provider.change = lambda claims: claims.update(aud=[CLIENT, "another"], azp=CLIENT)
    assert (await sign_in(visitor)).status_code == 303


OTHER_KEY = RSAKey.generate_key(2048, {"kid": "one"})
LIES: dict[str, dict[str, Any]] = {
    "for another client": {"aud": "another"},
    "for another client, from this one": {"aud": "another", "azp": CLIENT},
    "for other clients, from this one": {"aud": ["another", "a third"], "azp": CLIENT},
    "for this client and another, from nobody": {"aud": [CLIENT, "another"]},
    "for this client and another, from the other": {"aud": [CLIENT, "another"], "azp": "another"},
    "for this client, from another": {"azp": "another"},
    "for nobody": {"aud": None},
    "for an empty list": {"aud": []},
    "of another issuer": {"iss": "https://evil.example.com"},
    "for another sign-in": {"nonce": "another"},
    "of no issuer": {"iss": None},
    "for no sign-in": {"nonce": None},
    "without an end": {"exp": None},
    "too old": {"exp": int(time.time()) - 3600, "iat": int(time.time()) - 7200},
    "without a subject": {"sub": ""},
    "without a name": {"email": None},
    "with an address that is not verified": {"email_verified": False},
    "with an address that nobody has judged": {"email_verified": None},
    "with a name that can't be printed": {"email": "a\nb"},
}


@pytest.mark.parametrize("lie", LIES)
async def test_an_id_token_is_refused_that_is(provider: IdentityProvider, visitor: Visitor, lie: str) -> None:
    provider.person = person()
    provider.change = lambda claims: _lie(claims, LIES[lie])
    answer = await sign_in(visitor)
    assert answer.status_code in {403, 502}
    assert (await visitor.get("/ui/account")).status_code == 303


async def test_an_id_token_is_refused_whose_signature_proves_nothing(
    provider: IdentityProvider, visitor: Visitor
) -> None:
    provider.metadata = {"id_token_signing_alg_values_supported": ["RS256", "HS256", "none"]}
    provider.person = person()
    for sign in (
        provider.unsigned,
        lambda claims: provider.signed(claims, "HS256", OctKey.import_key(SECRET)),
        lambda claims: provider.signed(claims, "RS256", OTHER_KEY),
    ):
        provider.sign = sign
        answer = await sign_in(visitor)
        assert (answer.status_code, "failed." in answer.text) == (502, True)
        assert (await visitor.get("/ui/account")).status_code == 303
    provider.sign = None
    assert (await sign_in(visitor)).status_code == 303  # the same person with a right signature


async def test_a_provider_that_declines_is_down_or_is_another_one(
    server: Server, provider: IdentityProvider, visitor: Visitor
) -> None:
    provider.is_down = True
    answer = await visitor.get(BEGIN)
    assert (answer.status_code, "The sign-in with 127.0.0.1 failed." in answer.text) == (502, True)
    provider.is_down, provider.issuer_it_names = False, "https://another.example.com"
    assert (await visitor.get(BEGIN)).status_code == 502
    provider.issuer_it_names, provider.declines = None, True
    answer = await sign_in(visitor)
    assert (answer.status_code, "declined" in answer.text, "<b>no</b>" in answer.text) == (403, True, False)
    provider.declines, provider.person = False, person()
    assert (await sign_in(visitor)).status_code == 303  # none of it stays


async def test_an_answer_without_its_own_beginning_is_refused(
    server: Server, provider: IdentityProvider, visitor: Visitor
) -> None:
    provider.person = person()
    to_provider = await visitor.get(BEGIN)
    async with httpx.AsyncClient() as at_provider:
        back = (await at_provider.get(to_provider.headers["location"])).headers["location"]
    other = await Visitor.of(server)  # the link of an attacker, opened in the browser of somebody else
    answer = await other.get(back)
    assert (answer.status_code, "another browser" in answer.text) == (403, True)
    wrong_state = await visitor.get(back.replace("state=", "state=x"))
    assert wrong_state.status_code == 502
    await other.close()


async def test_rules_of_roles_that_name_no_role_are_an_error() -> None:
    with pytest.raises(SettingsError, match="platform=owner"):
        RoleRules.parse(["platform=admin"], None)
    assert RoleRules.parse(["cn=a,ou=b=owner"], None).by_group == {"cn=a,ou=b": Role.OWNER}
