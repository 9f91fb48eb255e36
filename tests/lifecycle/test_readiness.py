"""Checks of what a server needs: how often they run, and what a worker does while one fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from api.serving import until
from faults.harm import full
from faults.small_disk import needed_small_disk
from windlass.kickoffs.states import State
from windlass.lifecycle.readiness import CachedCheck, Folders

if TYPE_CHECKING:
    from pathlib import Path

    from lifecycle.running import World


class Counted:
    def __init__(self) -> None:
        self.runs = 0
        self.fault: str | None = None
        self.free = asyncio.Event()
        self.free.set()

    async def __call__(self) -> str | None:
        self.runs += 1
        await self.free.wait()
        return self.fault


async def test_many_requests_cost_one_check() -> None:
    counted = Counted()
    check = CachedCheck(counted, "slow", passed_for=3600.0)
    assert await asyncio.gather(*(check() for _ in range(20))) == [None] * 20
    assert [await check() for _ in range(20)] == [None] * 20
    assert counted.runs == 1


async def test_a_fault_counts_briefly() -> None:
    counted = Counted()
    counted.fault = "full"
    check = CachedCheck(counted, "slow", passed_for=3600.0)
    assert [await check() for _ in range(3)] == ["full"] * 3
    assert counted.runs == 1
    counted.fault = None

    async def passes() -> bool:
        return await check() is None

    await until(passes, "the check passes")


async def test_a_check_that_hangs_is_a_fault_and_is_not_started_again() -> None:
    counted = Counted()
    counted.free.clear()
    check = CachedCheck(counted, "slow", answer_seconds=0.1)
    assert [await check() for _ in range(3)] == ["slow"] * 3
    assert counted.runs == 1
    counted.free.set()

    async def passes() -> bool:
        return await check() is None

    await until(passes, "the check passes")
    await check.stop()


async def test_a_request_that_is_broken_off_does_not_end_the_check_of_another() -> None:
    counted = Counted()
    counted.free.clear()
    check = CachedCheck(counted, "slow", answer_seconds=0.1)
    one, other = asyncio.create_task(check()), asyncio.create_task(check())
    await asyncio.sleep(0)
    one.cancel()
    counted.free.set()
    assert await other is None


def test_a_check_of_folders_leaves_nothing(tmp_path: Path) -> None:
    folders = Folders({"WINDLASS_HOME": tmp_path, "the folder of uploads": tmp_path / "uploads"})
    assert asyncio.run(folders.fault()) is None
    assert not any(tmp_path.iterdir())


async def test_a_folder_without_room_is_named_without_its_path(tmp_path: Path) -> None:
    with needed_small_disk(tmp_path / "uploads", 1):
        folders = Folders({"WINDLASS_HOME": tmp_path, "the folder of uploads": tmp_path / "uploads"})
        with full(tmp_path / "uploads"):
            fault = await folders.fault()
        assert fault == (
            "The server can't write to the folder of uploads: No space left on device. Free some space. "
            "The path is in the server's log (folder.not_writable)."
        )
        assert await folders.fault() is None


async def test_a_home_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    fault = await Folders({"WINDLASS_HOME": home, "the folder of uploads": home / "uploads"}).fault()
    assert fault is not None
    assert "No such file or directory" in fault


async def test_a_worker_whose_folders_are_full_claims_nothing_until_they_have_room(world: World) -> None:
    counted = Counted()
    counted.fault = "full"
    await world.worker(fault=counted, renewal=0.05)
    kickoff = await world.accept(word="x")

    async def is_announced() -> bool:
        rows = await world.database.rows("SELECT slots FROM workers")
        return [row["slots"] for row in rows] == [0]

    await until(is_announced, "the worker has no slots")
    asked = counted.runs
    await until(lambda: more_than(counted, asked + 1), "the worker looks again")
    assert (await world.status(kickoff)).state is State.PENDING
    assert (await world.status(kickoff)).attempt == 0
    counted.fault = None
    assert (await world.ended(kickoff)).attempt == 1


async def more_than(counted: Counted, runs: int) -> bool:
    return counted.runs > runs
