from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.kickoffs.ids import new_id
from windlass.kickoffs.manifest import Manifest
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore, NewKickoff

if TYPE_CHECKING:
    from cli.the_command import Command
    from windlass.store.database import Database


@pytest.fixture
def windlass(windlass: Command, database: Database) -> Command:
    windlass.environment["WINDLASS_DATABASE_URL"] = database.url
    return windlass


async def serve(database: Database, slug: str, kickoffs: int = 0) -> None:
    manifest = Manifest("function", slug, {"type": "object"}, ())
    found = await DeploymentStore(database).register(slug, digest="1", source={}, manifest=manifest)
    assert found.version is not None
    for _ in range(kickoffs):
        await KickoffStore(database).accept([NewKickoff(new_id(), found.id, found.version.id, None, "{}")])


def rows(windlass: Command) -> list[list[str]]:
    """Of the list, without the time of the last kickoff."""
    ended = windlass("deployments", "list")
    assert (ended.code, ended.err) == (0, "")
    return [line.split()[:6] for line in ended.out.splitlines()]


async def test_the_crews_are_listed_with_what_runs_and_waits(windlass: Command, database: Database) -> None:
    await serve(database, "tea", kickoffs=2)
    await serve(database, "coffee")
    await KickoffStore(database).claim(new_id(), 1, 60.0)
    limited = "UPDATE deployments SET concurrency = 3, weight = 0.5 WHERE slug = 'coffee'"
    await database.execute(limited)
    assert rows(windlass) == [
        ["CREW", "STATE", "RUNNING", "WAITING", "CAP", "WEIGHT"],
        ["coffee", "active", "0", "0", "3", "0.5"],
        ["tea", "active", "1", "1", "-", "1"],
    ]
    last = [line.split()[6:] for line in windlass("deployments", "list").out.splitlines()[1:]]
    assert last[0] == ["-"]
    assert last[1][0].startswith("20")


async def test_a_crew_is_paused_and_resumed_as_often_as_one_likes(windlass: Command, database: Database) -> None:
    await serve(database, "tea")
    for _ in range(2):
        paused = windlass("deployments", "pause", "tea")
        assert (paused.code, paused.out) == (0, "")
        assert "windlass deployments resume tea" in paused.err
        assert rows(windlass)[1][:2] == ["tea", "paused"]
    for _ in range(2):
        resumed = windlass("deployments", "resume", "tea")
        assert (resumed.code, resumed.err) == (0, "The crew tea is resumed.\n")
        assert rows(windlass)[1][:2] == ["tea", "active"]


@pytest.mark.parametrize("name", ["pause", "resume"])
async def test_an_unknown_crew_is_told_with_those_that_there_are(
    windlass: Command, database: Database, name: str
) -> None:
    await serve(database, "tea")
    ended = windlass("deployments", name, "cocoa")
    assert (ended.code, ended.err) == (1, "error: There is no crew 'cocoa'.\nThe crews of this server are: tea.\n")


def test_without_a_crew_the_way_to_one_is_told(windlass: Command) -> None:
    ended = windlass("deployments", "list")
    assert (ended.code, ended.out) == (0, "")
    assert "windlass dev PATH" in ended.err
