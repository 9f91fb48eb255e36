"""Each deployment has a user of its own, the same on all servers, and gives it back when it is removed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from windlass.errors import SettingsError
from windlass.store.crew_users import CrewUsers
from windlass.store.managing import ManagingStore

if TYPE_CHECKING:
    from uuid import UUID

    from store.kickoff_rows import Rows

NUMBERS = [60_000, 60_001]


def users(rows: Rows) -> CrewUsers:
    """Those of one more server."""
    return CrewUsers(rows.database, NUMBERS)


async def remove(rows: Rows, deployment: UUID) -> None:
    await rows.database.execute("UPDATE deployments SET removed_at = now() WHERE id = %(id)s", {"id": deployment})
    await ManagingStore(rows.database).delete_rows(deployment)


async def test_each_deployment_has_one_the_same_on_all_servers(rows: Rows) -> None:
    other = await rows.beside("other")
    first, second = rows.deployment.id, other.deployment.id
    servers = [users(rows) for _ in range(8)]
    found = await asyncio.gather(*(server.of(one) for server in servers for one in (first, second)))
    assert set(found[::2]) | set(found[1::2]) == set(NUMBERS)
    assert len(set(found[::2])) == len(set(found[1::2])) == 1
    assert await servers[0].of(first) == found[0]


async def test_without_numbers_there_is_none(rows: Rows) -> None:
    assert await CrewUsers(rows.database, []).of(rows.deployment.id) is None


async def test_a_number_of_a_removed_deployment_is_given_again_when_no_new_one_is_left(rows: Rows) -> None:
    gone, kept, third, fourth = [
        (await rows.beside(slug)).deployment.id for slug in ("gone", "kept", "third", "fourth")
    ]
    assert await users(rows).of(gone) == NUMBERS[0]
    await remove(rows, gone)
    assert await users(rows).of(kept) == NUMBERS[1], "one that nobody had before comes first"
    assert await users(rows).of(third) == NUMBERS[0]
    with pytest.raises(SettingsError, match="all 2 users of WINDLASS_CREW_USERS belong to deployments"):
        await users(rows).of(fourth)
    await remove(rows, third)
    assert await users(rows).of(fourth) == NUMBERS[0]


async def test_a_number_that_another_server_has_given_outside_of_the_range_is_kept(rows: Rows) -> None:
    assert await CrewUsers(rows.database, [70_000]).of(rows.deployment.id) == 70_000
    assert await users(rows).of(rows.deployment.id) == 70_000
