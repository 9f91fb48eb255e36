"""Both clients against a real server. The sync one runs in a thread: server and worker are in this one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin, begin_the_only_one
from api.serving import GOOD, unknown_id
from patience import DEADLINE
from windlass.client import (
    AsyncCrew,
    Conflict,
    Crew,
    Forbidden,
    InvalidRequest,
    Kickoff,
    KickoffFailed,
    NotFound,
    Refused,
    StillRunning,
    Unauthorized,
)
from windlass.rights import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from api.serving import Crew as Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

Ask = "Callable[..., Coroutine[Any, Any, Any]]"


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, served: Served) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Calls the method of this name, of the one client or of the other."""

    def in_thread(method: str, *given: Any, token: str | None = None, **more: Any) -> Any:
        with Crew(f"{served.base_url}/", token or served.token, patience=DEADLINE) as crew:
            return getattr(crew, method)(*given, **more)

    async def in_loop(method: str, *given: Any, token: str | None = None, **more: Any) -> Any:
        async with AsyncCrew(served.base_url, token or served.token, patience=DEADLINE) as crew:
            return await getattr(crew, method)(*given, **more)

    async def threaded(method: str, *given: Any, **more: Any) -> Any:
        return await asyncio.to_thread(in_thread, method, *given, **more)

    return threaded if request.param == "sync" else in_loop


async def test_the_inputs_are_told(ask: Any) -> None:
    found = await ask("inputs")
    assert found.required == ["topic", "audience"]
    assert found.schema["properties"]["length"]["default"] == 3


async def test_a_run_comes_to_its_result(ask: Any, served: Served) -> None:
    async def work() -> None:
        run = await begin_the_only_one(served)
        await run.start_task(0)
        await run.end_task(0, "found")
        await run.succeed("It is done.", {"score": 1})

    result, _ = await asyncio.gather(ask("run", GOOD, priority=3), work())
    assert (result.output, result.json) == ("It is done.", {"score": 1})
    assert (result.tasks[0].name, result.tasks[0].output, result.tasks[0].execution_time) == ("research", "found", 1.5)


async def test_a_run_that_fails_tells_why_and_which(ask: Any, served: Served) -> None:
    async def work() -> None:
        await (await begin_the_only_one(served)).fail(error="the tool is broken")

    with pytest.raises(KickoffFailed, match=r"failed \(error\): the tool is broken") as raised:
        await asyncio.gather(ask("run", GOOD), work())
    assert raised.value.kickoff.has_failed
    assert raised.value.kickoff.reason == "error"


async def test_both_profiles_of_a_result_read_the_same(ask: Any, served: Served) -> None:
    kickoff = await ask("kickoff", GOOD)
    run = await begin(served, kickoff)
    await run.start_task(0)
    await run.end_task(0, "found")
    await run.succeed("It is done.", [1])
    live = await served.organization_token(profile="live")
    documented, other = await ask("wait", kickoff), await ask("wait", kickoff, token=live)
    assert documented.result == other.result
    assert isinstance(other.answer["result"], str)


async def test_a_status_is_typed(ask: Any, served: Served) -> None:
    kickoff = await ask("kickoff", GOOD, meta={"order": 7}, run_at=datetime.now(UTC) + timedelta(hours=1))
    found = await ask("status", kickoff)
    assert (found.kickoff_id, found.state, found.meta) == (kickoff, "PENDING", {"order": 7})
    assert (found.has_ended, found.has_failed, found.result, found.attempt) == (False, False, None, 0)
    assert (found.completed_tasks, found.total_tasks, found.tasks[0].name) == (0, 2, "research")
    assert found.waiting_for.code == "time"
    assert abs(found.created_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert found.answer["kickoff_id"] == kickoff


async def test_members_reach_the_server_by_either_name(ask: Any, served: Served) -> None:
    kickoff = await ask("kickoff", GOOD, priority=3, concurrency_key="a", concurrencyStrategy="reject")
    row = await served.row(kickoff)
    assert (row["priority"], row["concurrency_key"]) == (3, "a")
    with pytest.raises(Conflict) as raised:
        await ask("kickoff", GOOD, concurrency_key="a", concurrency_strategy="reject")
    assert raised.value.details == {"kickoff_id": kickoff}


async def test_a_key_of_the_callers_own_is_kept(ask: Any) -> None:
    assert await ask("kickoff", GOOD, idempotency_key="a") == await ask("kickoff", GOOD, idempotency_key="a")
    assert await ask("kickoff", GOOD) != await ask("kickoff", GOOD)
    with pytest.raises(Conflict, match="idempotency key"):
        await ask("kickoff", GOOD, meta={}, idempotency_key="a")


async def test_missing_inputs_are_told_with_their_names(ask: Any) -> None:
    with pytest.raises(InvalidRequest, match="422 Validation Error") as raised:
        await ask("kickoff", {})
    assert (raised.value.status, raised.value.details) == (422, {"missing_inputs": ["topic", "audience"]})
    with pytest.raises(InvalidRequest, match="invalid inputs: length: 'x' is not of type 'integer'"):
        await ask("kickoff", {**GOOD, "length": "x"})


async def test_a_wrong_token_and_an_unknown_kickoff_have_errors_of_their_own(ask: Any) -> None:
    with pytest.raises(Unauthorized) as raised:
        await ask("inputs", token="wlo_wrong")
    assert "wlo_wrong" not in repr(raised.value) + str(raised.value)
    with pytest.raises(NotFound):
        await ask("status", unknown_id())
    with pytest.raises(InvalidRequest, match="encoded slash"):
        await ask("stop", "../inputs")


async def test_waiting_ends_when_its_time_is_over_and_the_kickoff_goes_on(ask: Any) -> None:
    kickoff = await ask("kickoff", GOOD)
    with pytest.raises(StillRunning) as raised:
        await ask("wait", kickoff, timeout=0.05)
    assert raised.value.kickoff.kickoff_id == kickoff


async def test_a_kickoff_is_stopped(ask: Any) -> None:
    kickoff = await ask("kickoff", GOOD)
    stopped = await ask("stop", kickoff)
    assert (stopped.kickoff_id, stopped.state) == (kickoff, "FAILED")
    assert stopped.message
    assert (await ask("wait", kickoff)).reason == "cancelled"


async def test_all_that_match_are_stopped_with_one_call(ask: Any) -> None:
    kickoffs = [await ask("kickoff", GOOD) for _ in range(3)]
    assert await ask("stop_all", state="PENDING", user="nobody of that name") == 0
    assert await ask("stop_all", before=datetime.now(UTC) + timedelta(hours=1)) == 3
    assert [(await ask("status", kickoff)).reason for kickoff in kickoffs] == ["cancelled"] * 3
    with pytest.raises(InvalidRequest, match="no time zone"):
        await ask("stop_all", before=datetime(2026, 1, 15))  # noqa: DTZ001 - what is refused


async def test_a_kickoff_is_deleted_for_good(ask: Any, served: Served) -> None:
    kickoff, token = await ask("kickoff", GOOD), await served.organization_token()
    with pytest.raises(Conflict, match="has not ended"):
        await ask("delete", kickoff, token=token)
    assert await ask("delete", kickoff, stop=True, token=token) is None
    with pytest.raises(NotFound):
        await ask("status", kickoff)


async def test_a_token_without_the_scope_is_told_which_one_it_needs(ask: Any, served: Served) -> None:
    reader = (await served.server.tokens.create(served.deployment.id, scopes=[Scope.READ])).reveal()
    assert (await ask("inputs", token=reader)).required
    with pytest.raises(Forbidden) as raised:
        await ask("kickoff", GOOD, token=reader)
    assert (raised.value.status, raised.value.required_scope) == (403, "run")
    with pytest.raises(Forbidden) as raised:
        await ask("delete", unknown_id(), token=served.user_token)
    assert raised.value.required_scope == "admin"


async def test_many_are_kicked_off_at_once_and_a_bad_one_spoils_no_other(ask: Any, served: Served) -> None:
    items = [{**GOOD, "turn": 0}, {}, Kickoff({**GOOD, "turn": 2}, meta={"a": 1}, members={"priority": 5})]
    first, refused, third = await ask("kickoff_many", items)
    assert isinstance(refused, Refused)
    assert refused.details == {"missing_inputs": ["topic", "audience"]}
    rows = [await served.row(first), await served.row(third)]
    assert [row["inputs"]["turn"] for row in rows] == [0, 2]
    assert (rows[1]["meta"], rows[1]["priority"]) == ({"a": 1}, 5)


async def test_many_more_than_one_request_holds_are_kicked_off(ask: Any) -> None:
    found = await ask("kickoff_many", [{**GOOD, "turn": turn} for turn in range(2100)])
    assert len(set(found)) == 2100


async def test_many_large_ones_are_sent_in_parts_and_one_that_is_too_large_is_refused_alone(ask: Any) -> None:
    large = [{**GOOD, "text": "x" * 400_000}] * 4
    found = await ask("kickoff_many", [*large, {**GOOD, "text": "x" * 2_000_000}, GOOD])
    assert [isinstance(answer, Refused) for answer in found] == [False] * 4 + [True, False]
    assert found[4].status == 413


async def test_many_with_one_key_are_the_same_kickoffs_again(ask: Any) -> None:
    items = [GOOD, GOOD, Kickoff(GOOD, idempotency_key="mine")]
    first = await ask("kickoff_many", items, idempotency_key="a")
    assert await ask("kickoff_many", items, idempotency_key="a") == first
    assert len(set(first)) == 3
    assert await ask("kickoff", GOOD, idempotency_key="mine") == first[2]


async def test_none_are_kicked_off_without_a_request(ask: Any) -> None:
    assert await ask("kickoff_many", []) == []
