from __future__ import annotations

import asyncio
import itertools
import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import Place, World, kill_zygote_of, no_environment, zygotes
from lifecycle.waiting import until
from patience import DEADLINE
from projects_for_tests.ends import gone, kickoff_folders
from store.whole import loaded
from windlass.errors import DatabaseUnavailable, ProjectError
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import Outcome
from windlass.kickoffs.states import State
from windlass.lifecycle.worker_config import CrewEnvironment
from windlass.runner import Output, Preparing

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.claiming import Claimed


async def test_an_accepted_kickoff_is_run_to_its_end(world: World) -> None:
    await world.worker()
    kickoff = await world.accept(topic="tides", odd="\x00\ud800")
    status = await world.ended(kickoff)
    assert (status.state, status.attempt, status.reason, status.error) == (State.SUCCESS, 1, None, None)
    assert loaded(status.structured) == {"topic": "tides", "odd": "\x00\ufffd"}
    (task,) = loaded(status.tasks)
    assert (task["name"], task["state"]) == ("run", "completed")
    assert task["started_at"] <= task["finished_at"]
    (output,) = loaded(status.task_outputs)
    assert output["execution_time"] >= 0
    assert set(loaded(status.token_usage).values()) == {0}


async def test_claims_that_take_longer_than_the_lease_are_no_losses(world: World) -> None:
    waits = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    await world.worker(lease=2.5, renewal=0.25, max_losses=0)
    for _ in range(2):
        async with world.database.transaction() as other:
            await other.execute("SELECT pg_advisory_xact_lock(hashtextextended('claim', 0))")
            kickoff = await world.accept()
            await until(lambda: world.database.rows(waits))
            await asyncio.sleep(3)  # longer than the lease
        status = await world.ended(kickoff)
        assert (status.state, status.attempt, status.error) == (State.SUCCESS, 1, None)


async def test_the_start_of_a_process_is_recorded_though_it_reports_nothing(world: World) -> None:
    place = Place(world.folder / "place")
    await world.worker()
    kickoff = await world.accept(**place.inputs())
    started = "SELECT FROM kickoffs WHERE id = %(id)s AND process_started"
    await until(lambda: world.database.rows(started, {"id": kickoff}))
    place.let_go()
    assert (await world.ended(kickoff)).state is State.SUCCESS


async def test_a_run_whose_project_takes_long_to_import_waits_for_the_import(world: World) -> None:
    places = [Place(world.folder / name) for name in ("first", "second")]
    (code,) = world.project.glob("*.py")
    whole = code.read_text()
    seen: list[object] = []
    await world.worker(observers=[lambda _, report: seen.append(report)])

    async def until_waiting_for(kickoff: UUID, what: str | None) -> None:
        found = "SELECT FROM kickoffs WHERE id = %(id)s AND waiting_for IS NOT DISTINCT FROM %(what)s"
        await until(lambda: world.database.rows(found, {"id": kickoff, "what": what}))

    for place in places:  # the first one starts a zygote too
        imported = place.folder / "imported"
        wait = f"while not pathlib.Path({str(imported)!r}).exists():\n    time.sleep(0.005)\n"
        code.write_text(f"import pathlib, time\n{wait}{whole}")
        kickoff = await world.accept(**place.inputs())
        await until_waiting_for(kickoff, "import")
        imported.touch()
        await place.until_held()
        await until_waiting_for(kickoff, None)
        place.let_go()
        assert (await world.ended(kickoff)).state is State.SUCCESS
    assert Preparing("import") in seen


async def test_its_environment_is_asked_for_when_it_starts(world: World) -> None:
    asked: list[str] = []

    async def environment(claimed: Claimed) -> CrewEnvironment:
        asked.append(claimed.slug)
        return CrewEnvironment({"GIVEN": "by the worker"})

    await world.worker(environment)
    status = await world.ended(await world.accept(do="environment"))
    assert asked == [world.deployment.slug]
    assert loaded(status.structured)["GIVEN"] == "by the worker"


async def test_it_waits_for_its_environment_while_the_database_is_away(world: World) -> None:
    asked: list[int] = []

    async def environment(claimed: Claimed) -> CrewEnvironment:
        asked.append(claimed.attempt)
        if len(asked) == 1:
            raise DatabaseUnavailable("It does not answer.")
        return CrewEnvironment({"GIVEN": "later"})

    await world.worker(environment)
    status = await world.ended(await world.accept(do="environment"))
    assert loaded(status.structured)["GIVEN"] == "later"
    assert (asked, status.attempt) == ([1, 1], 1)


async def test_each_observer_receives_all_reports_of_a_run_in_order(world: World) -> None:
    first: list[tuple[UUID, object]] = []
    second: list[tuple[UUID, object]] = []
    ended = asyncio.Event()

    def to_first(claimed: Claimed, report: object) -> None:
        first.append((claimed.id, report))

    def to_second(claimed: Claimed, report: object) -> None:
        second.append((claimed.id, report))
        if isinstance(report, Outcome):
            ended.set()

    await world.worker(observers=[to_first, to_second])
    kickoff = await world.accept(do="print", lines=2)
    await asyncio.wait_for(ended.wait(), DEADLINE)
    reports = [report for _, report in first]
    assert first == second
    assert {seen for seen, _ in first} == {kickoff}
    assert reports[0] is None
    assert [report.line for report in reports if isinstance(report, Output)] == ["line 0", "line 1"]
    assert [type(report) for report in reports].count(Outcome) == 1


async def test_a_failure_is_the_crews(world: World) -> None:
    await world.worker()
    status = await world.ended(await world.accept(do="fail"))
    assert (status.state, status.reason, status.attempt) == (State.FAILED, "error", 1)
    assert "it could not be done" in (status.error or "")
    (task,) = loaded(status.tasks)
    assert task["state"] == "failed"
    (traceback,) = [event for event in await world.events(status.id) if event["type"] == "traceback"]
    assert traceback["payload"]["text"].endswith("ValueError: it could not be done\n")


@pytest.mark.parametrize(("do", "words"), [("exit", "exit code 3"), ("kill", "killed by SIGKILL")])
async def test_a_crash_is_told_and_not_tried_again(world: World, do: str, words: str) -> None:
    await world.worker()
    status = await world.ended(await world.accept(do=do))
    assert (status.state, status.reason, status.attempt) == (State.FAILED, "crashed", 1)
    assert words in (status.error or "")
    (task,) = loaded(status.tasks)
    assert task["state"] == "failed"


async def test_every_line_is_an_event_in_its_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.lifecycle.run_recorder.MOST_WAITING", 50)
    await world.worker()
    kickoff = await world.accept(do="print", lines=2000)
    await world.ended(kickoff)
    assert await world.lines(kickoff) == [f"line {number}" for number in range(2000)]
    seqs = [row["seq"] for row in await world.events(kickoff)]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_large_events_do_not_pile_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.lifecycle.run_recorder.MOST_BYTES_WAITING", 100)
    await world.worker()
    kickoff = await world.accept(do="print", lines=500)
    await world.ended(kickoff)
    assert len(await world.lines(kickoff)) == 500


async def test_what_arrives_together_runs_together_as_far_as_there_are_slots(world: World, place: Place) -> None:
    await world.worker(slots=2)
    kickoffs = [await world.accept(**place.inputs()) for _ in range(4)]
    await place.until_held(2)
    states = [(await world.status(kickoff)).state for kickoff in kickoffs]
    assert states == [State.STARTED, State.STARTED, State.PENDING, State.PENDING]
    place.let_go()
    for kickoff in kickoffs:
        assert (await world.ended(kickoff)).state is State.SUCCESS


async def test_two_workers_run_each_kickoff_once(world: World, place: Place) -> None:
    place.let_go()
    for _ in range(2):
        await world.worker(slots=3)
    kickoffs = [await world.accept(**place.inputs()) for _ in range(20)]
    for kickoff in kickoffs:
        assert (await world.ended(kickoff)).attempt == 1
    assert len(place.pids()) == 20


async def test_a_kickoff_of_a_silent_worker_is_run_by_another(world: World) -> None:
    kickoff = await world.accept()
    await world.store.claim(new_id(), 1, 0.0)
    await world.worker(lease=1.0, renewal=0.1)
    status = await world.ended(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 2)
    assert await world.losses(kickoff) == 0, "no process of it had started"


async def test_what_waited_while_there_was_no_worker_is_run(world: World) -> None:
    kickoff = await world.accept()
    await world.worker()
    assert (await world.ended(kickoff)).state is State.SUCCESS


async def test_a_worker_that_nobody_calls_looks_for_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.lifecycle.worker.LOOK_AGAIN", 0.05)
    await world.worker()
    await world.listener.stop()
    kickoff = await world.accept()

    async def has_ended() -> bool:
        return (await world.status(kickoff)).state.ended

    await until(has_ended)


async def test_a_run_whose_zygote_dies_is_run_again(
    world: World, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await world.worker()
    kickoff = await world.accept(**place.inputs())
    (first,) = await place.until_held()
    zygotes()[0].kill()
    await place.until_held(2)
    place.let_go()
    status = await world.ended(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 2)
    assert await world.losses(kickoff) == 1
    await gone(first)
    assert "kickoff.lost" in [record.message for record in caplog.records]


async def test_a_kickoff_that_is_lost_too_often_fails(world: World, place: Place) -> None:
    await world.worker(max_losses=1)
    kickoff = await world.accept(**place.inputs())
    for attempt in (1, 2):
        kill_zygote_of((await place.until_held(attempt))[-1])
    status = await world.ended(kickoff)
    assert (status.state, status.reason, status.attempt) == (State.FAILED, "lost", 2)
    assert "was lost 2 times" in (status.error or "")
    assert "the process that started it is gone" in (status.error or "")
    (task,) = loaded(status.tasks)
    assert task["state"] == "failed"


async def test_what_goes_wrong_in_the_worker_itself_is_tried_again(world: World) -> None:
    tries = itertools.count(1)

    async def broken_once(claimed: Claimed) -> CrewEnvironment:
        if next(tries) == 1:
            raise RuntimeError("a mistake of ours")
        return await no_environment(claimed)

    await world.worker(broken_once)
    status = await world.ended(await world.accept())
    assert (status.state, status.attempt) == (State.SUCCESS, 2)


async def test_what_goes_wrong_in_the_worker_itself_is_the_error_in_the_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: Claimed) -> CrewEnvironment:
        raise RuntimeError("a mistake of ours")

    await world.worker(broken, max_losses=0)
    status = await world.ended(await world.accept())
    assert (status.state, status.reason, status.attempt) == (State.FAILED, "lost", 1)
    assert "the worker could not run the kickoff (RuntimeError). See the server's log for the cause." in (
        status.error or ""
    )
    assert [record.message for record in caplog.records].count("worker.run_failed") == 1
    assert "a mistake of ours" in caplog.text


async def test_an_environment_that_the_project_spoils_is_the_projects_failure(world: World) -> None:
    async def unreadable(_: Claimed) -> CrewEnvironment:
        raise ProjectError("/project/.env can't be read.", "It must be UTF-8 text.")

    await world.worker(unreadable)
    status = await world.ended(await world.accept())
    assert (status.state, status.reason, status.attempt) == (State.FAILED, "error", 1)
    assert status.error == "/project/.env can't be read. It must be UTF-8 text."


async def test_a_project_that_is_gone_is_told(world: World) -> None:
    shutil.rmtree(world.project)
    await world.worker()
    status = await world.ended(await world.accept())
    assert (status.state, status.reason, status.attempt) == (State.FAILED, "error", 1)
    assert str(world.project) in (status.error or "")


async def test_the_interpreter_that_a_row_names_is_not_used(world: World) -> None:
    await world.database.execute(
        'UPDATE versions SET source = (source::jsonb || \'{"interpreter": "/gone/python"}\')::json'
    )
    await world.worker()
    status = await world.ended(await world.accept())
    assert (status.state, status.error) == (State.SUCCESS, None)


async def test_a_worker_that_stops_gives_its_kickoffs_back(
    world: World, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    worker = await world.worker()
    kickoff = await world.accept(**place.inputs())
    (first,) = await place.until_held()
    await worker.stop()
    await gone(first)
    assert kickoff_folders(world.folder / "runs") == []
    status = await world.status(kickoff)
    assert (status.state, status.attempt, await world.losses(kickoff)) == (State.PENDING, 1, 0)
    assert "kickoff.released" in [record.message for record in caplog.records]
    place.let_go()
    await world.worker()
    status = await world.ended(kickoff)
    assert (status.state, status.attempt, await world.losses(kickoff)) == (State.SUCCESS, 2, 0)


async def test_events_of_a_second_attempt_follow_those_of_the_first(world: World, place: Place) -> None:
    worker = await world.worker()
    kickoff = await world.accept(**place.inputs(talk=True))
    await place.until_held()

    async def has_talked(attempt: int) -> bool:
        return any(row["attempt"] == attempt for row in await world.events(kickoff))

    await until(lambda: has_talked(1))
    await worker.stop()
    await world.worker()
    await until(lambda: has_talked(2))
    place.let_go()
    await world.ended(kickoff)
    events = await world.events(kickoff)
    assert [row["seq"] for row in events] == list(range(1, len(events) + 1))
    attempts = [row["attempt"] for row in events]
    assert attempts == sorted(attempts)


async def test_a_worker_that_stops_gives_back_what_it_claimed_without_hearing_of_it(world: World) -> None:
    kickoff = await world.accept()
    worker = world.idle_worker()
    await world.store.claim(worker.id, 1, 60.0)
    await worker.stop()
    assert (await world.status(kickoff)).state is State.PENDING
    assert await world.losses(kickoff) == 0


async def test_stop_may_come_twice_and_before_start(world: World) -> None:
    worker = world.idle_worker()
    await worker.stop()
    await worker.start()
    await worker.start()
    assert worker.claiming
    await worker.stop()
    await worker.stop()
    assert not worker.claiming
