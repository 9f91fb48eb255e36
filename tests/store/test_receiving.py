"""Uploads of clients and fetches from git: stored whole, or refused with nothing left of them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.small_disk import needed_small_disk
from lifecycle.waiting import until
from projects.archives import CREW, zipped
from projects.git_server import repository
from windlass.deployments import sources as module
from windlass.deployments.sources import Sources
from windlass.errors import ProjectError
from windlass.projects.snapshot import accept, pack
from windlass.projects.uv import Builder
from windlass.store.sources import SourceStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from store.kickoff_rows import Rows
    from windlass.projects.snapshot import Snapshot


@contextmanager
def builder() -> Iterator[Builder]:
    yield Builder(Path("/uv"), {"PATH": os.defpath}, lambda _: True)


def sources(rows: Rows, folder: Path) -> Sources:
    return Sources(SourceStore(rows.database), folder / "uploads", builder, allow_private=True)


async def sent(content: bytes, *, breaks: bool = False) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 1000):
        yield content[start : start + 1000]
    if breaks:
        raise ConnectionResetError("the client is gone")


async def stored(rows: Rows) -> list[str]:
    chunks = await rows.database.rows("SELECT DISTINCT content FROM source_chunks")
    found = await rows.database.rows("SELECT digest FROM sources ORDER BY digest")
    assert len(chunks) == len(found)
    return [row["digest"] for row in found]


async def test_an_upload_is_stored(rows: Rows, tmp_path: Path) -> None:
    packed = pack(zipped_project(tmp_path), tmp_path / "packed.zip")
    found = await sources(rows, tmp_path).receive(sent(packed.file.read_bytes()))
    assert (found.digest, found.files, found.size) == (packed.digest, packed.files, packed.size)
    assert await stored(rows) == [packed.digest]
    assert not list((tmp_path / "uploads").iterdir())


def zipped_project(folder: Path) -> Path:
    project = folder / "project"
    project.mkdir()
    (project / "work.py").write_bytes(CREW["work.py"].encode())
    (project / "data.bin").write_bytes(os.urandom(3 << 20))
    return project


async def test_two_uploads_are_unpacked_at_once(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, gate, begun, highest = threading.Lock(), threading.Event(), [0], [0]

    def held(file: Path, to: Path) -> Snapshot:
        with lock:
            begun[0] += 1
            highest[0] = max(highest[0], begun[0])
        assert gate.wait(60)
        try:
            return accept(file, to)
        finally:
            with lock:
                begun[0] -= 1

    monkeypatch.setattr(module, "accept", held)
    contents = [zipped(tmp_path / f"{n}.zip", {**CREW, "number": str(n)}).read_bytes() for n in range(4)]
    receiver = sources(rows, tmp_path)
    received = [asyncio.create_task(receiver.receive(sent(content))) for content in contents]

    async def all_wait() -> bool:
        waiting = receiver._turns._waiters or ()
        return (begun[0], len(waiting)) == (module.AT_ONCE, len(contents) - module.AT_ONCE)

    await until(all_wait)
    gate.set()
    digests = {one.digest for one in await asyncio.gather(*received)}
    assert (len(digests), highest[0]) == (4, module.AT_ONCE)


async def test_an_upload_that_breaks_off_leaves_nothing(rows: Rows, tmp_path: Path) -> None:
    content = zipped(tmp_path / "upload.zip", {**CREW, "data.bin": os.urandom(2 << 20)}).read_bytes()
    receiver = sources(rows, tmp_path)
    with pytest.raises(ConnectionResetError, match="the client is gone"):
        await receiver.receive(sent(content[:-50], breaks=True))
    with pytest.raises(ProjectError, match="is no zip file, or is incomplete"):
        await receiver.receive(sent(content[:-50]))
    assert await stored(rows) == []
    assert not list((tmp_path / "uploads").iterdir())


async def test_an_upload_whose_request_is_cancelled_leaves_nothing(
    rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = zipped(tmp_path / "upload.zip", CREW).read_bytes()
    began, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(upload: Path, to: Path) -> object:
        loop.call_soon_threadsafe(began.set)
        may_end.wait(60)
        return accept(upload, to)

    monkeypatch.setattr(module, "accept", slow)
    receiving = asyncio.create_task(sources(rows, tmp_path).receive(sent(content)))
    await began.wait()
    receiving.cancel()
    await asyncio.sleep(0)  # the cancellation arrives
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert await stored(rows) == []
    assert not list((tmp_path / "uploads").iterdir())


async def test_an_upload_without_end_is_not_read_to_its_end(
    rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 5000)
    count = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal count
        while True:
            count += 1
            yield bytes(1000)

    with pytest.raises(ProjectError, match="is larger than"):
        await sources(rows, tmp_path).receive(endless())
    assert count == 6
    assert not list((tmp_path / "uploads").iterdir())


async def test_a_full_disk_is_an_error_in_words(rows: Rows, tmp_path: Path) -> None:
    content = zipped(tmp_path / "upload.zip", {"data.bin": os.urandom(3 << 20)}).read_bytes()
    for megabytes in (2, 5):  # too small for the upload, and for the snapshot beside it
        with needed_small_disk(tmp_path / f"small{megabytes}", megabytes):
            place = tmp_path / f"small{megabytes}"
            with pytest.raises(ProjectError, match=r"No space left on device.*Free space on"):
                await sources(rows, place).receive(sent(content))
            assert not list((place / "uploads").iterdir())
    assert await stored(rows) == []


async def test_the_same_files_are_uploaded_by_many_at_once(rows: Rows, tmp_path: Path) -> None:
    content = zipped(tmp_path / "upload.zip", CREW).read_bytes()
    receivers = [sources(rows, tmp_path) for _ in range(2)]
    found = await asyncio.gather(*(one.receive(sent(content)) for one in receivers * 4))
    assert len({one.digest for one in found}) == 1
    assert [row["digest"] for row in await rows.database.rows("SELECT digest FROM sources")] == [found[0].digest]
    assert not list((tmp_path / "uploads").iterdir())


async def test_what_a_killed_server_left_is_removed_after_a_day(rows: Rows, tmp_path: Path) -> None:
    for name, age in (("old", 2 * 86_400), ("new", 60)):
        (tmp_path / "uploads" / name).mkdir(parents=True)
        (tmp_path / "uploads" / name / "upload").write_bytes(b"half")
        os.utime(tmp_path / "uploads" / name, (time.time() - age,) * 2)
    await sources(rows, tmp_path).receive(sent(zipped(tmp_path / "upload.zip", CREW).read_bytes()))
    assert [path.name for path in (tmp_path / "uploads").iterdir()] == ["new"]


async def test_a_git_repository_is_stored(rows: Rows, tmp_path: Path) -> None:
    folder, lines = repository(tmp_path / "crew", CREW), list[str]()
    found = await sources(rows, tmp_path).fetch(str(folder), "main", None, {}, lines.append)
    assert await stored(rows) == [found.snapshot.digest]
    assert [line.split(" ")[0] for line in lines] == ["fetching", "fetched"]
    with pytest.raises(ProjectError, match="no branch, tag or commit"):
        await sources(rows, tmp_path).fetch(str(folder), "other", None, {}, lines.append)
    assert not list((tmp_path / "uploads").iterdir())
