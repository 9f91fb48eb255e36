from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from windlass.kickoffs.ids import new_id
from windlass.kickoffs.waiting import waiting
from windlass.store.deployments import DeploymentStore
from windlass.store.ending import Interruption
from windlass.store.overview import DeploymentFilter, OverviewStore

if TYPE_CHECKING:
    from uuid import UUID

    from store.kickoff_rows import Rows
    from windlass.kickoffs.waiting import Waiting


@pytest.fixture
async def served(rows: Rows) -> Rows:
    """With a worker of two slots that is alive."""
    await rows.store.workers.seen(rows.worker, slots=2, lease=60.0)
    return rows


async def wait_of(rows: Rows, kickoff: UUID) -> Waiting:
    found = await told(rows, kickoff)
    assert found is not None
    return found


async def told(rows: Rows, kickoff: UUID) -> Waiting | None:
    return waiting((await rows.store.facts_of_waiting([kickoff]))[kickoff])


async def test_a_slot_and_its_place(served: Rows) -> None:
    await served.accept(2)
    await served.claim(slots=2)
    first, second, third = await served.accept(3)
    (urgent,) = await served.accept(priority=9)
    await (await served.beside("other")).accept(5)
    places = [(await wait_of(served, one)).place for one in (urgent, first, second, third)]
    assert places == [1, 2, 3, 4]
    assert (await wait_of(served, third)).message == (
        "a free slot: 2 of 2 are taken; it is the 4th in the queue of this crew"
    )


async def test_the_cap_of_the_crew(served: Rows) -> None:
    capped = await served.beside("capped", concurrency=1)
    await capped.accept(2)
    assert len(await capped.claim(slots=9)) == 1
    (behind,) = await capped.accept()
    found = await wait_of(capped, behind)
    assert (found.code, found.place) == ("concurrency", 2)


async def test_the_one_with_the_same_key(served: Rows) -> None:
    running = await served.started(concurrency_key="k")
    first, second = await served.accept(2, concurrency_key="k")
    assert str(running.id) in (await wait_of(served, first)).message
    found = await wait_of(served, second)
    assert (found.code, found.place) == ("key", 2)


async def test_who_started_the_one_with_the_same_key_is_known(served: Rows) -> None:
    owner = new_id()
    running = await served.started(concurrency_key="k", user_id=owner)
    (behind,) = await served.accept(concurrency_key="k")
    facts = (await served.store.facts_of_waiting([behind]))[behind]
    assert (facts.holder, facts.holder_user) == (str(running.id), owner)


async def test_its_time_and_its_next_attempt(served: Rows) -> None:
    (later,) = await served.accept(run_at=datetime.now(UTC) + timedelta(hours=1))
    assert (await wait_of(served, later)).code == "time"
    lost = await served.started()
    await served.requeue(lost)
    assert (await wait_of(served, lost.id)).code == "retry"


async def test_its_next_attempt_after_it_failed_or_was_lost_whichever_came_last(served: Rows) -> None:
    claimed = await served.started()
    assert await served.store.retry(claimed.id, 1, Interruption("no tea", claimed.usage), pause=60.0)
    found = await wait_of(served, claimed.id)
    assert (found.code, found.message.partition("Z: ")[2]) == ("retry", "it failed once, with: no tea")
    await served.come_due()
    (again,) = await served.claim()
    await served.requeue(again)
    assert (await wait_of(served, claimed.id)).message.endswith("its process or its worker was lost once")


async def test_its_paused_crew(served: Rows) -> None:
    (kickoff,) = await served.accept()
    await DeploymentStore(served.database).pause("work")
    assert (await wait_of(served, kickoff)).code == "paused"


async def test_a_worker_when_none_is_alive(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    assert (await wait_of(rows, kickoff)).code == "worker"
    await rows.store.workers.seen(rows.worker, slots=2, lease=60.0)
    assert (await wait_of(rows, kickoff)).code == "slot"
    await rows.store.workers.seen(rows.worker, slots=2, lease=0.0)
    assert (await wait_of(rows, kickoff)).code == "worker"


async def test_a_worker_that_runs_only_some_crews(rows: Rows) -> None:
    other = await rows.beside("other")
    (kickoff,), (elsewhere,) = await rows.accept(), await other.accept()
    await rows.store.workers.seen(rows.worker, slots=2, lease=60.0, deployments=["other", "third"])
    assert (await wait_of(rows, kickoff)).code == "worker"
    assert (await wait_of(rows, elsewhere)).code == "slot"
    claimed = await rows.store.claim(rows.worker, 2, 60.0, only=["other", "third"])
    assert [one.id for one in claimed] == [elsewhere]
    assert await rows.store.claim(rows.worker, 2, 60.0, only=[]) == []
    await rows.store.workers.seen(new_id(), slots=1, lease=60.0)
    assert (await wait_of(rows, kickoff)).message.startswith("a free slot: 1 of 1 is taken"), "of its own workers"
    assert [one.id for one in await rows.claim(slots=2)] == [kickoff]


async def test_a_worker_that_leaves_some_crews_out(rows: Rows) -> None:
    other = await rows.beside("other")
    (kickoff,), (elsewhere,) = await rows.accept(), await other.accept()
    await rows.store.workers.seen(rows.worker, slots=2, lease=60.0, excluded=["other"])
    assert (await wait_of(rows, kickoff)).code == "slot"
    assert (await wait_of(rows, elsewhere)).code == "worker"
    claimed = await rows.store.claim(rows.worker, 2, 60.0, excluded=["other", "third"])
    assert [one.id for one in claimed] == [kickoff]


async def test_a_worker_of_the_former_release_claims_as_before(rows: Rows) -> None:
    (kickoff,) = await rows.accept()
    claim = "SELECT id FROM claim_and_read(%(worker)s, 'here', 2, interval '60 s', NULL, '{}', '{}')"
    assert [row["id"] for row in await rows.database.rows(claim, {"worker": rows.worker})] == [kickoff]


async def test_the_end_of_its_processes_once_it_was_stopped(served: Rows) -> None:
    claimed = await served.started()
    await served.store.stop(claimed.id)
    assert (await wait_of(served, claimed.id)).code == "end"
    assert (await served.status(claimed.id)).waiting_for == "end"


async def test_a_zygote_while_its_worker_says_so(served: Rows) -> None:
    claimed = await served.started()
    assert await told(served, claimed.id) is None
    assert await served.write_reports(claimed.id, 1, [], [], waiting_for="zygote")
    assert (await wait_of(served, claimed.id)).code == "zygote"
    assert (await served.status(claimed.id)).waiting_for == "zygote"
    assert await served.write_reports(claimed.id, 1, [], [])
    assert await told(served, claimed.id) is None


async def test_what_it_waited_for_is_forgotten_however_its_run_ends(served: Rows) -> None:
    for end in ("settle", "requeue"):
        claimed = await served.started()
        await served.write_reports(claimed.id, 1, [], [], waiting_for="zygote")
        await getattr(served, end)(claimed)
        assert await served.column(claimed.id, "waiting_for") is None


async def test_nothing_when_it_has_ended_or_never_was(served: Rows) -> None:
    claimed = await served.started()
    await served.settle(claimed)
    assert await told(served, claimed.id) is None
    assert await served.store.facts_of_waiting([new_id()]) == {}


async def test_workers_are_forgotten_when_they_leave_or_are_silent_for_long(served: Rows) -> None:
    store = served.store.workers
    await store.seen(new_id(), slots=1, lease=60.0)
    assert await store.forget_silent() == 0
    await served.database.execute("UPDATE workers SET seen_at = now() - interval '2 hours' WHERE slots = 1")
    assert await store.forget_silent() == 1
    await store.leave(served.worker)
    assert await served.database.rows("SELECT FROM workers") == []


async def test_an_overview_counts_what_waits_and_runs(served: Rows) -> None:
    await served.accept(3)
    await served.accept(run_at=datetime.now(UTC) + timedelta(hours=1))
    await served.claim()
    await served.beside("idle", concurrency=2, weight=0.5)
    await DeploymentStore(served.database).pause("idle")
    idle, work = await OverviewStore(served.database).deployments(DeploymentFilter(), limit=9)
    assert (work.slug, work.waiting, work.running, work.concurrency, work.weight) == ("work", 3, 1, None, 1)
    assert (idle.slug, idle.waiting, idle.running, idle.concurrency, idle.weight) == ("idle", 0, 0, 2, 0.5)
    assert (work.paused_at, idle.last_kickoff_at) == (None, None)
    assert idle.paused_at is not None
    assert work.last_kickoff_at is not None
