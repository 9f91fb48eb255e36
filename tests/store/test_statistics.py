"""The numbers of the last 24 hours are exact: across hours, restarts, several servers, and clocks that differ."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from store.kickoff_rows import DONE, FAILED, Rows
from store.test_plans import FEW, rows_touched
from windlass.kickoffs.boundary_parts import boundary_parts, network
from windlass.kickoffs.ids import CLOCKS_APART, first_id, new_id
from windlass.kickoffs.outcome import Outcome
from windlass.kickoffs.states import Reason, State
from windlass.store.claiming import WorkerUsage
from windlass.store.overview import OverviewStore
from windlass.store.retention import RetentionStore
from windlass.store.statistics import (
    COUNT,
    CREWS,
    DURATIONS,
    HOURS,
    KEEP,
    LAG,
    MOST_UNCOUNTED,
    NO_SCANS,
    SERVER,
    CrewStatistics,
    Durations,
    Interval,
    StatisticsStore,
    hours_until,
    percentiles,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

CANCELLED = Outcome(State.CANCELLED, reason=Reason.CANCELLED, error="it was stopped")
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
INSTANT = timedelta(microseconds=1)
OF_THE_TIME = 50
"""Kickoffs of the time that the statements read, in a test of old statistics of the planner."""
STORE = """
INSERT INTO kickoffs (id, deployment_id, version_id, state, attempt, inputs, created_at, due_at, started_at,
                      finished_at)
VALUES (%(id)s, %(deployment)s, %(version)s, %(state)s, 1, '{}', %(accepted)s, %(due)s, %(started)s, %(ended)s)
"""
ATTEMPT = """
INSERT INTO attempts (kickoff_id, attempt, worker_id, host, started_at) VALUES (%(id)s, 1, %(id)s, 'h', %(started)s)
"""


class Past:
    """Kickoffs of past hours, and the statistics of them."""

    def __init__(self, rows: Rows, now: datetime) -> None:
        self.rows = rows
        self.now = now
        self.hour = now.replace(minute=0, second=0, microsecond=0)
        self.store = StatisticsStore(rows.database)

    async def add(
        self,
        ended: datetime | None = None,
        state: str = "SUCCESS",
        *,
        ran: timedelta = SECOND,
        waited: timedelta = SECOND,
        clock: timedelta = timedelta(),
        rows: Rows | None = None,
        **fields: Any,
    ) -> UUID:
        """Returns a kickoff that a server accepted whose clock is ahead by `clock`."""
        of = rows or self.rows
        started = fields.get("started", ended - ran if ended else None)
        accepted = fields.get("accepted", (started or self.now) - waited)
        kickoff = UUID(int=first_id(accepted, clock).int | new_id().int & (1 << 60) - 1)
        values = {
            "id": kickoff,
            "deployment": of.deployment.id,
            "version": of.version.id,
            "state": state,
            "accepted": accepted,
            "due": fields.get("due"),
            "started": started,
            "ended": ended,
        }
        await self.rows.database.execute(STORE, values)
        if started:
            await self.rows.database.execute(ATTEMPT, values)
        return kickoff

    async def crew(self, rows: Rows | None = None) -> CrewStatistics:
        deployment = (rows or self.rows).deployment.id
        return (await self.store.crews([deployment]))[deployment]

    async def ended(self, rows: Rows | None = None) -> dict[datetime, int]:
        """Returns the numbers that are not 0, by the start of their hour."""
        return by_hour(found := await self.crew(rows), found.ended)

    async def moves(self) -> list[tuple[int, int, int, int]]:
        """Returns the sums of the minutes and of the hours."""
        found = await self.store.server()
        return [
            (
                sum(one.accepted for one in span),
                sum(one.started for one in span),
                sum(one.ended for one in span),
                sum(one.failed for one in span),
            )
            for span in (found.minutes, found.hours)
        ]

    async def counted_until(self) -> datetime:
        return (await self.store.server()).counted_until

    async def set_progress(self, until: datetime) -> None:
        await self.rows.database.execute("UPDATE statistics_progress SET counted_until = %(until)s", {"until": until})


def by_hour(found: CrewStatistics, numbers: Sequence[int]) -> dict[datetime, int]:
    return {hour: number for hour, number in zip(hours_until(found.hour), numbers, strict=True) if number}


@pytest.fixture
async def past(rows: Rows) -> Past:
    (row,) = await rows.database.rows("SELECT now() AS now")
    made = Past(rows, row["now"].astimezone(UTC))
    await made.set_progress(made.hour - KEEP)
    return made


async def test_the_ends_of_each_hour_are_counted_and_one_at_its_start_belongs_to_it(past: Past) -> None:
    assert await past.ended() == {}
    for ended in (past.hour - 3 * HOUR, past.hour - 2 * HOUR - INSTANT, past.hour - 2 * HOUR, past.hour - 23 * HOUR):
        await past.add(ended)
    await past.add(past.hour - 24 * HOUR - INSTANT)  # too old
    await past.store.count()
    counted = {past.hour - 3 * HOUR: 2, past.hour - 2 * HOUR: 1, past.hour - 23 * HOUR: 1}
    assert await past.ended() == counted
    await past.store.count()
    assert await past.ended() == counted, "a second count finds nothing new"
    assert past.now - LAG <= await past.counted_until() <= datetime.now(UTC) - LAG + MINUTE


async def test_what_is_not_counted_yet_is_read_and_counted_once(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [past.now - minutes * MINUTE for minutes in (9, 6, 3)]
    for ended in ends:
        await past.add(ended, waited=10 * SECOND)
    await past.set_progress(past.now - 12 * MINUTE)
    before = await past.ended()
    assert sum(before.values()) == 3
    for ago in (10, 8, 4, 2):  # more and more of them are counted, and fewer are read
        monkeypatch.setattr("windlass.store.statistics.LAG", ago * MINUTE)
        await past.store.count()
        assert await past.ended() == before
        assert await past.moves() == [(3, 3, 3, 0)] * 2
        found = await past.store.durations(past.rows.deployment.id)
        assert found.count == 3
        assert found.p95 == pytest.approx(1, rel=0.05)
    (row,) = await past.rows.database.rows("SELECT sum(ended) AS ended FROM statistics_hours")
    assert row["ended"] == 3


async def test_of_servers_that_count_at_once_each_move_is_counted_by_one(past: Past) -> None:
    for ago in range(40):
        await past.add(past.now - (5 + 30 * ago) * MINUTE, "FAILED" if ago % 4 == 0 else "SUCCESS")
    await asyncio.gather(*(StatisticsStore(past.rows.database).count() for _ in range(6)))
    found = await past.crew()
    assert (found.total, sum(found.failed), found.succeeded, found.success_rate) == (40, 10, 30, 0.75)
    _, hours = await past.moves()
    assert hours == (40, 40, 40, 10)


async def test_a_count_that_fails_leaves_all_to_the_next_one(past: Past) -> None:
    await past.add(past.now - 30 * MINUTE)
    await past.rows.database.execute("ALTER TABLE statistics_waits ADD CONSTRAINT never CHECK (false)")
    with pytest.raises(Exception, match="never"):
        await past.store.count()
    await past.rows.database.execute("ALTER TABLE statistics_waits DROP CONSTRAINT never")
    await past.store.count()
    assert (await past.crew()).total == 1


async def test_a_server_that_was_down_for_days_counts_the_last_day(past: Past) -> None:
    await past.set_progress(past.now - timedelta(days=9))
    for ago in (timedelta(days=2), 26 * HOUR, 20 * HOUR, HOUR):
        await past.add(past.now - ago)
    await past.store.count()
    assert (await past.crew()).total == 2
    assert [hour[2] for hour in await past.moves()][1] == 2


async def test_numbers_that_no_server_counts_end_where_the_count_ended(past: Past) -> None:
    """A read of everything since then would take ever longer."""
    await past.set_progress(past.now - 5 * HOUR)
    await past.add(past.now - 2 * HOUR)
    await past.add(past.now - MINUTE)
    assert (await past.crew()).total == 1
    assert await past.counted_until() < datetime.now(UTC) - MOST_UNCOUNTED


async def test_servers_whose_clocks_differ_by_minutes_count_by_the_clock_of_the_database(past: Past) -> None:
    at = past.now - 30 * MINUTE
    for minutes in (-4, 0, 4):
        await past.add(at, accepted=at - 2 * SECOND, clock=minutes * MINUTE)
        await past.add(past.now, accepted=past.now - 2 * SECOND, clock=minutes * MINUTE)
    await past.store.count()
    found = {one.at: one.accepted for one in (await past.store.server()).minutes if one.accepted}
    assert sorted(found.values()) in ([3, 3], [6])
    assert found[(at - 2 * SECOND).replace(second=0, microsecond=0)] == 3


async def test_each_deployment_has_its_own_numbers_and_a_cancelled_kickoff_is_no_failure(past: Past) -> None:
    other = await past.rows.beside("other")
    for state, count in {"SUCCESS": 5, "FAILED": 1, "TIMED_OUT": 1, "CANCELLED": 3}.items():
        for _ in range(count):
            await past.add(past.now - 40 * MINUTE, state)
    await past.add(past.now - 50 * MINUTE, "CANCELLED", rows=other)
    for _ in range(2):
        found, of_other = await past.crew(), await past.crew(other)
        if not found.total:
            await past.store.count()
    assert (found.total, sum(found.failed), found.success_rate) == (10, 2, 5 / 7)
    assert (of_other.total, of_other.success_rate, of_other.last_failure) == (1, None, None)
    assert by_hour(found, found.ended).keys() == by_hour(found, found.failed).keys()
    (row,) = await past.rows.database.rows("SELECT count(*) FROM statistics_hours")
    assert row["count"] == 2


async def test_the_newest_failure_and_the_last_end_are_found_however_old_and_are_gone_when_deleted(past: Past) -> None:
    assert (await past.crew()).last_failure is None
    older = await past.add(past.now - timedelta(days=40), "FAILED")
    newest = await past.add(past.now - timedelta(days=3), "TIMED_OUT")
    last = past.now - timedelta(days=2)
    await past.add(last)
    await past.rows.database.execute(
        "UPDATE kickoffs SET reason = 'timed_out', error = repeat('x', 1000) WHERE id = %(id)s", {"id": newest}
    )
    found = await past.crew()
    assert found.last_failure
    assert (found.last_failure.kickoff, found.last_failure.at) == (newest, past.now - timedelta(days=3))
    assert (found.last_failure.state, found.last_failure.reason) == (State.TIMED_OUT, "timed_out")
    assert found.last_failure.error == "x" * 300
    assert (found.last_ended_at, found.total) == (last, 0)
    await RetentionStore(past.rows.database).delete_kickoffs([newest])
    found = await past.crew()
    assert found.last_failure
    assert found.last_failure.kickoff == older


async def test_a_deleted_kickoff_stays_counted_and_numbers_of_old_hours_and_removed_deployments_go(past: Past) -> None:
    kickoff = await past.add(past.now - 2 * HOUR)
    await past.store.count()
    await RetentionStore(past.rows.database).delete_kickoffs([kickoff])
    await past.store.count()
    assert (await past.crew()).total == 1
    for table in ("hours", "minutes", "durations", "waits"):
        column = "hour" if table in {"hours", "durations"} else "minute"
        await past.rows.database.execute(f"UPDATE statistics_{table} SET {column} = {column} - interval '24 hours'")
    await past.store.count()
    assert await tables(past) == {"hours": 0, "durations": 0, "minutes": 0, "waits": 0}
    await past.add((past.now - 20 * MINUTE).replace(second=30))
    await past.set_progress(past.now - HOUR)
    await past.store.count()
    assert await tables(past) == {"hours": 1, "durations": 1, "minutes": 1, "waits": 1}
    await past.rows.database.execute("UPDATE deployments SET current_version = NULL; DELETE FROM current_versions")
    await past.rows.database.execute("DELETE FROM versions; DELETE FROM deployments")
    assert await tables(past) == {"hours": 0, "durations": 0, "minutes": 1, "waits": 1}


async def tables(past: Past) -> dict[str, int]:
    found = {}
    for name in ("hours", "durations", "minutes", "waits"):
        (row,) = await past.rows.database.rows(f"SELECT count(*) FROM statistics_{name}")
        found[name] = row["count"]
    return found


async def test_durations_are_within_five_percent_from_a_millisecond_to_a_month(past: Past) -> None:
    seconds = [0.001, 0.0042, 0.25, 1, 3.9, 17, 41, 60, 599, 3600, 86_400, 2_592_000]
    for second in seconds:
        rows = await past.rows.beside(f"crew-{second:g}".replace(".", "-").replace("+", ""))
        await past.add(past.now - MINUTE, ran=timedelta(seconds=second), rows=rows)
        await past.add(past.now - 20 * MINUTE, ran=timedelta(seconds=second), rows=rows)
        await past.add(past.now - 20 * MINUTE, "CANCELLED", rows=rows)
        await past.set_progress(past.now - 10 * MINUTE)
        assert (await past.store.durations(rows.deployment.id)).count == 1
        await past.set_progress(past.now - 30 * MINUTE)
        await past.store.count()
        found = await past.store.durations(rows.deployment.id)
        assert found.count == 2
        assert found.p50 == found.p95 == pytest.approx(second, rel=0.05)
    assert await past.store.durations(past.rows.deployment.id) == Durations()


def test_a_percentile_is_the_value_below_which_that_part_is() -> None:
    found = percentiles([(100, 50), (150, 45), (200, 5)])
    assert (found.count, found.p50, found.p95) == (100, 1.1**100.5 / 1000, 1.1**150.5 / 1000)
    assert percentiles([(100, 49), (150, 45), (200, 6)]).p95 == 1.1**200.5 / 1000


async def test_the_wait_for_a_start_begins_when_a_kickoff_is_due(past: Past) -> None:
    at = past.now - 30 * MINUTE
    await past.add(at, started=at - MINUTE, accepted=at - 9 * HOUR, due=at - MINUTE - 4 * SECOND)
    await past.add(at, started=at - MINUTE, accepted=at - MINUTE - 4 * SECOND)
    # as the row of a kickoff would be that was retried later
    await past.add(at, started=at - MINUTE, accepted=at - MINUTE - 4 * SECOND, due=at)
    await past.store.count()
    (minute,) = [one for one in (await past.store.server()).minutes if one.started]
    assert (minute.at, minute.started) == ((at - MINUTE).replace(second=0, microsecond=0), 3)
    assert minute.waits.count == 3
    assert minute.waits.p50 == minute.waits.p95 == pytest.approx(4, rel=0.05)
    (hour,) = [one for one in (await past.store.server()).hours if one.started]
    assert hour.waits == minute.waits


async def test_a_server_where_nothing_happens_has_sixty_minutes_and_a_day_of_nothing(past: Past) -> None:
    found = await past.store.server()
    assert (len(found.minutes), len(found.hours)) == (60, HOURS)
    assert found.hours[-1] == Interval(found.minutes[-1].at.replace(minute=0))
    assert all(later.at - one.at == MINUTE for one, later in zip(found.minutes, found.minutes[1:], strict=False))
    assert not any(one.accepted or one.started or one.ended for one in (*found.minutes, *found.hours))


async def test_kickoffs_of_workers_are_counted_with_a_due_time_that_survives_the_promotion(rows: Rows) -> None:
    store = StatisticsStore(rows.database)
    (now,) = await rows.database.rows("SELECT now() AS now")
    await rows.database.execute("UPDATE statistics_progress SET counted_until = now() - interval '1 s'")
    (waiting,) = await rows.accept(run_at=now["now"] + timedelta(seconds=600))
    await rows.database.execute("UPDATE kickoffs SET run_at = now() - interval '2 s' WHERE run_at IS NOT NULL")
    due = await rows.column(waiting, "run_at")
    await rows.store.promote()
    assert await rows.column(waiting, "due_at") == due
    for outcome in (DONE, FAILED, CANCELLED):
        await rows.settle((await rows.claim())[0] if outcome is DONE else await rows.started(), outcome)
    lost = await rows.silent()
    await rows.store.reap(max_losses=3)
    await rows.come_due()
    assert await rows.column(lost.id, "due_at") is None, "of a later attempt"
    assert [one.id for one in await rows.claim()] == [lost.id]
    found = (await store.crews([rows.deployment.id]))[rows.deployment.id]
    assert (found.total, sum(found.failed), found.success_rate) == (3, 1, 0.5)
    moves = [(minute.accepted, minute.started, minute.ended) for minute in (await store.server()).minutes]
    assert [sum(numbers) for numbers in zip(*moves, strict=True)] == [4, 4, 3]


async def test_workers_report_what_they_use(rows: Rows) -> None:
    overview = OverviewStore(rows.database)
    await rows.store.workers.seen(rows.worker, slots=4, lease=60, usage=WorkerUsage(1, 2, 3 << 30))
    (worker,) = await overview.workers(limit=10)
    assert (worker.running, worker.zygotes, worker.zygote_memory) == (1, 2, 3 << 30)
    await rows.store.workers.seen(rows.worker, slots=4, lease=60)
    (worker,) = await overview.workers(limit=10)
    assert (worker.running, worker.zygotes, worker.zygote_memory) == (0, 0, 0)
    assert worker.boundary == [], "a worker of a former release"
    load = await StatisticsStore(rows.database).database()
    assert load.size > 1 << 20
    assert 0 < load.connections <= load.most_connections


async def test_the_boundary_of_a_deployment_is_that_of_the_workers_that_run_it(rows: Rows) -> None:
    overview, workers, slug = OverviewStore(rows.database), rows.store.workers, rows.deployment.slug
    assert await overview.boundaries(slug) == []
    strong, weak = boundary_parts(None, "none", server=1, landlock=9, refused=""), [network("not permitted")]
    for _ in range(2):
        await workers.seen(new_id(), slots=4, lease=60, boundary=strong)
    only = new_id()
    await workers.seen(only, slots=4, lease=60, deployments=[slug], boundary=weak)
    await workers.seen(new_id(), slots=4, lease=60, deployments=["other"])
    await workers.seen(new_id(), slots=4, lease=60, excluded=[slug])
    await workers.seen(new_id(), slots=4, lease=0, boundary=[])
    found = await overview.boundaries(slug)
    assert [(one.workers, one.parts, one.all_hosts) for one in found] == [(2, [*strong], 1), (1, [*weak], 1)]
    assert found[0].hosts == found[1].hosts
    await workers.leave(only)
    assert [one.parts for one in await overview.boundaries(slug)] == [[*strong]]
    assert [one.boundary for one in await overview.workers(limit=1)] == [[*strong]]


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "of new rows", "of many crews", "up to date"])
async def test_neither_a_count_nor_a_read_touches_kickoffs_of_other_times(past: Past, statistics: str) -> None:
    if statistics == "of an empty table":
        await past.rows.database.execute("ANALYZE")
    if statistics == "of new rows":
        for _ in range(OF_THE_TIME):
            await past.rows.settle(await past.rows.started())
        await past.rows.database.execute("ANALYZE")
    if statistics == "of many crews":
        for number in range(OF_THE_TIME):
            one = await past.rows.beside(f"crew-{number}")
            await one.settle(await one.started())
        await past.rows.database.execute("ANALYZE")
    await past.rows.database.execute(
        "WITH old AS (INSERT INTO kickoffs (id, deployment_id, version_id, state, inputs, created_at, started_at, "
        "finished_at) SELECT overlay(gen_random_uuid()::text placing left(first_id(at)::text, 13) from 1)::uuid, "
        "%(deployment)s, %(version)s, 'SUCCESS', '{}', at, at, at FROM (SELECT now() - interval '1 day' - number * "
        "interval '1 minute' AS at FROM generate_series(100, 5000) AS number) AS times RETURNING id, started_at) "
        "INSERT INTO attempts (kickoff_id, attempt, worker_id, host, started_at) "
        "SELECT id, 1, id, 'h', started_at FROM old",
        {"deployment": past.rows.deployment.id, "version": past.rows.version.id},
    )
    await past.add(past.now - 5 * MINUTE)
    await past.add(past.now)
    if statistics == "up to date":
        await past.rows.database.execute("ANALYZE")
    ids = {"first": first_id(past.now - HOUR, -CLOCKS_APART), "last": first_id(past.now, CLOCKS_APART)}
    read = {"most": MOST_UNCOUNTED, "apart": CLOCKS_APART, "most_error": 300}
    deployment = past.rows.deployment.id
    await past.set_progress(past.now - HOUR)
    for statement, values in (
        (COUNT, {"since": past.now - HOUR, "until": past.now, **ids}),
        (SERVER, read),
        (CREWS, {**read, "deployments": [deployment]}),
        (DURATIONS, {**read, "deployment": deployment}),
    ):
        async with past.rows.database.transaction() as session:
            await session.execute(NO_SCANS)
            assert await rows_touched(past.rows, statement.as_string(), values, session) < 4 * OF_THE_TIME + FEW
