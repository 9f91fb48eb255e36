from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lifecycle.waiting import until
from windlass.access.authentication import Source, TokenAuthenticator, TokenEnded
from windlass.aio import serving
from windlass.deployments.crews import Crews
from windlass.secrets.secret import TokenKind, last_four, new_token
from windlass.store.deployments import DeploymentStore
from windlass.store.listener import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lifecycle.token_bench import TokenBench
    from windlass.secrets.secret import Secret

HERE = Source("127.0.0.1", limited=False)


@pytest.fixture
async def listener(emptied_url: str) -> AsyncIterator[Listener]:
    listener = Listener(emptied_url)
    async with serving(listener):
        await asyncio.wait_for(listener.listening.wait(), 60)
        yield listener


@pytest.fixture
def access(bench: TokenBench, listener: Listener) -> TokenAuthenticator:
    return TokenAuthenticator(bench.tokens, bench.store, listener)


def header(token: Secret) -> str:
    return f"Bearer {token.reveal()}"


async def refused(access: TokenAuthenticator, token: Secret) -> bool:
    try:
        return await access.token(header(token), HERE) is None
    except TokenEnded:
        return True


async def test_a_token_opens(access: TokenAuthenticator, bench: TokenBench) -> None:
    token = await bench.tokens.create(bench.deployment.id)
    found = await access.token(header(token), HERE)
    assert found is not None
    assert found.deployment_id == bench.deployment.id
    assert access.use._used == {found.id}


async def test_what_is_no_token_opens_nothing(access: TokenAuthenticator) -> None:
    stranger = new_token(TokenKind.ORGANIZATION)
    for text in (None, "", "Bearer", "Bearer x", "Basic eA==", stranger.reveal(), header(stranger)):
        assert await access.token(text, HERE) is None
    assert access.use._used == set()


async def test_a_revoked_token_opens_nothing_any_more(access: TokenAuthenticator, bench: TokenBench) -> None:
    token = await bench.tokens.create(None)
    assert await access.token(header(token), HERE) is not None
    await bench.tokens.revoke(last_four(token.reveal()))
    assert await refused(access, token)


async def test_a_rotated_token_gives_way_to_the_new_one(access: TokenAuthenticator, bench: TokenBench) -> None:
    old = await bench.tokens.create(None)
    assert await access.token(header(old), HERE) is not None
    new = await bench.tokens.rotate(last_four(old.reveal()))
    assert await access.token(header(new), HERE) is not None
    assert await refused(access, old)


async def test_a_token_that_expires_while_it_is_known_opens_nothing_any_more(
    access: TokenAuthenticator, bench: TokenBench
) -> None:
    for seconds in (0.3, 3, 30):  # the machine may be too busy for the shorter ones
        token = await bench.tokens.create(None, expires_at=datetime.now(UTC) + timedelta(seconds=seconds))
        if known := await access.token(header(token), HERE):
            break
    assert known is not None
    await until(lambda: refused(access, token))


async def test_a_crew_is_known_with_its_check(bench: TokenBench, listener: Listener) -> None:
    crews = Crews(DeploymentStore(bench.database), listener)
    crew = await crews.get("work")
    assert crew is not None
    assert bench.deployment.version is not None
    assert (crew.deployment_id, crew.version_id) == (bench.deployment.id, bench.deployment.version.id)
    assert crew.check({"any": "thing"}) is None
    assert await crews.manifest(crew.version_id) == crew.manifest
    assert await crews.get("nobody") is None


async def test_a_new_version_is_known_at_once(bench: TokenBench, listener: Listener) -> None:
    store = DeploymentStore(bench.database)
    crews = Crews(store, listener)
    crew = await crews.get("work")
    assert crew is not None
    newer = await store.register("work", digest="newer", source={"kind": "function"}, manifest=crew.manifest)
    found = await crews.get("work")
    assert newer.version is not None
    assert found is not None
    assert found.version_id == newer.version.id


async def test_another_profile_is_known_at_once(bench: TokenBench, listener: Listener) -> None:
    store = DeploymentStore(bench.database)
    crews = Crews(store, listener)
    crew = await crews.get("work")
    assert crew is not None
    await store.register("work", digest="d", source={"options": {"profile": "live"}}, manifest=crew.manifest)
    found = await crews.get("work")
    assert found is not None
    assert found.profile == "live"
