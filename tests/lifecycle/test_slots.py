"""The slots of a worker: the next run begins while the last one is being settled and removed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lifecycle.running import Place, World, take_away
from lifecycle.waiting import until
from patience import DEADLINE
from projects_for_tests.ends import alive, gone, kickoff_folders
from windlass.aio import shielded
from windlass.errors import Unstorable
from windlass.kickoffs.states import Reason, State
from windlass.lifecycle.slots import Slots
from windlass.runner import runner
from windlass.runner.reuse.kept_children import KeptChildren
from windlass.runner.zygote import Zygote
from windlass.store.kickoffs import KickoffStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from uuid import UUID


class Gate:
    """Holds calls until it is open."""

    def __init__(self) -> None:
        self.held = 0
        self.open = asyncio.Event()

    async def through(self) -> None:
        self.held += 1
        await self.open.wait()

    async def until_held(self, count: int) -> None:
        await true(lambda: self.held == count)


async def true(condition: Callable[[], bool]) -> None:
    async def found() -> bool:
        return condition()

    await until(found)


@asynccontextmanager
async def held_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> AsyncIterator[Gate]:
    """Holds all calls of an asynchronous function before they begin."""
    gate, original = Gate(), getattr(owner, name)

    async def held(*arguments: Any, **more: Any) -> Any:
        await gate.through()
        return await original(*arguments, **more)

    monkeypatch.setattr(owner, name, held)
    try:
        yield gate
    finally:
        gate.open.set()


async def state(world: World, kickoff: UUID) -> State:
    return (await world.status(kickoff)).state


async def test_a_run_begins_while_the_last_one_is_settled(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with held_at(monkeypatch, KickoffStore, "settle") as gate:
        await world.worker(slots=1)
        kickoffs = [await world.accept(do="echo"), await world.accept(**place.inputs()), await world.accept(do="echo")]
        await place.until_held(1)
        assert gate.held == 1
        place.let_go()
        await gate.until_held(2)
        assert [await state(world, one) for one in kickoffs] == [State.STARTED, State.STARTED, State.PENDING]
    for kickoff in kickoffs:
        assert (await world.ended(kickoff)).state is State.SUCCESS


async def test_a_kickoff_has_ended_while_its_folder_is_still_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with held_at(monkeypatch, runner, "clear") as gate:
        await world.worker(slots=1)
        kickoffs = [await world.accept(do="echo") for _ in range(2)]
        for kickoff in kickoffs:
            assert (await world.ended(kickoff)).state is State.SUCCESS
        assert gate.held == len(kickoff_folders(world.folder / "runs")) == 2
        third = await world.accept(do="echo")
        await asyncio.sleep(0.2)
        assert await state(world, third) is State.PENDING, "as many runs as slots may still be removed"
    assert (await world.ended(third)).state is State.SUCCESS
    await true(lambda: not kickoff_folders(world.folder / "runs"))


async def test_a_folder_that_can_not_be_removed_changes_no_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(runner, "clear", fail)
    await world.worker(slots=1)
    kickoffs = [await world.accept(do="echo") for _ in range(3)]
    for kickoff in kickoffs:
        found = await world.ended(kickoff)
        assert (found.state, found.attempt) == (State.SUCCESS, 1)
    await true(lambda: [one.message for one in caplog.records].count("run.not_removed") == len(kickoffs))
    assert "worker.run_failed" not in caplog.text


async def test_the_next_kickoff_is_prepared_while_a_reused_process_becomes_idle(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.database.execute("UPDATE deployments SET settings = '{\"reuse\": 5}'")
    async with held_at(monkeypatch, KeptChildren, "_take_back") as gate:
        monkeypatch.setattr("windlass.lifecycle.slots.LONGEST_WAIT", DEADLINE)
        await world.worker(slots=1)
        first, second = await world.accept(do="echo"), await world.accept(do="environment")
        await gate.until_held(1)

        async def is_started() -> bool:
            return await state(world, second) is State.STARTED

        await until(is_started)
        assert not any(row["type"] == "task_started" for row in await world.events(second))
        assert gate.held == 1
    assert {(await world.ended(one)).state for one in (first, second)} == {State.SUCCESS}


@pytest.mark.parametrize(
    ("do", "reuse", "isolated", "offered"),
    [("echo", 5, False, True), ("echo", 1, False, False), ("fail", 5, False, False), ("echo", 5, True, False)],
)
async def test_only_a_process_that_becomes_idle_offers_its_slot(
    world: World, monkeypatch: pytest.MonkeyPatch, do: str, reuse: int, isolated: bool, offered: bool
) -> None:
    """Another one runs exit handlers first."""
    await world.database.execute(f"UPDATE deployments SET settings = '{{\"reuse\": {reuse}}}'")
    end: tuple[Any, str] = (KeptChildren, "_take_back") if reuse > 1 and not isolated else (Zygote, "end")
    async with held_at(monkeypatch, *end) as gate:
        kickoff = await world.accept(do=do)
        await world.database.execute("UPDATE kickoffs SET isolated = %(isolated)s", {"isolated": isolated})
        worker = await world.worker(slots=1)
        await gate.until_held(1)
        assert worker._slots.used == (0 if offered else 1)
    await world.ended(kickoff)


async def test_a_short_lease_leaves_an_idle_process_alone(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.reuse.kept_children.TIDY_EVERY", 600.0)
    place.let_go()
    await world.database.execute("UPDATE deployments SET settings = '{\"reuse\": 5}'")
    await world.worker(slots=1, lease=1.0, renewal=0.25)
    for _ in range(3):
        await world.ended(await world.accept(**place.inputs()))
        await asyncio.sleep(1.2)
    assert len(set(place.pids())) == 1


async def test_a_process_that_does_not_become_idle_delays_the_next_run_for_a_bounded_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.database.execute("UPDATE deployments SET settings = '{\"reuse\": 5}'")
    async with held_at(monkeypatch, KeptChildren, "_take_back") as gate:
        monkeypatch.setattr("windlass.lifecycle.slots.LONGEST_WAIT", 0.1)
        await world.worker(slots=1)
        kickoffs = [await world.accept(do="echo") for _ in range(3)]
        await gate.until_held(2)
        assert await state(world, kickoffs[2]) is State.PENDING, "there are at most as many such processes as slots"
    for kickoff in kickoffs:
        assert (await world.ended(kickoff)).state is State.SUCCESS


@pytest.mark.parametrize("taken_away", [False, True], ids=["error", "taken away"])
async def test_a_run_that_ends_before_it_begins_releases_its_slot(
    world: World, monkeypatch: pytest.MonkeyPatch, taken_away: bool
) -> None:
    failures = [ValueError("a broken row")]
    original = KickoffStore.earlier_records

    async def earlier_records(*arguments: Any) -> Any:
        if failures and taken_away:
            await asyncio.Event().wait()
        if failures:
            raise failures.pop()
        return await original(*arguments)

    monkeypatch.setattr(KickoffStore, "earlier_records", earlier_records)
    kickoff = await world.accept(do="echo")
    await world.database.execute("UPDATE kickoffs SET attempt = 1")
    worker = await world.worker(slots=1, lease=5.0, renewal=0.1)
    if taken_away:
        await true(lambda: bool(worker._runs))
        await take_away(world)
        await true(lambda: not worker._runs)
        failures.clear()
    await true(lambda: not failures and not worker._runs and worker._slots.used == 0)
    other = await world.ended(await world.accept(do="echo"))
    assert other.state is State.SUCCESS
    assert taken_away or (await world.ended(kickoff)).state is State.SUCCESS


async def test_a_worker_has_stopped_when_the_processes_of_its_runs_have_ended(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.lifecycle.worker.SHUTDOWN_SECONDS", 0.1)
    monkeypatch.setattr("windlass.aio.AGAIN", 0.1)
    async with held_at(monkeypatch, Zygote, "end") as gate:
        worker = await world.worker(slots=1)
        kickoff = await world.accept(**place.inputs())
        (pid,) = await place.until_held()
        stopping = asyncio.create_task(worker.stop())
        await gate.until_held(1)
        await asyncio.sleep(0.5)
        assert await state(world, kickoff) is State.STARTED, "its process is alive"
        assert worker._slots.used == 1
    await stopping
    await gone(pid)
    assert (await state(world, kickoff), worker._slots.used) == (State.PENDING, 0)


async def test_a_process_ends_while_a_report_of_its_run_is_being_written(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    async def slow(*_: object) -> bool:
        await shielded(gate.through())  # a statement takes a while to be cancelled
        return True

    monkeypatch.setattr(KickoffStore, "write_reports", slow)
    worker = await world.worker(slots=1)
    await world.accept(**place.inputs(talk=True))
    (pid,) = await place.until_held()
    await gate.until_held(1)
    stopping = asyncio.create_task(worker.stop())
    try:
        await asyncio.wait_for(gone(pid), DEADLINE)
    finally:
        gate.open.set()
    await stopping


async def test_a_kickoff_whose_reports_can_not_be_stored_has_ended_when_its_process_has(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> bool:
        raise Unstorable("too large.", "Return less.")

    monkeypatch.setattr(KickoffStore, "write_reports", fail)
    async with held_at(monkeypatch, Zygote, "end") as gate:
        await world.worker(slots=1)
        kickoff = await world.accept(**place.inputs(talk=True))
        (pid,) = await place.until_held()
        await gate.until_held(1)
        await asyncio.sleep(0.5)
        assert (alive(pid), await state(world, kickoff)) == (True, State.STARTED)
    assert (await world.ended(kickoff)).reason == Reason.LIMIT
    await gone(pid)


async def test_slots_are_counted_once() -> None:
    freed = 0

    def on_free() -> None:
        nonlocal freed
        freed += 1

    slots = Slots(2, on_free)
    first, second = slots.of_run(), slots.of_run()
    assert (slots.used, slots.free(2)) == (2, 0)
    await first.acquire()
    await second.acquire()
    first.offer()
    first.offer()
    assert (slots.used, slots.free(2), freed) == (1, 1, 1)
    third = slots.of_run()
    waiting = asyncio.create_task(third.acquire())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    first.release()
    first.release()
    await asyncio.wait_for(waiting, DEADLINE)
    assert (slots.used, freed) == (2, 1)
    second.release()
    assert (slots.used, slots.free(2), slots.free(3), slots.free(4)) == (1, 1, 1, 0)


async def test_a_run_that_waits_for_its_turn_can_be_stopped() -> None:
    slots = Slots(1, lambda: None)
    first, second = slots.of_run(), slots.of_run()
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    second.release()
    first.release()
    third = slots.of_run()
    await asyncio.wait_for(third.acquire(), DEADLINE)
