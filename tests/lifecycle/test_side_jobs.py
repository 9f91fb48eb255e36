"""Side jobs on real procrastinate: done once, whoever dies, and whatever becomes of the database."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from lifecycle.waiting import until
from patience import DEADLINE
from windlass import log
from windlass.aio import serving
from windlass.lifecycle.background_tasks import SideJobWorker
from windlass.store.database import Database
from windlass.store.side_jobs import SideJob, SideJobs
from windlass.store.side_jobs import defer as defer_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from store.proxy import Proxy

SILENT = 1.0


class Deeds:
    """What the jobs of a test did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def note(self, text: str) -> None:
        self.done.append(text)

    async def wait(self) -> None:
        self.begun.set()
        await self.may_end.wait()
        self.done.append("waited")

    async def fail_once(self) -> None:
        self.done.append("tried")
        if len(self.done) == 1:
            raise LookupError("the first time")

    def jobs(self) -> list[SideJob]:
        return [
            SideJob("note", self.note),
            SideJob("wait", self.wait),
            SideJob("fail_once", self.fail_once, tries=3),
        ]


@pytest.fixture
def deeds() -> Deeds:
    return Deeds()


@pytest.fixture
async def database(emptied_url: str) -> AsyncIterator[Database]:
    async with Database(emptied_url) as database:
        yield database


@asynccontextmanager
async def working(url: str, jobs: list[SideJob]) -> AsyncIterator[SideJobs]:
    side_jobs = SideJobs(url, jobs, silent=SILENT)
    async with serving(SideJobWorker(side_jobs, look_every=0.1)):
        yield side_jobs


async def defer(database: Database, name: str, **values: Any) -> None:
    async with database.transaction() as connection:
        await defer_job(connection, name, **values)


async def jobs_in(database: Database, **where: str) -> list[dict[str, Any]]:
    rows = await database.rows("SELECT id, task_name, status::text, worker_id, attempts FROM procrastinate_jobs")
    return [row for row in rows if where.items() <= row.items()]


def done(deeds: Deeds, *texts: str) -> Callable[[], Any]:
    async def so() -> bool:
        return sorted(deeds.done) == sorted(texts)

    return so


async def test_a_job_deferred_in_a_transaction_is_done_when_that_is_committed(database: Database, deeds: Deeds) -> None:
    async with working(database.url, deeds.jobs()):
        await defer(database, "note", text="hello")
        await until(done(deeds, "hello"), within=DEADLINE)
    assert await jobs_in(database, task_name="note") == []


async def test_a_job_of_a_transaction_that_is_rolled_back_never_was(database: Database, deeds: Deeds) -> None:
    with suppress(LookupError):
        async with database.transaction() as connection:
            await defer_job(connection, "note", text="lost")
            raise LookupError
    assert await jobs_in(database) == []


async def test_of_two_servers_one_does_a_job(database: Database, deeds: Deeds) -> None:
    async with working(database.url, deeds.jobs()), working(database.url, deeds.jobs()):
        for number in range(20):
            await defer(database, "note", text=str(number))
        await until(done(deeds, *map(str, range(20))), within=DEADLINE)


async def test_a_job_that_fails_is_told_of_and_tried_again(
    database: Database, deeds: Deeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, object]] = []
    monkeypatch.setattr(log.Logger, "event", lambda _, name, **fields: told.append((name, fields.get("job"))))
    async with working(database.url, deeds.jobs()):
        await defer(database, "fail_once")
        await until(done(deeds, "tried", "tried"), within=DEADLINE)
    assert told == [("side_job.failed", "fail_once")]


async def test_what_comes_due_by_itself_is_done_once_by_all_servers(database: Database, deeds: Deeds) -> None:
    async def work() -> None:
        deeds.done.append("due")

    jobs = [SideJob("due", work, cron="0 0 * * 1"), SideJob("note", deeds.note)]
    async with working(database.url, jobs), working(database.url, jobs):
        await until(done(deeds, "due"), within=DEADLINE)
        await defer(database, "note", text="after")
        await until(done(deeds, "due", "after"), within=DEADLINE)
    async with working(database.url, jobs):  # and not again at the next start
        await defer(database, "note", text="later")
        await until(done(deeds, "due", "after", "later"), within=DEADLINE)


async def test_the_database_may_go_away_and_come_back(proxy: Proxy, database: Database, deeds: Deeds) -> None:
    async def finished() -> bool:
        return not await jobs_in(database, task_name="note")

    async with working(proxy.url, deeds.jobs()):
        await defer(database, "note", text="before")
        await until(finished, within=DEADLINE)  # else it would be done again
        await proxy.close()
        await defer(database, "note", text="meanwhile")
        await proxy.open()
        await until(done(deeds, "before", "meanwhile"), within=DEADLINE)


async def test_it_begins_when_the_database_is_there(proxy: Proxy, database: Database, deeds: Deeds) -> None:
    await proxy.close()
    async with working(proxy.url, deeds.jobs()):
        await defer(database, "note", text="late")
        await proxy.open()
        await until(done(deeds, "late"), within=DEADLINE)


async def test_the_job_of_a_worker_that_died_is_put_back(database: Database, deeds: Deeds) -> None:
    await defer(database, "note", text="again")
    await database.execute(
        "WITH dead AS "
        "(INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 hour') RETURNING id) "
        "UPDATE procrastinate_jobs SET status = 'doing', worker_id = dead.id FROM dead"
    )
    async with working(database.url, deeds.jobs()):
        await until(done(deeds, "again"), within=DEADLINE)


async def test_the_job_of_a_worker_that_lives_is_not(database: Database, deeds: Deeds) -> None:
    async with working(database.url, deeds.jobs()), working(database.url, deeds.jobs()):
        await defer(database, "wait")
        await deeds.begun.wait()
        beats = "SELECT count(DISTINCT last_heartbeat) AS n FROM procrastinate_workers WHERE last_heartbeat > %(at)s"
        (now,) = await database.rows("SELECT now() + interval '1.5 s' AS at")

        async def both_lived_on() -> bool:
            return bool((await database.rows(beats, now))[0]["n"] == 2)

        await until(both_lived_on, within=DEADLINE)
        assert [row["status"] for row in await jobs_in(database, task_name="wait")] == ["doing"]
        deeds.may_end.set()
        await until(done(deeds, "waited"), within=DEADLINE)


async def stopped_during_a_job(
    url: str, deeds: Deeds, database: Database, silence: Callable[[], Awaitable[None] | None] = lambda: None
) -> None:
    """Runs a job that does not end, and stops its worker after `silence`."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(working(url, deeds.jobs()))
        await defer(database, "wait")
        await deeds.begun.wait()
        if silent := silence():
            await silent
        async with asyncio.timeout(60):
            await stack.aclose()


async def test_a_job_that_runs_when_its_server_stops_is_done_by_the_next_one(database: Database, deeds: Deeds) -> None:
    await stopped_during_a_job(database.url, deeds, database)
    assert [row["status"] for row in await jobs_in(database, task_name="wait")] == ["todo"]
    deeds.may_end.set()
    async with working(database.url, deeds.jobs()):
        await until(done(deeds, "waited"), within=DEADLINE)


async def test_a_server_leaves_a_job_that_it_does_not_know_to_another(database: Database, deeds: Deeds) -> None:
    newer = [*deeds.jobs(), SideJob("new", deeds.note)]
    await defer(database, "new", text="new")
    async with working(database.url, deeds.jobs()):
        await defer(database, "note", text="old")
        await until(done(deeds, "old"), within=DEADLINE)
    assert [row["status"] for row in await jobs_in(database, task_name="new")] == ["todo"]
    async with working(database.url, newer):
        await until(done(deeds, "old", "new"), within=DEADLINE)


async def test_it_takes_two_connections(database: Database, deeds: Deeds) -> None:
    async with working(database.url, deeds.jobs()):
        for number in range(20):
            await defer(database, "note", text=str(number))
        await until(done(deeds, *map(str, range(20))), within=DEADLINE)
        (row,) = await database.rows(
            "SELECT count(*) AS n FROM pg_stat_activity "
            "WHERE application_name = 'windlass side jobs' AND datname = current_database()"
        )
    assert row["n"] == 2


async def test_it_stops_though_the_database_does_not_answer(proxy: Proxy, database: Database, deeds: Deeds) -> None:
    await stopped_during_a_job(proxy.url, deeds, database, proxy.freeze)


async def test_it_stops_though_the_database_is_gone(proxy: Proxy, database: Database, deeds: Deeds) -> None:
    await stopped_during_a_job(proxy.url, deeds, database, proxy.close)
    deeds.may_end.set()
    async with working(database.url, deeds.jobs()):
        await until(done(deeds, "waited"), within=DEADLINE)
