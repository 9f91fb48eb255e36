"""What a worker does with what waits: limits and options of runs, times, keys, pauses, refusals."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lifecycle.waiting import until
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.outcome import Outcome, TokenUsage
from windlass.kickoffs.states import State
from windlass.lifecycle.accept import Acceptor, KeyInUse, QueueFull
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.reporting import Batch

if TYPE_CHECKING:
    from lifecycle.running import Place, World
    from windlass.runner import RunSpec

OPTIONS = {"preload": "project", "start": "exec", "reuse": 5, "limits": {"timeout": 50, "token_limit": 7}}


@pytest.fixture
def orders(world: World, monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """What the runner was told to run."""
    told: list[RunSpec] = []

    async def run(order: RunSpec, *_: Any) -> Outcome:
        told.append(order)
        return Outcome(State.SUCCESS, output="done")

    monkeypatch.setattr(world.runner, "run", run)
    return told


async def test_a_run_gets_the_options_of_its_version_and_the_least_of_all_limits(
    world: World, orders: list[RunSpec]
) -> None:
    source = world.version.source | {"options": OPTIONS}
    store = DeploymentStore(world.database)
    world.deployment = await store.register(
        world.deployment.slug, digest="e", source=source, manifest=world.version.manifest
    )
    await world.worker(limits=Limits(timeout=10, output_limit=1000, memory_limit=5))
    new = replace(world.new({}), limits='{"timeout": 20, "output_limit": 2000, "memory_limit": 4}')
    await world.store.accept([new])
    await world.ended(new.id)
    (order,) = orders
    assert order.limits == Limits(timeout=20, output_limit=1000, memory_limit=4, token_limit=7)
    assert order.seconds_left is not None
    assert 19 < order.seconds_left <= 20, "what was spent since the claim counts"
    assert (order.preload_project, order.start, order.isolated) == (True, "exec", False)
    assert (order.reuse, order.version) == (5, f"{world.deployment.id} e")


async def test_one_that_lost_its_process_is_run_alone_with_what_is_left_of_its_time(
    world: World, orders: list[RunSpec]
) -> None:
    kickoff = await world.accept()
    await world.store.claim(world.deployment.id, 1, 0.0)
    await world.database.execute("UPDATE kickoffs SET started_at = now() - interval '40 s', isolated = true")
    await world.worker(renewal=0.1, limits=Limits(timeout=60))
    await world.ended(kickoff)
    (order,) = orders
    assert order.isolated
    assert order.seconds_left is not None
    assert 10 < order.seconds_left <= 20


async def test_what_earlier_attempts_have_used_up_counts(world: World, orders: list[RunSpec]) -> None:
    kickoff = await world.accept()
    await world.store.claim(world.deployment.id, 1, 0.0)
    usage = TokenUsage(total_tokens=70)
    assert await world.store.write_reports(kickoff, 1, Batch(usage=usage, model_calls=4))
    await world.worker(renewal=0.1)
    await world.ended(kickoff)
    (order,) = orders
    assert (order.tokens_used, order.model_calls_made) == (70, 4)


async def test_one_whose_time_is_used_up_is_not_started_again(world: World, orders: list[RunSpec]) -> None:
    kickoff = await world.accept()
    await world.store.claim(world.deployment.id, 1, 0.0)
    await world.database.execute("UPDATE kickoffs SET started_at = now() - interval '61 s'")
    await world.worker(renewal=0.1, limits=Limits(timeout=60))
    status = await world.ended(kickoff)
    assert (status.state, status.reason) == (State.TIMED_OUT, "timed_out")
    assert "timeout of 60 s" in (status.error or "")
    assert orders == []


async def test_a_kickoff_starts_when_its_time_has_come(world: World) -> None:
    await world.worker()
    at = datetime.now(UTC) + timedelta(seconds=1)
    new = world.new({}, run_at=at)
    await world.store.accept([new])
    status = await world.ended(new.id)
    assert status.state is State.SUCCESS
    assert status.started_at is not None
    assert status.started_at >= at


async def test_kickoffs_of_one_key_run_one_after_the_other(world: World) -> None:
    await world.worker()
    many = [world.new({}, concurrency_key="k") for _ in range(4)]
    await world.store.accept(many)
    spans = [(status.started_at, status.finished_at) for status in [await world.ended(new.id) for new in many]]
    ends = [end for span in spans for end in span if end]
    assert len(ends) == 8
    assert ends == sorted(ends)


async def test_a_newer_kickoff_takes_the_place_of_a_running_one(world: World, place: Place) -> None:
    await world.worker(renewal=600.0)
    old = world.new(place.inputs(), concurrency_key="k")
    await world.store.accept([old])
    await place.until_held()
    new = world.new({}, concurrency_key="k", concurrency_strategy="cancel_running")
    await world.store.accept([new])
    assert (await world.ended(new.id)).state is State.SUCCESS
    status = await world.ended(old.id)
    assert (status.state, status.error) == (
        State.CANCELLED,
        "a newer kickoff with the same concurrencyKey took its place.",
    )


@pytest.mark.parametrize("slots", [1, 4])
async def test_twenty_behind_five_hundred_of_another_crew_have_their_turn_at_once(
    world: World, orders: list[RunSpec], slots: int
) -> None:
    other = await DeploymentStore(world.database).register(
        "other", digest="d", source=world.version.source, manifest=world.version.manifest
    )
    assert other.version is not None
    await world.store.accept([world.new({}) for _ in range(500)])
    few = [replace(world.new({}), deployment_id=other.id, version_id=other.version.id) for _ in range(20)]
    await world.store.accept(few)
    await world.worker(slots=slots)
    for new in few:
        await world.ended(new.id)
    mine = {str(new.id) for new in few}
    places = [at for at, order in enumerate(orders) if order.kickoff_id in mine]
    assert places[0] < max(slots, 2)
    assert places[-1] < 20 * 3 + 2 * slots  # half of the starts, and some more when a run of the other crew ends sooner


async def test_a_paused_crew_starts_nothing_until_it_is_resumed(world: World, orders: list[RunSpec]) -> None:
    store, slug = DeploymentStore(world.database), world.deployment.slug
    assert await store.pause(slug)
    worker = await world.worker()
    kickoff = await world.accept()

    async def has_looked() -> bool:
        waiting = await world.statuses.waiting(kickoff, None)
        return waiting is not None and waiting.code == "paused" and bool(await workers(world))

    await until(has_looked)
    assert orders == []
    assert await store.resume(slug)
    await world.ended(kickoff)
    assert not await store.pause("nobody")
    assert not await store.resume("nobody")
    await worker.stop()
    assert await workers(world) == []


async def test_a_full_queue_is_told_with_when_to_come_again(world: World) -> None:
    acceptor = Acceptor(KickoffStore(world.database, max_waiting=2))
    first = world.new({}, idempotency_key="a", request_digest=b"r")
    await acceptor.accept(first)
    await acceptor.accept(world.new({}))
    with pytest.raises(QueueFull) as caught:
        await acceptor.accept(world.new({}, idempotency_key="b", request_digest=b"r"))
    assert (caught.value.waiting, caught.value.max_waiting, caught.value.retry_after) == (2, 2, 1)
    again = world.new({}, idempotency_key="a", request_digest=b"r")
    assert await acceptor.accept(again) == first.id


@pytest.mark.parametrize(("waiting", "seconds"), [(1, 1), (500, 5), (10_000, 60), (10**9, 60)])
def test_one_comes_again_the_later_the_more_wait(waiting: int, seconds: int) -> None:
    assert QueueFull(waiting, waiting).retry_after == seconds


async def test_a_key_in_use_is_told_with_who_has_it(world: World) -> None:
    acceptor = Acceptor(world.store)
    first = world.new({}, concurrency_key="k", concurrency_strategy="reject", idempotency_key="a", request_digest=b"r")
    await acceptor.accept(first)
    with pytest.raises(KeyInUse, match=str(first.id)) as caught:
        await acceptor.accept(world.new({}, concurrency_key="k", concurrency_strategy="reject"))
    assert caught.value.kickoff_id == first.id
    again = replace(first, id=world.new({}).id)
    assert await acceptor.accept(again) == first.id


async def test_of_those_that_come_together_for_one_key_one_is_accepted(world: World) -> None:
    acceptor = Acceptor(world.store)
    many = [world.new({}, concurrency_key="k", concurrency_strategy="reject") for _ in range(10)]
    answers = await asyncio.gather(*map(acceptor.accept, many), return_exceptions=True)
    assert [type(answer) for answer in answers].count(KeyInUse) == 9


async def workers(world: World) -> list[dict[str, Any]]:
    return await world.database.rows("SELECT host, pid, slots FROM workers")
