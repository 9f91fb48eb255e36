from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin
from windlass.kickoffs.outcome import TokenUsage
from windlass.store.ending import Interruption
from windlass.store.reporting import Batch, JournalEntry
from windlass_child.protocol.messages import TaskEnded

if TYPE_CHECKING:
    from api.runs import Run
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOST = "its process was lost"
WRITER = "7d793037a0760186574b0282f2f435e7"
"""The second task of the crew has no name: its id."""


async def attempts_of(crew: Crew, kickoff: str, **more: Any) -> list[dict[str, Any]]:
    answer = await crew.get(f"/attempts/{kickoff}", **more)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["kickoff_id"] == kickoff
    attempts: list[dict[str, Any]] = found["attempts"]
    return attempts


async def begin_again(crew: Crew, kickoff: str) -> Run:
    """The next attempt of a kickoff that waits to be tried again."""
    due = "UPDATE kickoffs SET run_at = now() WHERE id = %(id)s::uuid AND run_at IS NOT NULL"
    await crew.server.database.execute(due, {"id": kickoff})
    await crew.server.kickoffs.promote()
    return await begin(crew, kickoff)


async def finish(run: Run, position: int, *, journaled: bool = True) -> None:
    await run.start_task(position)
    await run.end_task(position)
    if journaled:
        entries = [JournalEntry(position + 1, f"task {position}", "sealed", position)]
        assert await run.store.write_reports(run.claimed.id, run.claimed.attempt, Batch(entries=entries))


async def test_a_kickoff_that_has_not_begun_has_no_attempt(crew: Crew) -> None:
    assert await attempts_of(crew, await crew.kickoff()) == []


async def test_an_attempt_that_runs_has_no_end(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    (attempt,) = await attempts_of(crew, kickoff)
    assert attempt.pop("host")
    assert attempt.pop("started_at") == (await crew.status(kickoff))["started_at"]
    nothing: dict[str, Any] = {"ended_at": None, "ended_as": None, "why": None, "restored": 0, "from_journal": []}
    assert attempt == {"attempt": 1, "ran": ["research"], **nothing}


async def test_what_the_journal_held_is_told_of_the_attempt_that_took_it(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await finish(run, 0)
    await run.start_task(1)
    await run.requeue()
    again = await begin_again(crew, kickoff)
    await finish(again, 1)
    await again.succeed()
    first, second = await attempts_of(crew, kickoff)
    assert (first["ended_as"], first["why"], first["ran"]) == ("lost", LOST, ["research"])
    assert (second["ended_as"], second["why"], second["ran"]) == ("SUCCESS", None, [WRITER])
    assert (second["restored"], second["from_journal"]) == (1, ["research"])
    assert first["started_at"] < first["ended_at"] < second["started_at"] < second["ended_at"]


async def test_a_task_that_was_under_way_is_told_until_another_attempt_runs_it(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    await run.requeue()
    (first,) = await attempts_of(crew, kickoff)
    assert first["ran"] == ["research"]
    await (await begin_again(crew, kickoff)).start_task(0)
    assert [attempt["ran"] for attempt in await attempts_of(crew, kickoff)] == [[], ["research"]]


async def test_what_was_not_journaled_is_not_told_to_come_from_the_journal(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await finish(run, 0, journaled=False)
    await run.requeue()
    await begin_again(crew, kickoff)
    _, second = await attempts_of(crew, kickoff)
    assert (second["restored"], second["from_journal"]) == (0, [])


async def test_a_skipped_task_was_not_run(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await finish(run, 0)
    run.records.end(TaskEnded(1, "skipped", time.time(), None))
    assert await run.store.write_reports(run.claimed.id, 1, Batch(records=run.records.take_changed()))
    await run.succeed()
    (attempt,) = await attempts_of(crew, kickoff)
    assert attempt["ran"] == ["research"]


async def test_an_attempt_that_failed_and_is_tried_again_says_so_and_so_does_the_status(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    claimed = run.claimed
    assert await run.store.retry(claimed.id, claimed.attempt, Interruption("no tea.", TokenUsage()), pause=60.0)
    (attempt,) = await attempts_of(crew, kickoff)
    assert (attempt["ended_as"], attempt["why"]) == ("retried", "no tea.")
    waiting = (await crew.status(kickoff))["waiting_for"]
    assert waiting["code"] == "retry"
    assert waiting["message"].endswith(": it failed once, with: no tea")


async def test_a_kickoff_that_was_given_back_says_so(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    row = await crew.row(kickoff)
    await run.store.release(row["worker_id"])
    (attempt,) = await attempts_of(crew, kickoff)
    assert (attempt["ended_as"], attempt["why"]) == ("released", "its worker stopped")


async def test_a_kickoff_that_failed_says_with_what(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.fail(error="the tool is broken")
    (attempt,) = await attempts_of(crew, kickoff)
    assert (attempt["ended_as"], attempt["why"]) == ("FAILED", "the tool is broken")


async def test_of_very_many_attempts_the_newest_are_told(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    more = (
        "INSERT INTO attempts (kickoff_id, attempt, worker_id, host) "
        "SELECT %(id)s, number, %(id)s, 'elsewhere' FROM generate_series(2, 150) AS number"
    )
    await crew.server.database.execute(more, {"id": run.claimed.id})
    assert [attempt["attempt"] for attempt in await attempts_of(crew, kickoff)] == list(range(51, 151))


async def test_a_user_sees_the_attempts_of_its_own_kickoff(crew: Crew) -> None:
    kickoff = await crew.kickoff(token=crew.user_token)
    await begin(crew, kickoff)
    assert len(await attempts_of(crew, kickoff, token=crew.user_token)) == 1


async def test_an_error_with_any_character_is_told_as_it_is(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    claimed = run.claimed
    why = '\N{GREEK SMALL LETTER LAMDA} \x1b[31m "quoted"'
    await run.store.requeue(claimed.id, claimed.attempt, Interruption(why, replace(claimed.usage)), max_losses=3)
    (attempt,) = await attempts_of(crew, kickoff)
    assert attempt["why"] == why
