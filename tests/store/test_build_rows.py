"""Builds as rows: who builds, who comes too late, and what becomes the current version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from store.kickoff_rows import TASKS, Rows, manifest
from windlass.deployments.builds import Builds
from windlass.store.builds import BuildStore, BuildTurn, NewLine, NewVersion
from windlass.store.deployments import DeploymentStore
from windlass.store.listener import Listener
from windlass.store.side_jobs import NotYet

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.kickoffs.manifest import Manifest

SNAPSHOT = "5" * 64


class World:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.store = BuildStore(rows.database)
        self.deployments = DeploymentStore(rows.database)

    async def start(self) -> UUID:
        await self.rows.database.execute(
            "INSERT INTO sources (digest, content, size, files) VALUES (%(digest)s, gen_random_uuid(), 1, 1) "
            "ON CONFLICT DO NOTHING",
            {"digest": SNAPSHOT},
        )
        return await self.store.start(self.rows.deployment.id, {"type": "folder"}, SNAPSHOT, None)

    async def begun(self, build: UUID) -> BuildTurn:
        turn = await self.store.begin(build)
        assert turn is not None
        return turn

    async def publish(self, turn: BuildTurn, found: Manifest | None = None, **options: Any) -> int | None:
        source = {"kind": "function", "snapshot": SNAPSHOT, "environment": None, "root": "", "options": options}
        new = NewVersion(SNAPSHOT, source, found or manifest())
        return await self.store.publish(
            turn, new, lambda before, after: {"tasks": len(after.tasks) - len(before.tasks)}
        )

    async def current(self) -> int:
        found = await self.deployments.get(self.rows.deployment.slug)
        assert found is not None
        assert found.version is not None
        return found.version.number


@pytest.fixture
def world(rows: Rows) -> World:
    return World(rows)


async def test_a_build_becomes_the_current_version_with_its_changes(world: World) -> None:
    build = await world.start()
    turn = await world.begun(build)
    assert (turn.attempt, turn.slug, turn.snapshot, turn.lines, turn.variables) == (1, "work", SNAPSHOT, 0, ())
    assert await world.publish(turn, manifest(TASKS[:1]), concurrency=3) == 2
    found = await world.store.get(build)
    assert found is not None
    assert (found.state, found.version, found.changes, found.has_ended) == ("ready", 2, {"tasks": -1}, True)
    assert await world.current() == 2
    (row,) = await world.rows.database.rows("SELECT concurrency FROM deployments")
    assert row["concurrency"] == 3


async def test_settings_of_the_deployment_replace_the_options_of_the_project(world: World) -> None:
    await world.rows.database.execute("""UPDATE deployments SET settings = '{"concurrency": 7, "weight": null}'""")
    await world.publish(await world.begun(await world.start()), concurrency=3, weight=2)
    (row,) = await world.rows.database.rows("SELECT concurrency, weight FROM deployments")
    assert row == {"concurrency": 7, "weight": 2}


async def test_a_build_that_was_taken_over_writes_nothing_more(world: World) -> None:
    build = await world.start()
    lost = await world.begun(build)
    line = NewLine(1.0, "info", "a line")
    assert await world.store.add_lines(lost, 0, [line])
    turn = await world.begun(build)
    assert (turn.attempt, turn.lines) == (2, 1)
    assert not await world.store.add_lines(lost, 1, [line])
    assert not await world.store.fail(lost, "lost", "")
    assert await world.publish(lost) is None
    assert await world.publish(turn) == 2
    assert await world.store.begin(build) is None, "it has ended"


async def test_a_build_is_skipped_when_a_newer_one_was_queued_before_it_began(world: World) -> None:
    older, newer = await world.start(), await world.start()
    assert await world.store.begin(older) is None
    assert await world.publish(await world.begun(newer)) == 2
    found = await world.store.of_deployment(world.rows.deployment.id, limit=10)
    assert [(one.id, one.state, one.started_at is None) for one in found] == [
        (newer, "ready", False),
        (older, "superseded", True),
    ]
    assert [one.id for one in await world.store.of_deployment(world.rows.deployment.id, limit=1, before=newer)] == [
        older
    ]


async def test_the_version_of_an_older_build_does_not_replace_that_of_a_newer_one(world: World) -> None:
    """The older build's worker was lost and comes back."""
    older = await world.begun(await world.start())
    await world.rows.database.execute("UPDATE procrastinate_jobs SET status = 'failed'")
    newer = await world.begun(await world.start())
    assert await world.publish(newer) == 2
    assert await world.publish(older) == 3
    assert await world.current() == 2


async def test_a_build_of_a_removed_deployment_makes_no_version(world: World) -> None:
    turn = await world.begun(await world.start())
    await world.rows.database.execute("UPDATE deployments SET removed_at = now()")
    assert await world.publish(turn) is None


async def test_a_build_does_not_begin_while_an_older_one_of_its_deployment_runs(world: World) -> None:
    older = await world.begun(await world.start())
    newer = await world.start()
    with pytest.raises(NotYet):
        await world.store.begin(newer)
    await world.publish(older)
    await world.rows.database.execute("UPDATE procrastinate_jobs SET status = 'succeeded' WHERE id = 1")
    await world.begun(newer)


async def test_a_build_in_a_transaction_that_is_rolled_back_never_was(world: World) -> None:
    async def start_and_fail() -> None:
        async with world.rows.database.transaction() as connection:
            await world.store.start(world.rows.deployment.id, {"type": "folder"}, None, None, connection)
            raise LookupError

    with pytest.raises(LookupError):
        await start_and_fail()
    assert await world.store.of_deployment(world.rows.deployment.id, limit=10) == []
    assert await world.rows.database.rows("SELECT id FROM procrastinate_jobs") == []


async def test_a_reader_of_the_log_waits_for_lines_and_for_the_end(world: World) -> None:
    listener = Listener(world.rows.database.url)
    builds = Builds(world.store, listener)
    await listener.start()
    try:
        await asyncio.wait_for(listener.listening.wait(), 60)
        build = await world.start()
        turn = await world.begun(build)
        reading = asyncio.create_task(builds.log(build, wait=20))
        await world.store.add_lines(turn, 0, [NewLine(1.0, "info", "one\x00"), NewLine(2.0, "error", "two")])
        page = await asyncio.wait_for(reading, 60)
        assert page is not None
        assert [(line.seq, line.message) for line in page.lines] == [(1, "one\N{REPLACEMENT CHARACTER}"), (2, "two")]
        assert (page.next_after, page.build.state) == (2, "building")
        ending = asyncio.create_task(builds.log(build, after=2, wait=20))
        await world.store.fail(turn, "it can't be built", "correct it")
        last = await asyncio.wait_for(ending, 60)
        assert last is not None
        assert (list(last.lines), last.next_after, last.build.error) == ([], 2, "it can't be built")
        assert await builds.log(world.rows.deployment.id) is None
    finally:
        await listener.stop()
