"""The queue of builds: people take turns, and a wait for others does not count against the time limit."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from lifecycle.waiting import until
from windlass.accounts import owner_of
from windlass.aio import serving
from windlass.deployments.building import _paused
from windlass.kickoffs.ids import new_id
from windlass.lifecycle.background_tasks import SideJobWorker
from windlass.projects import virtual_environments
from windlass.projects.uv import Builder
from windlass.projects.virtual_environments import pausing, wait_for_lock
from windlass.store.builds import JOB, LANES
from windlass.store.side_jobs import SideJob, SideJobs
from windlass.wiring.work import BUILDS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deployments.builds_of_tests import Server

ORIGIN = {"type": "git", "url": "https://git.example.com/x.git"}


class Slow:
    """Builds that end when the test lets them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.begun: list[UUID] = []
        self.ends: dict[UUID, asyncio.Event] = {}

    async def run(self, build: str) -> None:
        turn = await self.server.store.begin(UUID(build))
        if turn is None:
            return
        end = self.ends[turn.id] = asyncio.Event()
        self.begun.append(turn.id)
        await end.wait()
        await self.server.store.fail(turn, "as asked", "")

    def worker(self) -> SideJobWorker:
        jobs = SideJobs(
            self.server.database.url, [SideJob(JOB, self.run)], silent=5.0, at_once=BUILDS_AT_ONCE, look_every=0.2
        )
        return SideJobWorker(jobs, look_every=0.1)

    async def until_begun(self, build: UUID) -> None:
        async def has_begun() -> bool:
            return build in self.begun

        await until(has_begun)


async def person(server: Server, name: str) -> UUID:
    await server.database.execute(
        "INSERT INTO users (id, name) VALUES (%(id)s, %(name)s)", {"id": (made := new_id()), "name": name}
    )
    return made


async def queued(server: Server, by: UUID | None, deployment: UUID | None = None) -> UUID:
    found = await server.builds.start(deployment or await server.add(f"crew-{new_id()}"), ORIGIN, None, by)
    return found.id


async def in_the_other_lane(server: Server) -> UUID:
    """A deployment whose builds do not wait for those of the server's first deployment."""
    while (made := await server.add(f"crew-{new_id()}")).int % LANES == server.deployment.int % LANES:
        pass
    return made


async def test_ten_slow_builds_of_one_person_do_not_hold_those_of_another(server: Server) -> None:
    slow = Slow(server)
    anna, ben, eve = [await person(server, name) for name in ("anna", "ben", "eve")]
    of_anna = [await queued(server, anna) for _ in range(10)]
    async with serving(slow.worker()):
        await slow.until_begun(of_anna[0])
        of_ben = [await queued(server, ben) for _ in range(2)]
        await slow.until_begun(of_ben[0])
        assert len({*slow.begun} & {*of_anna}) <= LANES
        of_eve = await queued(server, eve)
        for build in slow.begun:
            slow.ends[build].set()
        await slow.until_begun(of_eve)
        assert len({*slow.begun} & {*of_anna}) < 6, "she took turns with the others"
        for _ in range(13):
            for end in slow.ends.values():
                end.set()
            await asyncio.sleep(0)


async def test_a_queued_build_shows_how_many_are_before_it(server: Server) -> None:
    anna, ben = await person(server, "anna"), await person(server, "ben")
    of_anna = [await queued(server, anna) for _ in range(3)]
    of_ben = await queued(server, ben)
    found = [await server.builds.get(build) for build in (*of_anna, of_ben)]
    assert [one and one.builds_before for one in found] == [0, 2, 3, 1]
    assert await server.store.begin(of_anna[0])
    begun = await server.builds.get(of_anna[0])
    assert begun is not None
    assert begun.builds_before is None


async def test_a_person_who_starts_builds_all_the_time_is_not_put_behind_all_others(server: Server) -> None:
    anna, ben = await person(server, "anna"), await person(server, "ben")
    for _ in range(5):
        before = await queued(server, anna)
        turn = await server.store.begin(await queued(server, anna))
        assert turn is not None
        await server.store.fail(turn, "as asked", "")
        last = await server.store.begin(before)
        assert last is not None
        await server.store.fail(last, "as asked", "")
    of_anna, of_ben = await queued(server, anna), [await queued(server, ben) for _ in range(3)]
    found = [await server.builds.get(build) for build in (of_anna, *of_ben)]
    assert [one and one.builds_before for one in found] == [0, 1, 2, 3]


async def test_builds_of_one_deployment_by_two_people_are_done_one_after_the_other(server: Server) -> None:
    slow = Slow(server)
    anna, ben = await person(server, "anna"), await person(server, "ben")
    first = await queued(server, anna, server.deployment)
    async with serving(slow.worker()):
        await slow.until_begun(first)
        second = await queued(server, ben, server.deployment)
        other = await queued(server, ben, await in_the_other_lane(server))
        await slow.until_begun(other)
        assert second not in slow.begun
        slow.ends[first].set()
        await slow.until_begun(second)
        assert (await server.ended(first)).state == "failed"
        for end in slow.ends.values():
            end.set()


async def test_the_time_limit_stands_still_while_a_build_waits_for_others() -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(0.2) as limit:
        with _paused(limit, loop):
            await asyncio.to_thread(time.sleep, 0.6)
    with pytest.raises(TimeoutError):
        await after_a_wait(loop)


async def after_a_wait(loop: asyncio.AbstractEventLoop) -> None:
    async with asyncio.timeout(0.2) as limit:
        with _paused(limit, loop):
            await asyncio.sleep(0)
        await asyncio.sleep(60)


def test_a_wait_for_the_builds_of_root_is_long_and_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    paused: list[str] = []
    tries = iter([False, False, False, True])
    monkeypatch.setattr(virtual_environments, "WAIT_SECONDS", 0)
    monkeypatch.setattr(virtual_environments, "try_to_lock", lambda _: next(tries))

    @contextmanager
    def noted() -> Iterator[None]:
        paused.append("begins")
        yield
        paused.append("ends")

    token = pausing.set(noted)
    try:
        wait_for_lock([(0, owner_of(0))], Builder(tmp_path, {}, lambda _: True), lines.append)
    finally:
        pausing.reset(token)
    assert lines == ["waits for 1 build before it on this machine"]
    assert paused == ["begins", "ends"]
