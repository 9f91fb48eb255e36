"""The database goes away while crews run, and comes back."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from lifecycle.running import Place, World
from lifecycle.waiting import until
from projects_for_tests.ends import gone
from store.kickoff_rows import Rows
from windlass.kickoffs.states import State
from windlass.store.database import Database
from windlass.store.kickoffs import KickoffStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from uuid import UUID

    from store.proxy import Proxy
    from windlass.lifecycle.worker import Worker

LEASE = 1.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.store.database.POOL_WAIT_SECONDS", 1.0)
    monkeypatch.setattr("windlass.lifecycle.background_tasks.BETWEEN_ATTEMPTS", 0.02)
    monkeypatch.setattr("windlass.lifecycle.worker.SHUTDOWN_SECONDS", 1.0)


@pytest.fixture
async def world(proxy: Proxy, tmp_path: Path) -> AsyncIterator[World]:
    """Its database can be taken away from it."""
    async with World(proxy.url, tmp_path, AsyncExitStack()) as world:
        yield world


@pytest.fixture
async def beside(emptied_url: str, world: World) -> AsyncIterator[Rows]:
    """The same database, as somebody sees it from whom it was not taken away."""
    async with Database(emptied_url) as database:
        yield Rows(database, world.deployment)


async def over(worker: Worker) -> None:
    """Waits until the crew has come to its end."""
    async with asyncio.timeout(60):
        while not all(running.run.over for running in worker._runs.values()):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_a_run_goes_on_and_is_settled_when_the_database_is_back(
    world: World, place: Place, proxy: Proxy, beside: Rows
) -> None:
    worker = await world.worker()
    kickoff = await world.accept(**place.inputs())
    await place.until_held()
    await proxy.close()
    place.let_go()
    await over(worker)
    assert (await beside.status(kickoff)).state is State.STARTED
    await proxy.open()
    status = await world.ended(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 1)


async def test_no_event_is_lost_or_doubled(world: World, proxy: Proxy) -> None:
    await world.worker()
    kickoff = await world.accept(do="print", lines=3000)
    for _ in range(4):
        await asyncio.wait_for(world.listener.listening.wait(), 60)
        await proxy.cut()
    await world.listener.listening.wait()
    assert (await world.ended(kickoff)).state is State.SUCCESS
    assert await world.lines(kickoff) == [f"line {number}" for number in range(3000)]
    events = await world.events(kickoff)
    assert [row["seq"] for row in events] == list(range(1, len(events) + 1))


async def test_a_run_ends_with_its_lease_and_its_kickoff_runs_again_when_the_database_is_back(
    world: World, place: Place, proxy: Proxy, beside: Rows
) -> None:
    await world.worker(lease=LEASE, renewal=0.1)
    kickoff = await world.accept(**place.inputs())
    (pid,) = await place.until_held()
    await proxy.close()
    await gone(pid)
    assert (await beside.status(kickoff)).state is State.STARTED
    await proxy.open()
    await place.until_held(2)
    place.let_go()
    status = await world.ended(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 2)


async def test_a_result_that_was_there_before_the_lease_ended_still_counts(
    world: World, place: Place, proxy: Proxy, beside: Rows
) -> None:
    worker = await world.worker(lease=LEASE, renewal=0.1)
    kickoff = await world.accept(**place.inputs())
    await place.until_held()
    await proxy.close()
    place.let_go()
    await over(worker)
    await lease_ended(beside, kickoff)
    await proxy.open()
    status = await world.ended(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 1)


async def test_a_worker_does_not_reap_its_own_kickoff_whose_row_was_locked_when_it_renewed_the_lease(
    world: World, place: Place, beside: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last reports of a run lock the row: between them and its outcome, another turn may reap it."""
    may_settle, reaped = asyncio.Event(), asyncio.Semaphore(0)
    settle, reap = world.store.settle, world.store.reap

    async def locked(_: object, __: UUID, kickoffs: list[UUID], ___: float) -> dict[tuple[UUID, int], None]:
        return {(kickoff, 1): None for kickoff in kickoffs}

    async def later(store: KickoffStore, *arguments: Any, **named: Any) -> Any:
        await may_settle.wait()
        return await settle(*arguments, **named)

    async def counted(store: KickoffStore, *arguments: Any, **named: Any) -> Any:
        found = await reap(*arguments, **named)
        reaped.release()
        return found

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    worker = await world.worker(lease=15.0, renewal=0.05)
    kickoff = await world.accept(**place.inputs())
    await place.until_held()
    for name, replacement in (("renew_unlocked", locked), ("renew", never), ("settle", later), ("reap", counted)):
        monkeypatch.setattr(KickoffStore, name, replacement)
    place.let_go()
    await over(worker)
    await beside.end_leases()
    async with asyncio.timeout(60):
        while not reaped.locked():
            await reaped.acquire()
        for _ in range(3):
            await reaped.acquire()
    may_settle.set()
    status = await world.ended(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 1)


async def test_a_run_that_another_worker_took_over_meanwhile_ends(
    world: World, place: Place, proxy: Proxy, beside: Rows
) -> None:
    await world.worker(lease=LEASE, renewal=0.1)
    kickoff = await world.accept(**place.inputs())
    (pid,) = await place.until_held()
    await proxy.close()
    await lease_ended(beside, kickoff)
    assert await beside.store.reap(max_losses=3) == [(kickoff, State.PENDING)]
    (claimed,) = await beside.claim()
    await proxy.open()
    await gone(pid)
    assert await beside.settle(claimed)
    assert (await world.ended(kickoff)).attempt == 2


async def test_a_worker_that_stops_still_writes_what_has_come_to_its_end(
    world: World, place: Place, proxy: Proxy
) -> None:
    worker = await world.worker()
    kickoff = await world.accept(**place.inputs())
    await place.until_held()
    await proxy.close()
    place.let_go()
    await over(worker)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)
    await proxy.open()
    await stopping
    status = await world.status(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 1)


async def test_a_worker_stops_in_time_though_the_database_is_away(
    world: World, place: Place, proxy: Proxy, beside: Rows
) -> None:
    worker = await world.worker()
    running, ended = [await world.accept(**place.inputs()), await world.accept(do="print", lines=3)]
    (pid,) = await place.until_held()
    await world.ended(ended)
    await proxy.close()
    async with asyncio.timeout(60):
        await worker.stop()
    await gone(pid)
    assert (await beside.status(running)).state is State.STARTED
    await proxy.open()


async def test_a_worker_starts_while_the_database_is_away(world: World, proxy: Proxy) -> None:
    kickoff = await world.accept()
    await proxy.close()
    await world.worker()
    await proxy.open()
    assert (await world.ended(kickoff)).state is State.SUCCESS


async def lease_ended(rows: Rows, kickoff: UUID) -> None:
    async def ended() -> bool:
        return kickoff in await ended_leases(rows)

    await until(ended)


async def ended_leases(rows: Rows) -> list[UUID]:
    query = "SELECT id FROM kickoffs WHERE state = 'STARTED' AND lease_until < now()"
    return [row["id"] for row in await rows.database.rows(query)]
