from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from windlass.kickoffs.states import State
from windlass.kickoffs.waiting import MOST_COUNTED, Facts, Waiting, waiting

pytestmark = pytest.mark.unit


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def in_queue(**facts: Any) -> Waiting:
    found = waiting(Facts(state=State.PENDING, slug="crew", **facts))
    assert found is not None
    return found


@pytest.mark.parametrize("state", [state for state in State if state.ended or state is State.STARTED])
def test_what_runs_or_has_ended_waits_for_nothing(state: State) -> None:
    assert waiting(Facts(state=state, slug="crew", paused=True, workers=0)) is None


def test_a_free_slot_and_the_place_in_the_queue() -> None:
    assert in_queue(ahead=2, running=4, slots=4) == Waiting(
        "slot", "a free slot: 4 of 4 are taken; it is the 3rd in the queue of this crew", 3
    )


def test_where_a_slot_is_free_it_waits_for_its_worker_to_take_it() -> None:
    assert in_queue(running=0, slots=0).message.startswith("a free slot: all workers stop, or can't write to their ")
    assert in_queue(running=0, slots=2).message.startswith("a worker to take it, which has a free slot; it is the ")


def test_of_one_the_words_speak_as_of_one() -> None:
    assert "1 of 1 is taken" in in_queue(running=1, slots=1).message
    assert "of which 1 runs" in in_queue(concurrency=1, running_here=1, running=1, slots=2).message


def test_a_place_far_back_is_not_counted() -> None:
    found = in_queue(ahead=MOST_COUNTED, running=4, slots=4)
    assert found.place is None
    assert f"{MOST_COUNTED} or more are before it" in found.message


def test_the_cap_of_the_crew() -> None:
    found = in_queue(concurrency=2, running_here=2, running=2, slots=8)
    assert (found.code, found.place) == ("concurrency", 1)
    assert "of which 2 run: its concurrency is 2" in found.message


def test_its_time() -> None:
    assert in_queue(run_at=NOON) == Waiting("time", "its time to start, 2026-11-21T12:00:00Z")


@pytest.mark.parametrize(("losses", "words"), [(1, "once"), (2, "2 times")])
def test_its_next_attempt(losses: int, words: str) -> None:
    found = in_queue(run_at=NOON, losses=losses)
    assert found.code == "retry"
    assert found.message.endswith(f"at 2026-11-21T12:00:00Z: its process or its worker was lost {words}")


@pytest.mark.parametrize(
    ("retries", "words"),
    [(1, "it failed once, with: the mill stood still"), (3, "it failed 3 times, last with: the mill stood still")],
)
def test_its_next_attempt_after_one_that_failed_is_told_in_other_words(retries: int, words: str) -> None:
    facts = {"ended_as": "retried", "why": "the mill stood still.", "losses": 1}
    found = in_queue(run_at=NOON, retries=retries, **facts)
    assert found == Waiting("retry", f"its next attempt, at 2026-11-21T12:00:00Z: {words}")


def test_of_an_attempt_that_failed_without_a_word_only_that_is_told() -> None:
    assert in_queue(run_at=NOON, retries=1, ended_as="retried").message.endswith("Z: it failed once")


def test_a_loss_after_a_failure_is_told_as_a_loss() -> None:
    found = in_queue(run_at=NOON, retries=2, losses=1, ended_as="lost", why="its zygote died")
    assert found.message.endswith("its process or its worker was lost once")


def test_a_paused_crew_is_told_with_how_to_resume_it() -> None:
    found = in_queue(paused=True, workers=0)
    assert (found.code, found.place) == ("paused", 1)
    assert found.message.endswith("windlass deployments resume crew")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.STARTED, "0199 has the same and runs"),
        (State.PENDING_HUMAN_INPUT, "0199 has the same and waits for a person"),
        (State.PENDING, "0199 has the same and is to run before it"),
    ],
)
def test_the_kickoff_that_has_the_key(state: State, words: str) -> None:
    found = in_queue(waits_for_key=True, concurrency_key="k", holder="0199", holder_state=state, ahead=1)
    assert (found.code, found.place) == ("key", 2)
    assert found.message == f"its turn with the concurrencyKey 'k': {words}"


def test_a_key_that_has_just_become_free() -> None:
    assert in_queue(waits_for_key=True, concurrency_key="k").message == "its turn with the concurrencyKey 'k'"


def test_no_worker() -> None:
    found = in_queue(workers=0, slots=0)
    assert found.code == "worker"
    assert "none is alive. Start one" in found.message


def test_its_own_end() -> None:
    found = waiting(Facts(state=State.STARTED, slug="crew", waiting_for="end"))
    assert found is not None
    assert (found.code, found.message) == ("end", "its processes to end: it was stopped on request")


def test_an_environment_that_is_being_made() -> None:
    found = waiting(Facts(state=State.STARTED, slug="crew", waiting_for="environment"))
    assert found is not None
    assert (found.code, found.message[:29]) == ("environment", "the files and packages of its")


def test_a_zygote_that_is_being_started() -> None:
    found = waiting(Facts(state=State.STARTED, slug="crew", waiting_for="zygote"))
    assert found is not None
    assert found.code == "zygote"


def test_a_person() -> None:
    found = waiting(Facts(state=State.PENDING_HUMAN_INPUT, slug="crew"))
    assert found is not None
    assert found.code == "human"
