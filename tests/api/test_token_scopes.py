"""What a token may do is what its scopes allow, at every operation of the OpenAPI document."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from api.serving import GOOD, serving
from windlass.errors import WindlassError
from windlass.rights import Scope

if TYPE_CHECKING:
    from collections.abc import Collection

    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

BODIES: dict[str, Any] = {"kickoff": {"inputs": GOOD}, "kickoffs": {"kickoffs": []}}


async def token_with(crew: Crew, scopes: Collection[Scope] | None, user: str | None = None) -> str:
    added = await crew.server.tokens.add_user(user) if user else None
    return (await crew.server.tokens.create(crew.deployment.id, user=added, scopes=scopes)).reveal()


async def answers(crew: Crew, token: str) -> dict[str, tuple[str | None, int, Any]]:
    """Operation -> the scope that the document names for it, the status of the answer, and `required_scope`."""
    found = {}
    for path, methods in crew.document["paths"].items():
        for method, operation in methods.items():
            kickoff = await crew.kickoff(token=crew.user_token)
            name = operation["operationId"]
            target = path.replace("{kickoff_id}", kickoff).replace("{path}", "report.md")
            answer = await crew.request(method.upper(), target, token=token, json=BODIES.get(name, {}))
            scopes = operation["security"][0]["bearer"]
            required = answer.json()["details"].get("required_scope") if answer.status_code == 403 else None
            found[name] = (scopes[0] if scopes else None, answer.status_code, required)
    return found


@pytest.mark.parametrize("scopes", [[Scope.READ], [Scope.RUN], [Scope.ADMIN], [Scope.READ, Scope.RUN], None])
async def test_an_organization_token_may_do_what_its_scopes_allow_and_nothing_else(
    crew: Crew, scopes: list[Scope] | None
) -> None:
    token = await token_with(crew, scopes)
    allowed = set(Scope) if scopes is None else set(scopes)
    for name, (needed, status, required) in (await answers(crew, token)).items():
        if needed is None or needed in allowed:
            assert status != 403, name
        else:
            assert (status, required) == (403, needed), name


async def test_a_read_only_user_token_may_do_nothing_but_read_its_own(crew: Crew) -> None:
    token = await token_with(crew, [Scope.READ], f"reader of {crew.path}")
    for name, (needed, status, required) in (await answers(crew, token)).items():
        if needed not in {None, Scope.READ}:
            assert (status, required) == (403, needed), name
        elif needed:
            assert status == (200 if name in {"inputs", "list_kickoffs", "stream_ticket"} else 404), name


async def test_a_user_token_has_no_operation_of_admins(crew: Crew) -> None:
    for name, (needed, status, required) in (await answers(crew, crew.user_token)).items():
        assert (status == 403) is (needed == Scope.ADMIN), name
        assert required in {None, Scope.ADMIN}


async def test_a_refusal_changes_nothing_and_names_the_command_that_helps(crew: Crew) -> None:
    kickoff, token = await crew.kickoff(), await token_with(crew, [Scope.READ])
    refused = await crew.request("POST", f"/stop/{kickoff}", token=token)
    assert refused.status_code == 403
    assert "windlass tokens create --scope run" in refused.json()["message"]
    assert (await crew.status(kickoff, token=token))["state"] == "PENDING"


async def test_a_stranger_is_refused_with_401_before_scopes_are_looked_at(crew: Crew) -> None:
    other = await crew.server.crew()
    token = await token_with(other, [Scope.READ])
    assert (await crew.post({"inputs": GOOD}, token=token)).status_code == 401


async def test_a_token_keeps_its_scopes_when_it_is_rotated(crew: Crew) -> None:
    old = await token_with(crew, [Scope.READ])
    new = (await crew.server.tokens.rotate(old[-4:])).reveal()
    assert (await crew.get("/inputs", token=new)).status_code == 200
    assert (await crew.post({"inputs": GOOD}, token=new)).status_code == 403


async def test_a_user_token_can_not_be_made_with_the_scope_admin(crew: Crew) -> None:
    with pytest.raises(WindlassError, match="can't have the scope admin"):
        await token_with(crew, [Scope.ADMIN], f"climber of {crew.path}")


async def test_the_tokens_of_a_disabled_user_are_refused_within_a_second_on_every_server(crew: Crew) -> None:
    name = f"leaver of {crew.path}"
    first, stranger = await crew.token_of(name), await crew.token_of(f"stayer of {crew.path}")
    user = await crew.server.tokens.enabled_user(name)
    second = (await crew.server.tokens.create(None, user=user)).reveal()
    async with serving(crew.server.database.url) as other:
        both = [crew, crew.at(other)]

        async def statuses() -> set[int]:
            """Of the user's tokens, on both servers."""
            found = [await at.get("/inputs", token=token) for at in both for token in (first, second)]
            return {answer.status_code for answer in found}

        kickoff = await crew.kickoff(token=first)
        assert await statuses() == {200}
        await crew.server.tokens.disable_user(name)
        assert await statuses() == {401}
        assert [(await at.get("/inputs", token=stranger)).status_code for at in both] == [200, 200]
        assert (await crew.status(kickoff))["state"] == "PENDING"
        await crew.server.tokens.enable_user(name)
        assert await statuses() == {200}


async def test_no_token_is_made_for_a_disabled_user(crew: Crew) -> None:
    name = f"gone of {crew.path}"
    await crew.server.tokens.add_user(name)
    await asyncio.gather(*(crew.server.tokens.disable_user(name) for _ in range(2)))
    with pytest.raises(WindlassError, match="is disabled"):
        await crew.server.tokens.enabled_user(name)
