"""A kickoff that asks a person pauses, one answer counts, and it goes on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from store.kickoff_rows import DONE, FAILED, Rows
from windlass.kickoffs.events import StoredEvent
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import STOPPED, TokenUsage
from windlass.kickoffs.questions import Answer, AnsweredQuestion, Question, key_of
from windlass.kickoffs.states import State, TaskState
from windlass.kickoffs.tasks import TaskRecord
from windlass.store.audit import Actor
from windlass.store.ending import StopFilter
from windlass.store.questions import AnswerKey
from windlass.store.reporting import Batch, JournalEntry
from windlass.store.retention import RetentionStore
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.kickoffs.questions import QuestionRow
    from windlass.store.claiming import Claimed

ANN = Actor(None, "ann", way="token")
YES = Answer(approved=True)
ASKED = TaskRecord(1, "bb", "bb", None, None, TaskState.PENDING_HUMAN_INPUT, started_at=1.0, execution_time=2.5)
DONE_TASK = TaskRecord(0, "plan", "aa", "plan", "Guide", TaskState.COMPLETED, output="one", execution_time=1.0)


def question(rows: Rows, number: int = 2, **fields: Any) -> Question:
    made = Question(
        new_id(), rows.deployment.id, number, f"question {number}", "Is this good?", "# A draft", position=1
    )
    return replace(made, **fields)


def batch(asked: Question, records: Sequence[TaskRecord] = (DONE_TASK, ASKED)) -> Batch:
    return Batch(
        [StoredEvent(asked.number, "asks", 1.0, "{}")],
        list(records),
        entries=[JournalEntry(asked.number, f"question {asked.number}", "sealed")],
        questions=[asked],
        usage=TokenUsage(total_tokens=7),
        waiting_for="human" if asked.waits else None,
    )


async def paused(rows: Rows, claimed: Claimed, **fields: Any) -> QuestionRow:
    asked = question(rows, **fields)
    assert await rows.store.pause(claimed.id, claimed.attempt, batch(asked)) is State.PENDING_HUMAN_INPUT
    return await found(rows, asked)


async def found(rows: Rows, asked: Question) -> QuestionRow:
    row = await rows.store.question(asked.id)
    assert row is not None
    return row


async def waits_alive(rows: Rows, claimed: Claimed, **fields: Any) -> QuestionRow:
    asked = question(rows, waits=True, **fields)
    assert await rows.store.write_reports(claimed.id, claimed.attempt, batch(asked))
    return await found(rows, asked)


async def test_one_that_asks_holds_no_worker_and_shows_what_is_asked(rows: Rows) -> None:
    claimed = await rows.started()
    asked = await paused(rows, claimed, choices=["good", "bad"], seconds=60.0)
    status = await rows.status(claimed.id)
    assert (status.state, status.current_task) == (State.PENDING_HUMAN_INPUT, "bb")
    shown = json.loads(str(status.human_input))
    assert (shown["task_id"], shown["task"], shown["draft"]) == (str(asked.id), "bb", "# A draft")
    assert shown["response_schema"] == {"type": "string", "enum": ["good", "bad"]}
    assert shown["expires_at"] > shown["asked_at"]
    assert [task["state"] for task in await rows.tasks(claimed.id)] == ["pending_run", "pending_human_input"]
    assert [await rows.column(claimed.id, name) for name in ("worker_id", "lease_until")] == [None, None]
    assert await rows.claim(slots=9) == []
    (attempt,) = await rows.store.attempts(claimed.id)
    assert (attempt.ended_as, attempt.why, attempt.ended_at is not None) == ("paused", None, True)


async def test_an_answer_lets_it_go_on_with_what_was_finished_and_spent(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.write_reports(claimed.id, 1, records=[DONE_TASK])
    entry = JournalEntry(1, "plan", "sealed", position=0)
    assert await rows.store.write_reports(claimed.id, 1, Batch(entries=[entry], process_started=True))
    asked = await paused(rows, claimed)
    assert (
        await rows.store.answer(asked.id, Answer(approved=False, feedback="shorter"), ANN) is State.PENDING_HUMAN_INPUT
    )
    (again,) = await rows.claim()
    assert (again.id, again.attempt, again.asked) == (claimed.id, 2, True)
    assert again.usage.total_tokens == 7
    assert await rows.store.answers_of(again.id, 2) == [AnsweredQuestion(2, Answer(approved=False, feedback="shorter"))]
    assert [entry.number for entry in await rows.store.journal(again.id)] == [1, 2]
    assert [task["state"] for task in await rows.tasks(again.id)] == ["completed", "pending_run"]
    assert await rows.column(again.id, "losses") == 0
    assert (await rows.status(again.id)).human_input is None
    records = {record.position: record for record in await rows.store.earlier_records(again.id)}
    assert records[1].execution_time == 2.5


async def test_the_time_of_a_pause_is_no_time_of_the_run(rows: Rows) -> None:
    claimed = await rows.started()
    asked = await paused(rows, claimed)
    await rows.database.execute(
        "UPDATE kickoffs SET started_at = started_at - interval '1 hour', paused_at = paused_at - interval '50 minutes'"
    )
    assert (await rows.status(claimed.id)).paused_for.total_seconds() == pytest.approx(3000, abs=30)
    await rows.store.answer(asked.id, YES, ANN)
    (again,) = await rows.claim()
    assert again.ran_for == pytest.approx(600, abs=30)
    await rows.settle(again)
    status = await rows.status(claimed.id)
    assert status.finished_at is not None
    assert status.started_at is not None
    took = status.finished_at - status.started_at - status.paused_for
    assert took.total_seconds() == pytest.approx(600, abs=30)


async def test_of_answers_at_one_instant_one_counts(rows: Rows) -> None:
    for _ in range(10):
        claimed = await rows.started()
        asked = await paused(rows, claimed)
        answers = [Answer(approved=True, feedback=str(number)) for number in range(4)]
        done = await asyncio.gather(*(rows.store.answer(asked.id, one, ANN) for one in answers))
        assert sorted(map(str, done)) == [*["None"] * 3, "PENDING_HUMAN_INPUT"]
        winner = next(one for one, state in zip(answers, done, strict=True) if state)
        (again,) = await rows.claim()
        assert await rows.store.answers_of(again.id, 2) == [AnsweredQuestion(2, winner)]
        await rows.settle(again)


async def test_of_a_stop_and_an_answer_at_one_instant_the_stop_wins_or_ends_what_goes_on(rows: Rows) -> None:
    for _ in range(10):
        claimed = await rows.started()
        asked = await paused(rows, claimed)
        state, stopped = await asyncio.gather(rows.store.answer(asked.id, YES, ANN), rows.store.stop(claimed.id))
        assert stopped is State.CANCELLED
        assert state in {None, State.PENDING_HUMAN_INPUT}
        assert await rows.claim(slots=9) == []


async def test_a_stop_of_one_that_waits_ends_it_and_its_question(rows: Rows) -> None:
    claimed = await rows.started()
    asked = await paused(rows, claimed)
    assert await rows.store.stop(claimed.id) is State.CANCELLED
    assert not (await found(rows, question(rows, id=asked.id))).is_open
    assert await rows.store.answer(asked.id, YES, ANN) is None
    assert await rows.store.open_questions() == []
    assert [one.ended_as for one in await rows.store.attempts(claimed.id)] == ["paused"]


async def test_a_stop_that_was_confirmed_wins_over_the_pause(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.store.stop(claimed.id)
    asked = question(rows)
    assert await rows.store.pause(claimed.id, 1, batch(asked)) is State.CANCELLED
    status = await rows.status(claimed.id)
    assert (status.state, status.error, status.human_input) == (State.CANCELLED, STOPPED, None)
    assert not (await found(rows, asked)).is_open


async def test_a_run_that_has_lost_its_kickoff_pauses_nothing(rows: Rows) -> None:
    claimed = await rows.silent()
    await rows.store.reap(max_losses=3)
    asked = question(rows)
    assert await rows.store.pause(claimed.id, 1, batch(asked)) is None
    assert await rows.store.question(asked.id) is None


async def test_a_process_that_waits_alive_keeps_its_lease_and_shows_the_same_state(rows: Rows) -> None:
    claimed = await rows.started()
    asked = await waits_alive(rows, claimed)
    assert (await rows.status(claimed.id)).state is State.PENDING_HUMAN_INPUT
    assert await rows.column(claimed.id, "state") == "STARTED"
    assert await rows.store.renew(rows.worker, [claimed.id], 60.0) == {(claimed.id, 1): False}
    assert await rows.store.answer(asked.id, YES, ANN) is State.STARTED
    assert (await rows.status(claimed.id)).state is State.STARTED
    assert await rows.store.answers_of(claimed.id, 1, [asked.number]) == [AnsweredQuestion(2, YES)]


async def test_a_stop_of_those_that_wait_for_a_person_finds_a_process_that_waits_alive_too(rows: Rows) -> None:
    alive, without = await rows.started(), await rows.started()
    await waits_alive(rows, alive)
    await paused(rows, without)
    found = await rows.store.matching(StopFilter(rows.deployment.id, [State.PENDING_HUMAN_INPUT]))
    assert found is not None
    assert (found.waiting, found.running) == ([without.id], [alive.id])
    assert await rows.store.matching(StopFilter(rows.deployment.id, [State.STARTED])) is None


async def test_of_two_questions_of_one_process_the_state_waits_for_both(rows: Rows) -> None:
    claimed = await rows.started()
    first, second = await waits_alive(rows, claimed), await waits_alive(rows, claimed, number=3)
    await rows.store.answer(first.id, YES, ANN)
    status = await rows.status(claimed.id)
    assert status.state is State.PENDING_HUMAN_INPUT
    assert json.loads(str(status.human_input))["task_id"] == str(second.id)
    await rows.store.answer(second.id, YES, ANN)
    assert (await rows.status(claimed.id)).state is State.STARTED


async def test_a_question_of_a_lost_process_can_be_answered_until_it_is_asked_anew(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.begin(claimed)
    asked = await waits_alive(rows, claimed)
    await rows.requeue(claimed)
    assert [one.id for one in await rows.store.open_questions()] == [asked.id]
    await rows.come_due()
    (again,) = await rows.claim()
    later = question(rows, number=3, waits=True)
    assert await rows.store.write_reports(again.id, 2, batch(later))
    assert [one.id for one in await rows.store.open_questions()] == [later.id]
    assert await rows.store.answer(asked.id, YES, ANN) is None


async def test_a_later_attempt_may_ask_the_same_again(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.begin(claimed)
    asked = await waits_alive(rows, claimed)
    await rows.requeue(claimed)
    await rows.come_due()
    (again,) = await rows.claim()
    assert await rows.store.write_reports(again.id, 2, batch(question(rows, number=7, key="question 2", waits=True)))
    (row,) = await rows.store.open_questions()
    assert (row.id, row.number) == (asked.id, 7)
    assert await rows.store.asked_before(again.id, "question 2") == (asked.id, asked.asked_at)
    assert await rows.store.asked_before(again.id, "question 3") is None


@pytest.mark.parametrize("given", [{}, {"draft": "# Another draft"}, {"text": "Is this better?"}])
async def test_a_question_about_another_draft_is_another_one(given: dict[str, str]) -> None:
    seen = {"text": "Is this good?", "draft": "# A draft \ud800", **given}
    same = key_of("review#human.1", "Is this good?", "# A draft \ud800")
    assert (key_of("review#human.1", **seen) == same) is (not given)
    assert key_of("review#human.1", "a", Encoded(b'"b"')) != same


async def test_an_attempt_that_pauses_with_an_answered_question_goes_on_at_once(rows: Rows) -> None:
    claimed = await rows.started()
    await rows.begin(claimed)
    asked = await waits_alive(rows, claimed)
    await rows.requeue(claimed)
    await rows.come_due()
    (again,) = await rows.claim()
    assert await rows.store.answer(asked.id, YES, ANN) is State.STARTED
    assert await rows.store.pause(again.id, 2, batch(question(rows, number=7, key="question 2")))
    (third,) = await rows.claim()
    assert (third.id, third.attempt) == (claimed.id, 3)
    assert await rows.store.answers_of(third.id, 3) == [AnsweredQuestion(7, YES)]


async def test_a_time_limit_fails_the_kickoff_with_the_reason(rows: Rows) -> None:
    claimed = await rows.started()
    await paused(rows, claimed, seconds=60.0)
    assert await rows.store.expire_questions() == []
    await over(rows)
    (expired,) = await rows.store.expire_questions()
    assert (expired.kickoff_id, expired.answer) == (claimed.id, None)
    status = await rows.status(claimed.id)
    assert (status.state, status.reason) == (State.TIMED_OUT, "timed_out")
    assert "nobody answered the question of its crew within 60 s (approval_timeout)" in (status.error or "")
    assert await rows.store.expire_questions() == []


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("approve", YES),
        ("reject", Answer(approved=False)),
        ("good", Answer(approved=True, feedback="good")),
    ],
)
async def test_a_time_limit_answers_as_the_settings_want(rows: Rows, word: str, answer: Answer) -> None:
    claimed = await rows.started()
    await paused(rows, claimed, seconds=60.0, on_timeout=word, choices=["good", "bad"])
    await over(rows)
    assert [one.answer for one in await rows.store.expire_questions()] == [answer]
    (again,) = await rows.claim()
    assert await rows.store.answers_of(again.id, 2) == [AnsweredQuestion(2, answer)]
    (entry,) = await audit_of(rows, claimed)
    assert (entry["user"], entry["details"]["approved"]) == ("(time limit)", answer.approved)


async def test_a_time_limit_rejects_the_result_of_a_task_once_in_a_row(rows: Rows) -> None:
    claimed = await rows.started()
    await paused(rows, claimed, seconds=60.0, on_timeout="reject")
    await over(rows)
    assert [one.answer for one in await rows.store.expire_questions()] == [Answer(approved=False)]
    (second,) = await rows.claim()
    asked = await paused(rows, second, number=5, seconds=60.0, on_timeout="reject")
    await rows.store.answer(asked.id, Answer(approved=False, feedback="shorter"), ANN)
    (third,) = await rows.claim()
    await paused(rows, third, number=8, seconds=60.0, on_timeout="reject")
    await over(rows)
    assert [one.answer for one in await rows.store.expire_questions()] == [Answer(approved=False)]
    (fourth,) = await rows.claim()
    await paused(rows, fourth, number=11, seconds=60.0, on_timeout="reject")
    await over(rows)
    assert [one.answer for one in await rows.store.expire_questions()] == [None]
    status = await rows.status(claimed.id)
    assert (status.state, status.reason) == (State.TIMED_OUT, "timed_out")
    assert "within 60 s (approval_timeout) again" in (status.error or "")


async def test_a_time_limit_answers_a_flow_that_loops_ten_times_in_a_row(rows: Rows) -> None:
    claimed = await rows.started()
    for number in range(1, 12):
        await paused(rows, claimed, number=number, method="review", seconds=60.0, on_timeout="again")
        await over(rows)
        (expired,) = await rows.store.expire_questions()
        if number < 11:
            assert expired.answer == Answer(approved=True, feedback="again")
            (claimed,) = await rows.claim()
    assert expired.answer is None
    status = await rows.status(claimed.id)
    assert (status.state, status.reason) == (State.TIMED_OUT, "timed_out")


async def test_a_process_that_waits_alive_ends_itself_when_the_time_is_over(rows: Rows) -> None:
    claimed = await rows.started()
    asked = await waits_alive(rows, claimed, seconds=60.0)
    await over(rows)
    assert len(await rows.store.expire_questions()) == 1
    assert await rows.column(claimed.id, "state") == "STARTED"
    assert await rows.store.answers_of(claimed.id, 1, [asked.number]) == [AnsweredQuestion(2, None)]


async def test_the_audit_log_has_who_answered_what_and_not_the_words(rows: Rows) -> None:
    claimed = await rows.started()
    asked = await paused(rows, claimed)
    await rows.store.answer(asked.id, Answer(approved=False, feedback="a secret thought"), ANN)
    (entry,) = await audit_of(rows, claimed)
    assert (entry["user"], entry["details"]) == (
        "ann",
        {"deployment": "work", "question": str(asked.id), "approved": False},
    )
    answered = await rows.store.question(asked.id)
    assert answered is not None
    assert (answered.answered_by, answered.feedback) == ("ann (token)", "a secret thought")


@pytest.mark.parametrize("name", ["the question", "bb", "review"])
async def test_a_question_is_found_by_its_id_and_by_its_task(rows: Rows, name: str) -> None:
    claimed = await rows.started()
    asked = await paused(rows, claimed, method="review")
    wanted = str(asked.id) if name == "the question" else name
    row = await rows.store.question_of(claimed.id, wanted)
    assert row is not None
    assert row.id == asked.id
    assert await rows.store.question_of(claimed.id, "plan") is None
    assert await rows.store.has_task(claimed.id, "plan")
    assert not await rows.store.has_task(claimed.id, "other")


async def test_the_same_answer_with_the_same_key_is_known(rows: Rows) -> None:
    claimed = await rows.started()
    asked = await paused(rows, claimed)
    key = AnswerKey("once", b"digest")
    await rows.store.answer(asked.id, YES, ANN, key)
    assert await rows.store.is_repeated(asked.id, key) is True
    assert await rows.store.is_repeated(asked.id, AnswerKey("once", b"other")) is False
    assert await rows.store.is_repeated(asked.id, AnswerKey("twice", b"digest")) is None


async def test_a_large_draft_is_stored_and_read_in_pieces(rows: Rows) -> None:
    claimed = await rows.started()
    draft = "long text " * 600_000
    asked = await paused(rows, claimed, draft=draft)
    shown = json.loads(str((await rows.status(claimed.id)).human_input))
    assert shown["draft"] == draft
    assert await rows.store.draft(asked.id, most=9) == ("long text", len(draft))


async def test_a_draft_with_any_characters_is_shown(rows: Rows) -> None:
    claimed = await rows.started()
    draft = 'a\0b \ud83d\ude00 "quoted" \\ end'.encode("utf-16", "surrogatepass").decode("utf-16")
    asked = await paused(rows, claimed, draft=draft)
    assert json.loads(str((await rows.status(claimed.id)).human_input))["draft"] == draft
    assert await rows.store.draft(asked.id, most=100) == (draft.replace("\0", "\ufffd"), len(draft))


async def test_a_deleted_kickoff_leaves_no_question(rows: Rows) -> None:
    claimed = await rows.started()
    asked = await paused(rows, claimed)
    await rows.store.stop(claimed.id)
    await RetentionStore(rows.database).drop_kickoffs([claimed.id])
    assert await rows.store.question(asked.id) is None
    assert await rows.database.rows("SELECT FROM questions") == []


async def test_a_key_is_held_while_a_person_is_asked(rows: Rows) -> None:
    first, second = await rows.accept(), None
    del first
    claimed = (await rows.claim())[0]
    await rows.settle(claimed, FAILED)
    await rows.accept(concurrency_key="k")
    (holder,) = await rows.claim()
    (second,) = await rows.accept(concurrency_key="k")
    asked = await paused(rows, holder)
    assert await rows.claim(slots=9) == []
    await rows.store.answer(asked.id, YES, ANN)
    (again,) = await rows.claim(slots=9)
    assert again.id == holder.id
    await rows.settle(again, DONE)
    assert await rows.claimed_ids(slots=9) == [second]


async def over(rows: Rows) -> None:
    await rows.database.execute(
        "UPDATE questions SET expires_at = now() - interval '1 s', asked_at = now() - interval '61 s'"
    )


async def audit_of(rows: Rows, claimed: Claimed) -> list[dict[str, Any]]:
    found = await rows.database.rows(
        "SELECT * FROM audit_log WHERE action = 'kickoff.answer' AND target = %(id)s", {"id": str(claimed.id)}
    )
    return list(found)
