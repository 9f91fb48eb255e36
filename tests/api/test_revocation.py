"""Two servers on one database: what one revokes, the other no longer takes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from api.serving import Crew, Server, serving, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="session")

END_LISTENERS = """
SELECT pg_terminate_backend(pid)
  FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'windlass listener'
"""


@asynccontextmanager
async def two(crew: Crew) -> AsyncIterator[tuple[Crew, Crew]]:
    async with serving(crew.server.database.url) as other:
        yield crew, crew.at(other)


async def known_to(crew: Crew, token: str) -> None:
    """It was used before, so that its row is remembered."""
    for _ in range(2):
        assert (await crew.get("/inputs", token=token)).status_code == 200


async def is_refused(crew: Crew, token: str) -> bool:
    return (await crew.get("/inputs", token=token)).status_code == 401


async def revoke(server: Server, token: str) -> None:
    await server.tokens.revoke(token[-4:])


async def test_a_revoked_token_ends_at_once_on_every_server(crew: Crew) -> None:
    token = await crew.organization_token()
    async with two(crew) as (here, there):
        await known_to(here, token)
        await known_to(there, token)
        await revoke(here.server, token)
        assert await is_refused(there, token)
        assert await is_refused(here, token)


async def test_a_rotated_token_ends_at_once_and_the_new_one_opens(crew: Crew) -> None:
    async with two(crew) as (here, there):
        await known_to(there, crew.token)
        new = await here.server.tokens.rotate(crew.token[-4:])
        assert await is_refused(there, crew.token)
        assert (await there.get("/inputs", token=new.reveal())).status_code == 200


async def test_a_token_that_is_revoked_while_nobody_listens_ends_at_once_all_the_same(crew: Crew) -> None:
    token = await crew.organization_token()
    async with two(crew) as (here, there):
        await known_to(there, token)
        await here.server.database.execute(END_LISTENERS)
        await revoke(here.server, token)
        await until(partial(is_refused, there, token), "the revoked token is refused")
        assert await is_refused(there, token)


async def test_a_token_that_is_looked_up_while_nobody_listens_is_not_remembered(crew: Crew) -> None:
    token = await crew.organization_token()
    async with two(crew) as (here, there):
        await there.server.listener.stop()
        await known_to(there, token)
        await revoke(here.server, token)
        assert (await there.get("/inputs", token=token)).status_code == 401


async def test_a_listener_whose_connection_was_ended_hears_again(crew: Crew) -> None:
    token = await crew.organization_token()
    async with two(crew) as (here, there):
        await here.server.database.execute(END_LISTENERS)
        await known_to(there, token)

        async def again(server: Server = there.server) -> bool:
            return server.listener.listening.is_set()

        await until(again, "the listener is connected again")
        await known_to(there, token)
        await revoke(here.server, token)
        assert await is_refused(there, token)
