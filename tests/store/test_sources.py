"""Sources in the database: a source is there whole or not at all, and stays while something may need it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from windlass.kickoffs.ids import new_id
from windlass.projects.snapshot import Snapshot
from windlass.store.sources import CHUNK, NoSuchSource, SourceStore

if TYPE_CHECKING:
    from pathlib import Path

    from store.kickoff_rows import Rows

LONG_AGO = timedelta(days=-1)
"""As `after`, it makes all sources old."""


@pytest.fixture
def sources(rows: Rows) -> SourceStore:
    return SourceStore(rows.database)


class Broken(io.BytesIO):
    """A file that can't be read to its end."""

    def open(self, _: str) -> Broken:
        return self

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 0:
            raise OSError("the disk is broken")
        return bytes(self.write(b"x") for _ in range(CHUNK))


def a_snapshot(folder: Path, size: int = 2 * CHUNK + 7) -> Snapshot:
    content = os.urandom(size)
    file = folder / f"{new_id()}.zip"
    file.write_bytes(content)
    return Snapshot(file, hashlib.sha256(content).hexdigest(), size, 3)


async def read(sources: SourceStore, digest: str) -> bytes:
    return b"".join([chunk async for chunk in sources.read(digest)])


async def contents(rows: Rows) -> int:
    (row,) = await rows.database.rows("SELECT count(DISTINCT content) FROM source_chunks")
    return int(row["count"])


async def use_in_build(rows: Rows, digest: str, state: str) -> None:
    await rows.database.execute(
        "INSERT INTO builds (id, deployment_id, origin, snapshot, state) "
        "VALUES (%(id)s, %(deployment)s, '{}', %(digest)s, %(state)s)",
        {"id": new_id(), "deployment": rows.deployment.id, "digest": digest, "state": state},
    )


@pytest.mark.parametrize("size", [1, CHUNK, 2 * CHUNK + 7])
async def test_a_source_is_read_as_it_was_added(sources: SourceStore, tmp_path: Path, size: int) -> None:
    snapshot = a_snapshot(tmp_path, size)
    assert not await sources.has(snapshot.digest)
    for _ in range(2):
        await sources.add(snapshot)
        assert await sources.has(snapshot.digest)
    chunks = [chunk async for chunk in sources.read(snapshot.digest)]
    assert b"".join(chunks) == snapshot.file.read_bytes()
    assert max(map(len, chunks)) <= CHUNK


async def test_an_addition_that_is_interrupted_leaves_nothing(rows: Rows, sources: SourceStore, tmp_path: Path) -> None:
    snapshot = a_snapshot(tmp_path)

    with pytest.raises(OSError, match="the disk is broken"):
        await sources.add(replace(snapshot, file=cast("Path", Broken())))
    assert not await sources.has(snapshot.digest)
    with pytest.raises(NoSuchSource, match=r"is not stored\. Deploy the project again"):
        await read(sources, snapshot.digest)
    assert await contents(rows) == 0


async def test_several_servers_add_the_same_source_at_once(rows: Rows, sources: SourceStore, tmp_path: Path) -> None:
    """Their zips differ, as those of different releases of zlib do, and a reader gets one of them whole."""
    snapshots = [a_snapshot(tmp_path) for _ in range(4)]
    digest = snapshots[0].digest
    await asyncio.gather(*(sources.add(Snapshot(one.file, digest, one.size, one.files)) for one in snapshots))
    assert await read(sources, digest) in [one.file.read_bytes() for one in snapshots]
    assert await contents(rows) >= 1
    await use_in_build(rows, digest, "queued")
    await sources.remove_unused(after=LONG_AGO)
    assert await contents(rows) == 1
    assert await read(sources, digest) in [one.file.read_bytes() for one in snapshots]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE source_chunks SET bytes = set_byte(bytes, 3, get_byte(bytes, 3) # 1) WHERE position = 1",
        "UPDATE source_chunks SET bytes = ''::bytea WHERE position = 2",
        "DELETE FROM source_chunks WHERE position = 1",
    ],
)
async def test_a_damaged_source_is_refused_and_stored_again(
    rows: Rows, sources: SourceStore, tmp_path: Path, damage: str
) -> None:
    snapshot = a_snapshot(tmp_path)
    await sources.add(snapshot)
    await rows.database.execute(damage)
    with pytest.raises(NoSuchSource, match=f"{snapshot.digest} is damaged in the database, in part"):
        await read(sources, snapshot.digest)
    assert not await sources.has(snapshot.digest)
    await sources.add(snapshot)
    assert await read(sources, snapshot.digest) == snapshot.file.read_bytes()


async def test_sources_of_open_builds_and_of_versions_stay(rows: Rows, sources: SourceStore, tmp_path: Path) -> None:
    used = {state: a_snapshot(tmp_path, 10) for state in ("queued", "building", "version")}
    unused = {state: a_snapshot(tmp_path, 10) for state in ("failed", "superseded", "none")}
    for snapshot in (*used.values(), *unused.values()):
        await sources.add(snapshot)
    for state, snapshot in (used | unused).items():
        if state not in {"version", "none"}:
            await use_in_build(rows, snapshot.digest, state)
    await rows.database.execute("UPDATE versions SET snapshot = %(digest)s", {"digest": used["version"].digest})
    assert await sources.remove_unused() == 0, "all of them are new"
    assert await sources.remove_unused(after=LONG_AGO) == 3
    assert [await sources.has(one.digest) for one in used.values()] == [True] * 3
    assert [await sources.has(one.digest) for one in unused.values()] == [False] * 3
    assert await contents(rows) == 3


async def test_an_unused_source_that_is_asked_for_stays_for_another_day(
    rows: Rows, sources: SourceStore, tmp_path: Path
) -> None:
    snapshots = [a_snapshot(tmp_path, 10) for _ in range(3)]
    for snapshot in snapshots:
        await sources.add(snapshot)
    await rows.database.execute("UPDATE sources SET used_at = now() - interval '2 days'")
    asked, added, unused = snapshots
    assert await sources.has(asked.digest)
    await sources.add(added)
    assert await sources.remove_unused() == 1
    assert not await sources.has(unused.digest)


async def test_chunks_of_an_addition_that_goes_on_stay(rows: Rows, sources: SourceStore) -> None:
    await rows.database.execute(
        "INSERT INTO source_chunks VALUES (%(content)s, 0, ''::bytea, 'x'::bytea)", {"content": new_id()}
    )
    await sources.remove_unused()
    assert await contents(rows) == 1
