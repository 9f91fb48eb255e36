"""Checkouts on a machine: fetched once, whole, and made again when they are damaged."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from faults.small_disk import needed_small_disk
from projects_for_tests.making import written
from windlass.deployments import checkouts as module
from windlass.deployments.checkouts import Checkouts
from windlass.errors import ProjectError
from windlass.projects.snapshot import Snapshot, digest_of, pack
from windlass.store.sources import NoSuchSource, SourceStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from store.kickoff_rows import Rows

FILES = {"work.py": "def run():\n    return 1\n", "data/towns.csv": "a,b\n"}


class Counted(SourceStore):
    reads = 0

    async def read(self, digest: str) -> AsyncIterator[bytes]:
        self.reads += 1
        async for chunk in super().read(digest):
            yield chunk


@pytest.fixture
def sources(rows: Rows) -> Counted:
    return Counted(rows.database)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "sources"
    shutil.rmtree(tmp_path / "sources", ignore_errors=True)


@pytest.fixture
def checkouts(sources: Counted, folder: Path) -> Checkouts:
    return Checkouts(sources, folder)


@pytest.fixture
async def snapshot(sources: Counted, tmp_path: Path) -> Snapshot:
    packed = pack(written(tmp_path / "project", FILES), tmp_path / "packed.zip")
    await sources.add(packed)
    return packed


def content(place: Path) -> dict[str, str]:
    return {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*") if path.is_file()}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def left(snapshot: Snapshot) -> set[str]:
    return {snapshot.digest, f"{snapshot.digest}.lock"}


async def test_a_source_is_fetched_once_for_all_callers(
    checkouts: Checkouts, sources: Counted, snapshot: Snapshot, folder: Path
) -> None:
    other = Checkouts(sources, folder)
    places = await asyncio.gather(*(one.get(snapshot.digest) for one in [checkouts, other] * 10))
    assert set(places) == {folder / snapshot.digest}
    assert (content(places[0]), sources.reads) == (FILES, 1)
    assert names(folder) == left(snapshot)


async def test_an_unknown_source_and_a_name_that_is_no_digest(checkouts: Checkouts, folder: Path) -> None:
    with pytest.raises(NoSuchSource, match="Deploy the project again"):
        await checkouts.get("0" * 64)
    with pytest.raises(ProjectError, match="no digest"):
        await checkouts.get("../" + "0" * 61)
    assert names(folder) == {f"{'0' * 64}.lock"}


async def test_a_source_that_is_not_what_its_digest_names(
    rows: Rows, checkouts: Checkouts, sources: Counted, snapshot: Snapshot, tmp_path: Path, folder: Path
) -> None:
    """Whoever can write to the database can't replace the code of a version."""
    evil = pack(written(tmp_path / "evil", {"work.py": "import os"}), tmp_path / "evil.zip")
    await sources.add(evil)
    (row,) = await rows.database.rows(
        "DELETE FROM sources WHERE digest = %(evil)s RETURNING content, size", {"evil": evil.digest}
    )
    await rows.database.execute(
        "UPDATE sources SET content = %(content)s, size = %(size)s WHERE digest = %(digest)s",
        {**row, "digest": snapshot.digest},
    )
    with pytest.raises(ProjectError, match=f"{snapshot.digest} is damaged: its files have the digest {evil.digest}"):
        await checkouts.get(snapshot.digest)
    assert names(folder) == {f"{snapshot.digest}.lock"}


async def test_a_corrupted_chunk_is_refused(
    rows: Rows, checkouts: Checkouts, snapshot: Snapshot, folder: Path, sources: Counted
) -> None:
    await rows.database.execute("UPDATE source_chunks SET bytes = set_byte(bytes, 40, get_byte(bytes, 40) # 255)")
    with pytest.raises(NoSuchSource, match=r"damaged in the database, in part 1. Deploy the same files again"):
        await checkouts.get(snapshot.digest)
    assert names(folder) == {f"{snapshot.digest}.lock"}
    await sources.add(snapshot)
    assert content(await checkouts.get(snapshot.digest)) == FILES


@pytest.mark.parametrize("damage", ["changed", "added", "removed", "emptied"])
async def test_a_checkout_that_was_changed_is_made_again_by_the_next_process(
    checkouts: Checkouts, sources: Counted, snapshot: Snapshot, folder: Path, damage: str
) -> None:
    place = await checkouts.get(snapshot.digest)
    file = place / "data" / "towns.csv"
    for one in (place / "data", file):
        one.chmod(0o755)
    match damage:
        case "changed":
            file.write_text("c,d\n")
        case "added":
            (place / "data" / "sitecustomize.py").write_text("import os")
        case "removed":
            file.unlink()
        case _:
            file.write_text("")  # as after a power cut
    assert content(await Checkouts(sources, folder).get(snapshot.digest)) == FILES
    assert sources.reads == 2
    assert digest_of(place) == snapshot.digest


async def test_byte_code_in_a_checkout_is_no_damage(
    checkouts: Checkouts, sources: Counted, snapshot: Snapshot, folder: Path
) -> None:
    place = await checkouts.get(snapshot.digest)
    place.chmod(0o755)
    written(place, {"__pycache__/work.cpython-311.pyc": ""})
    await Checkouts(sources, folder).get(snapshot.digest)
    assert sources.reads == 1


async def test_parts_of_a_killed_process_are_removed(checkouts: Checkouts, snapshot: Snapshot, folder: Path) -> None:
    written(folder, {f"{snapshot.digest}.zip": "half", f"{snapshot.digest}.new/half.py": ""})
    assert content(await checkouts.get(snapshot.digest)) == FILES
    assert names(folder) == left(snapshot)


async def test_another_process_that_makes_it_is_waited_for(
    checkouts: Checkouts, snapshot: Snapshot, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, {f"{snapshot.digest}.lock": ""})
    with (folder / f"{snapshot.digest}.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with monkeypatch.context() as patch:
            patch.setattr(module, "LONGEST_WAIT", 0)
            with pytest.raises(ProjectError, match="Another process has fetched the source"):
                await checkouts.get(snapshot.digest)
        getting = asyncio.create_task(checkouts.get(snapshot.digest))
        assert not (await asyncio.wait({getting}, timeout=0.1))[0]
    assert content(await getting) == FILES


async def test_a_full_disk_is_an_error_in_words_and_leaves_nothing_half(sources: Counted, tmp_path: Path) -> None:
    project = tmp_path / "large"
    project.mkdir()
    (project / "data.bin").write_bytes(os.urandom(3 << 20))
    snapshot = pack(project, tmp_path / "large.zip")
    await sources.add(snapshot)
    for megabytes in (2, 5):  # too small for the zip, and for its files
        with needed_small_disk(tmp_path / f"small{megabytes}", megabytes):
            folder = tmp_path / f"small{megabytes}" / "sources"
            with pytest.raises(ProjectError, match=r"can't be written.*No space left on device.*Free space on"):
                await Checkouts(sources, folder).get(snapshot.digest)
            assert names(folder) == {f"{snapshot.digest}.lock"}


async def test_unused_checkouts_are_removed_and_used_ones_are_not(
    checkouts: Checkouts, sources: Counted, snapshot: Snapshot, tmp_path: Path, folder: Path
) -> None:
    other = pack(written(tmp_path / "other", {"work.py": ""}), tmp_path / "other.zip")
    await sources.add(other)
    for one in (snapshot, other):
        await checkouts.get(one.digest)
    assert await checkouts.remove_unused(()) == 0, "they were got just now"
    assert await checkouts.remove_unused({other.digest}, after=0) == 1
    assert names(folder) == left(other)
    with (folder / f"{other.digest}.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert await checkouts.remove_unused((), after=0) == 0
    assert content(await checkouts.get(snapshot.digest)) == FILES
    assert sources.reads == 3


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs root, for another user")
async def test_another_user_can_read_a_checkout_and_change_nothing_and_find_no_other(
    sources: Counted, snapshot: Snapshot, open_folder: Path
) -> None:
    place = await Checkouts(sources, open_folder / "sources").get(snapshot.digest)
    code = "import os, sys; os.setgid(59990); os.setuid(59990); print(open(sys.argv[1]).read(), end='')\n"
    code += "for mode in ('a', 'w'):\n  try: open(sys.argv[1], mode)\n  except PermissionError: print('closed')\n"
    code += "try: os.rename(sys.argv[1], sys.argv[1] + 'x')\nexcept PermissionError: print('closed')\n"
    code += "try: os.listdir(sys.argv[2])\nexcept PermissionError: print('closed')"
    order = [sys.executable, "-I", "-c", code, str(place / "data" / "towns.csv"), str(place.parent)]
    process = await asyncio.create_subprocess_exec(*order, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert printed == b"a,b\nclosed\nclosed\nclosed\nclosed\n"
