"""Members of a kickoff that say when it may run and how much it may use."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin
from api.serving import GOOD

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


def ahead(**time: float) -> str:
    return (datetime.now(UTC) + timedelta(**time)).isoformat()


async def bound(crew: Crew, kickoffs: int) -> None:
    """At most so many of the crew may wait."""
    values = {"id": crew.deployment.id, "most": kickoffs}
    await crew.server.database.execute("UPDATE deployments SET max_waiting = %(most)s WHERE id = %(id)s", values)


async def test_what_is_given_is_in_the_row(crew: Crew) -> None:
    at = ahead(days=300)
    row = await crew.row(await crew.kickoff(priority=-100, runAt=at, concurrencyKey="one at a time"))
    assert (row["priority"], row["run_at"], row["concurrency_key"]) == (
        -100,
        datetime.fromisoformat(at),
        "one at a time",
    )
    assert row["warnings"] == []


async def test_what_is_not_given_has_its_default(crew: Crew) -> None:
    row = await crew.row(await crew.kickoff())
    assert (row["priority"], row["run_at"], row["concurrency_key"], row["limits"]) == (0, None, None, None)


async def test_a_priority_may_be_written_as_any_whole_number_of_json(crew: Crew) -> None:
    row = await crew.row(await crew.kickoff(priority=7.0))
    assert row["priority"] == 7


@pytest.mark.parametrize(
    "past", ["0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "2026-01-15t09:30:00.123456789z"]
)
async def test_a_time_that_has_passed_is_at_once(crew: Crew, past: str) -> None:
    row = await crew.row(await crew.kickoff(runAt=past))
    assert (row["run_at"], row["ready"]) == (None, True)


async def test_a_time_more_than_a_year_ahead_is_refused(crew: Crew) -> None:
    answer = await crew.post({"inputs": GOOD, "runAt": ahead(days=367)})
    assert answer.json()["details"]["invalid_members"] == {"runAt": "Input should be at most 366 days ahead"}
    assert (await crew.post({"inputs": GOOD, "runAt": ahead(days=365)})).status_code == 200


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"timeout": 60}, {"timeout": 60}),
        ({"limits": {"timeout": 60}}, {"timeout": 60}),
        ({"timeout": 60, "limits": {"timeout": 0.5}}, {"timeout": 0.5}),
        ({"timeout": 0.5, "limits": {"timeout": 60}}, {"timeout": 0.5}),
        ({"timeout": 60, "limits": {"token_limit": 7}}, {"timeout": 60, "token_limit": 7}),
        (
            {"limits": {"memory_limit": "1.5 MB", "output_limit": "2gb"}},
            {"memory_limit": 3 << 19, "output_limit": 2 << 30},
        ),
        ({"limits": {"timeout": None, "process_limit": 3.0}}, {"process_limit": 3}),
        ({"limits": {}}, None),
        ({"limits": {"timeout": None}}, None),
    ],
)
async def test_limits_are_stored_as_numbers_and_of_two_timeouts_the_smaller(
    crew: Crew, given: dict[str, Any], stored: dict[str, Any] | None
) -> None:
    assert (await crew.row(await crew.kickoff(**given)))["limits"] == stored


async def test_with_a_key_in_use_a_kickoff_that_rejects_is_409_and_names_the_open_one(crew: Crew) -> None:
    first = await crew.kickoff(concurrencyKey="a")
    reject = {"inputs": GOOD, "concurrencyKey": "a", "concurrencyStrategy": "reject"}
    answer = await crew.post(reject)
    assert (answer.status_code, answer.json()["details"]) == (409, {"kickoff_id": first})
    await crew.stop(first)
    assert (await crew.post(reject)).status_code == 200


async def test_of_many_that_reject_at_the_same_instant_one_is_accepted(crew: Crew) -> None:
    reject = {"inputs": GOOD, "concurrencyKey": "a", "concurrencyStrategy": "reject"}
    answers = await asyncio.gather(*(crew.post(reject) for _ in range(10)))
    (accepted,) = (answer.json()["kickoff_id"] for answer in answers if answer.status_code == 200)
    refused = [answer.json()["details"] for answer in answers if answer.status_code == 409]
    assert refused == [{"kickoff_id": accepted}] * 9


async def test_a_refused_kickoff_keeps_no_idempotency_key(crew: Crew) -> None:
    first = await crew.kickoff(concurrencyKey="a")
    reject = {"inputs": GOOD, "concurrencyKey": "a", "concurrencyStrategy": "reject", "idempotencyKey": "once"}
    assert (await crew.post(reject)).status_code == 409
    await crew.stop(first)
    again = [(await crew.post(reject)).json() for _ in range(2)]
    assert again[0] == again[1]
    assert "kickoff_id" in again[0]


async def test_a_kickoff_that_cancels_takes_the_place_of_the_open_ones(crew: Crew) -> None:
    await begin(crew, running := await crew.kickoff(concurrencyKey="a"))
    waiting = await crew.kickoff(concurrencyKey="a")
    await crew.kickoff(concurrencyKey="a", concurrencyStrategy="cancel_running")
    assert (await crew.row(running))["stop_requested_at"] is not None
    status = await crew.status(waiting)
    assert (status["state"], status["reason"]) == ("FAILED", "cancelled")
    assert "concurrencyKey" in status["error"]


async def test_another_key_and_another_crew_are_not_touched(crew: Crew) -> None:
    other = await crew.server.crew()
    kickoffs = [(crew, await crew.kickoff(concurrencyKey="b")), (other, await other.kickoff(concurrencyKey="a"))]
    await crew.kickoff(concurrencyKey="a", concurrencyStrategy="cancel_running")
    for of, kickoff in kickoffs:
        assert (await of.status(kickoff))["state"] == "PENDING"


async def test_a_full_queue_is_429_with_how_many_wait_and_when_to_try_again(crew: Crew) -> None:
    await bound(crew, 2)
    first = await crew.kickoff()
    await crew.kickoff()
    answer = await crew.post({"inputs": GOOD})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"] == "Too Many Requests"
    assert answer.json()["details"] == {"waiting": 2, "max_waiting": 2}
    await crew.stop(first)
    assert (await crew.post({"inputs": GOOD})).status_code == 200


async def test_a_full_queue_is_no_matter_to_a_repeated_request_nor_to_another_crew(crew: Crew) -> None:
    await bound(crew, 1)
    kickoff = await crew.kickoff(idempotencyKey="once")
    refused = await crew.post({"inputs": GOOD})
    assert refused.status_code == 429
    assert "1 kickoff waits, and the limit is 1" in refused.json()["message"]
    assert await crew.kickoff(idempotencyKey="once") == kickoff
    other = await crew.server.crew()
    assert (await other.post({"inputs": GOOD})).status_code == 200


async def test_of_many_at_the_same_instant_no_more_than_may_wait_are_accepted(crew: Crew) -> None:
    await bound(crew, 3)
    answers = await asyncio.gather(*(crew.post({"inputs": GOOD}) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 17


@pytest.mark.parametrize(
    "member", [{"priority": 1}, {"limits": {"timeout": 1}}, {"timeout": 1}, {"concurrencyKey": "a"}]
)
async def test_an_idempotency_key_stands_for_these_members_too(crew: Crew, member: dict[str, Any]) -> None:
    await crew.kickoff(idempotencyKey="once")
    assert (await crew.post({"inputs": GOOD, **member, "idempotencyKey": "once"})).status_code == 409


@pytest.mark.parametrize("key", [7, "", ["a"], "x" * 256])
async def test_a_malformed_key_is_not_also_called_missing(crew: Crew, key: Any) -> None:
    answer = await crew.post({"inputs": GOOD, "concurrencyKey": key, "concurrencyStrategy": "reject"})
    assert answer.status_code == 400
    assert answer.json()["details"]["invalid_members"].keys() == {"concurrencyKey"}


@pytest.mark.parametrize("missing", [{}, {"concurrencyKey": None}])
async def test_a_strategy_without_a_key_is_told_to_need_one(crew: Crew, missing: dict[str, Any]) -> None:
    answer = await crew.post({"inputs": GOOD, **missing, "concurrencyStrategy": "reject"})
    assert answer.json()["details"]["invalid_members"] == {
        "concurrencyStrategy": "Input should come with a concurrencyKey"
    }
