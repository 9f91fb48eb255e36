"""Who may stop what with one request."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin
from api.serving import GOOD
from windlass.rights import Scope

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

AHEAD = (datetime.now(UTC) + timedelta(days=1)).isoformat()


async def stopped(crew: Crew, body: dict[str, Any], token: str | None = None) -> int:
    answer = await crew.request("POST", "/stop", token=token, json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["stopped"])


async def states(crew: Crew, *kickoffs: str) -> list[tuple[str, str | None]]:
    rows = [await crew.row(kickoff) for kickoff in kickoffs]
    return [(row["state"], row["reason"]) for row in rows]


WAITS, CANCELLED = ("PENDING", None), ("CANCELLED", "cancelled")


async def test_a_user_token_stops_its_own_and_nobody_elses(crew: Crew) -> None:
    ann = await crew.token_of(f"ann {crew.path}")
    own, others = await crew.kickoff(token=ann), await crew.kickoff(token=crew.user_token)
    organizations = await crew.kickoff()
    assert await stopped(crew, {}, ann) == 1
    assert await states(crew, own, others, organizations) == [CANCELLED, WAITS, WAITS]
    assert await stopped(crew, {"user": "owner"}, ann) == 0
    assert await states(crew, others) == [WAITS]


async def test_the_organization_stops_one_users_by_name_or_all(crew: Crew) -> None:
    name = f"bob {crew.path}"
    of_bob, other = await crew.kickoff(token=await crew.token_of(name)), await crew.kickoff()
    assert await stopped(crew, {"user": f"nobody {name}"}) == 0
    assert await stopped(crew, {"user": name}) == 1
    assert await states(crew, of_bob, other) == [CANCELLED, WAITS]
    assert await stopped(crew, {}) == 1
    assert await stopped(crew, {}) == 0


async def test_another_crews_kickoffs_go_on_whoever_asks(crew: Crew) -> None:
    other = await crew.server.crew()
    kickoff = await other.kickoff()
    both = (await crew.server.tokens.create(None)).reveal()
    assert await stopped(crew, {}, both) == 0
    assert await states(other, kickoff) == [WAITS]
    assert (await crew.request("POST", "/stop", token=other.token, json={})).status_code == 401


async def test_a_read_only_token_and_a_stranger_stop_nothing(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    reader = (await crew.server.tokens.create(crew.deployment.id, scopes=[Scope.READ])).reveal()
    refused = await crew.request("POST", "/stop", token=reader, json={})
    assert (refused.status_code, refused.json()["details"]) == (403, {"required_scope": "run"})
    assert (await crew.request("POST", "/stop", token="", json={})).status_code == 401
    assert await states(crew, kickoff) == [WAITS]


async def test_a_state_and_a_time_restrict_what_is_stopped(crew: Crew) -> None:
    await begin(crew, running := await crew.kickoff())
    early = await crew.kickoff(runAt=AHEAD)
    between = (await crew.row(early))["created_at"]
    late = await crew.kickoff()
    assert await stopped(crew, {"before": between.isoformat(), "state": "PENDING"}) == 1
    assert await states(crew, early, late, running) == [CANCELLED, WAITS, ("STARTED", None)]
    assert await stopped(crew, {"state": "PENDING_HUMAN_INPUT"}) == 0
    assert await stopped(crew, {"state": "STARTED"}) == 1
    assert (await crew.row(running))["stop_requested_at"] is not None
    assert await stopped(crew, {"state": "STARTED"}) == 0
    assert await states(crew, late) == [WAITS]


async def test_none_of_those_that_wait_for_a_key_is_given_its_turn(crew: Crew) -> None:
    kickoffs = [await crew.kickoff(concurrencyKey="k") for _ in range(5)]
    assert await stopped(crew, {}) == 5
    assert await states(crew, *kickoffs) == [CANCELLED] * 5


async def test_what_has_ended_stays_as_it_ended(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.succeed()
    assert await stopped(crew, {}) == 0
    assert await states(crew, kickoff) == [("SUCCESS", None)]


async def test_many_that_stop_the_same_at_once_stop_each_once(crew: Crew) -> None:
    for _ in range(20):
        await crew.kickoff()
    counts = await asyncio.gather(*(stopped(crew, {}) for _ in range(4)))
    assert sum(counts) == 20


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({"users": "ann"}, "users"),
        ({"state": "SUCCESS"}, "state"),
        ({"user": 7}, "user"),
        ({"user": ""}, "user"),
        ({"before": "yesterday"}, "before"),
    ],
)
async def test_a_filter_of_a_wrong_form_stops_nothing(crew: Crew, body: dict[str, Any], member: str) -> None:
    kickoff = await crew.kickoff()
    refused = await crew.request("POST", "/stop", json=body)
    assert refused.status_code == 400
    assert list(refused.json()["details"]["invalid_members"]) == [member]
    assert (await crew.request("POST", "/stop", content=b"")).status_code == 400
    assert await states(crew, kickoff) == [WAITS]


async def test_the_bounds_of_user_tokens_hold_at_their_edges(crew: Crew) -> None:
    just_within = (datetime.now(UTC) + timedelta(days=7) - timedelta(minutes=1)).isoformat()
    await crew.kickoff(token=crew.user_token, priority=0, runAt=just_within)
    await crew.kickoff(token=crew.user_token, priority=-100)
    for beyond in ({"priority": 1}, {"runAt": (datetime.now(UTC) + timedelta(days=8)).isoformat()}):
        refused = await crew.post({"inputs": GOOD, **beyond}, token=crew.user_token)
        assert refused.status_code == 400
        assert list(refused.json()["details"]["invalid_members"]) == list(beyond)
        await crew.kickoff(**beyond)
