"""The tokens of a person who signs in with OpenID Connect do not outlive the account at the provider."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from api.control import Person
from api.serving import until
from dashboard.people import PASSWORD, Visitor, link
from windlass.access.openid import Identity, RoleRules
from windlass.access.sessions import Client
from windlass.access.tokens import TokenTooLong
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

ISSUER = "https://login.example.com"
NOBODY = Client(None, None)
_numbers = itertools.count(1)


def identity() -> Identity:
    number = next(_numbers)
    return Identity(ISSUER, f"subject {number}", f"provider{number}@example.com", frozenset())


async def sign_in(server: Server, who: Identity) -> str:
    """Signs the person in as the provider's answer does. Returns the cookie."""
    return await server.dashboard.sessions.by_identity(who, RoleRules({}, Role.DEVELOPER), NOBODY)


async def signed_in_before(server: Server, who: Identity, days: float) -> None:
    """Moves the last sign-in of the person back, as days do that go by."""
    await server.database.execute(
        "UPDATE sign_in_identities SET signed_in_at = now() - %(ago)s WHERE subject = %(subject)s",
        {"ago": timedelta(days=days), "subject": who.subject},
    )
    await server.database.rows("SELECT pg_notify('windlass_tokens', '')")


async def person_of(server: Server, who: Identity, **more: Any) -> Person:
    _, token = await server.tokens.create_personal(who.name, "laptop", **more)
    return Person(server, who.name, token.reveal())


async def status_comes(person: Person, status: int) -> dict[str, Any]:
    async def is_so() -> bool:
        return (await person.get("/me")).status_code == status

    await until(is_so, f"/me answers {status}")
    found: dict[str, Any] = (await person.get("/me")).json()
    return found


async def test_their_tokens_always_expire(server: Server) -> None:
    who, now = identity(), datetime.now(UTC)
    await sign_in(server, who)
    row, _ = await server.tokens.create_personal(who.name, "usual")
    assert row.expires_at is not None
    assert timedelta(days=89) < row.expires_at - now < timedelta(days=91)
    with pytest.raises(TokenTooLong, match="365 days at most"):
        await server.tokens.create_personal(who.name, "long", expires_at=now + timedelta(days=366))
    anna = await person_of(server, who)
    refused = await anna.refused("POST", "/tokens", status=400, json={"name": "long", "expires_in_days": 400})
    assert "WINDLASS_SIGN_IN_TOKEN_MAX_DAYS" in refused["message"]
    made = await anna.value("POST", "/tokens", status=201, json={"name": "usual"})
    assert made["expires_at"] is not None
    password = await Person.of(server, Role.VIEWER, f"password {next(_numbers)}")
    assert (await password.value("GET", "/me"))["token"]["expires_at"] is None


async def test_a_token_from_before_the_first_sign_in_or_the_limit_expires_too(server: Server) -> None:
    who = identity()
    await server.tokens.add_user(who.name, Role.DEVELOPER)
    anna = await person_of(server, who)
    assert (await anna.value("GET", "/me"))["token"]["expires_at"] is None
    await sign_in(server, who)

    async def expires() -> bool:
        return (await anna.value("GET", "/me"))["token"]["expires_at"] is not None

    await until(expires, "the token has an end")  # other servers learn it by a notification
    own = (await anna.value("GET", "/me"))["token"]
    await server.database.execute(
        "UPDATE tokens SET created_at = now() - interval '366 days' WHERE id = %(id)s::uuid", {"id": own["id"]}
    )
    await server.database.rows("SELECT pg_notify('windlass_tokens', '')")
    refused = await status_comes(anna, 401)
    assert f"The token …{anna.token[-4:]} expired on" in refused["message"]
    assert "windlass tokens create" in refused["message"]


async def test_their_tokens_count_only_while_they_sign_in(crew: Crew, server: Server) -> None:
    who = identity()
    await sign_in(server, who)
    anna = await person_of(server, who)
    user = (await server.tokens.user(who.name)).id
    of_client = (await server.tokens.create(crew.deployment.id, user=user)).reveal()
    own = (await anna.value("GET", "/me"))["token"]
    assert timedelta(days=29) < datetime.fromisoformat(own["sign_in_until"]) - datetime.now(UTC) <= timedelta(days=30)
    assert (await crew.get("/inputs", token=of_client)).status_code == 200
    await signed_in_before(server, who, 31)
    refused = await status_comes(anna, 401)
    assert "needs a sign-in" in refused["message"]
    assert "Sign in to the dashboard" in refused["message"]
    for token in (anna.token, of_client):
        answer = await crew.get("/inputs", token=token)
        assert (answer.status_code, "needs a sign-in" in answer.json()["message"]) == (401, True)
        assert answer.headers["www-authenticate"] == "Bearer"
    listed = await server.tokens.all(user=user)
    assert all(row["sign_in_until"] <= datetime.now(UTC) for row in listed)
    await sign_in(server, who)
    assert (await status_comes(anna, 200))["token"]["id"] == own["id"]
    assert (await crew.get("/inputs", token=of_client)).status_code == 200


async def test_a_link_or_a_password_is_no_sign_in_with_the_provider(server: Server) -> None:
    who = identity()
    await sign_in(server, who)
    anna = await person_of(server, who)
    await server.dashboard.sessions.set_password(who.name, PASSWORD)
    await signed_in_before(server, who, 31)
    await status_comes(anna, 401)
    visitor = await Visitor.of(server)
    assert (await visitor.get(await link(server, who.name))).status_code == 303
    await server.dashboard.sessions.by_password(who.name, PASSWORD, NOBODY)
    await status_comes(anna, 401)
    await visitor.close()


async def test_a_sign_in_that_is_refused_does_not_count(server: Server) -> None:
    who = identity()
    await sign_in(server, who)
    await signed_in_before(server, who, 31)
    await server.tokens.set_role(who.name, None)
    with pytest.raises(Exception, match="disabled or has no role"):
        await sign_in(server, who)
    found = (await server.tokens.user(who.name)).signed_in_at
    assert found is not None
    assert found < datetime.now(UTC) - timedelta(days=30)


async def test_the_tokens_of_the_server_itself_and_of_others_go_on(crew: Crew, server: Server) -> None:
    """The shown tokens of each crew and that of commands are of the user `owner`, who may be such a person."""
    who = Identity(ISSUER, f"subject of owner {next(_numbers)}", "owner", frozenset())
    commands = Person(server, "owner", (await server.tokens.command_line_token()).reveal())
    await sign_in(server, who)
    await signed_in_before(server, who, 400)
    other = await Person.of(server, Role.VIEWER, f"password {next(_numbers)}")
    try:
        assert (await commands.value("GET", "/me"))["token"]["sign_in_until"] is None
        assert (await crew.get("/inputs", token=crew.user_token)).status_code == 200
        assert (await other.value("GET", "/me"))["token"]["sign_in_until"] is None
    finally:
        await server.database.execute(
            "DELETE FROM sign_in_identities WHERE subject = %(subject)s", {"subject": who.subject}
        )


async def test_their_page_offers_no_token_for_ever_and_shows_when_a_sign_in_is_needed(server: Server) -> None:
    who = identity()
    cookie = await sign_in(server, who)
    visitor = await Visitor.of(server)
    visitor.http.cookies.set(server.dashboard.sessions.cookie, cookie, path="/ui")
    form = (await visitor.get("/ui/tokens/personal")).text
    assert "90 days" in form
    assert "Never" not in form
    made = await visitor.post("/ui/tokens/personal", name="laptop", days="")
    assert "It expires" in made.text
    assert "needs a sign-in" in (await visitor.get("/ui/tokens")).text
    password = await Visitor.of(server, Role.DEVELOPER)
    assert "Never" in (await password.get("/ui/tokens/personal")).text
    await visitor.close()
    await password.close()
