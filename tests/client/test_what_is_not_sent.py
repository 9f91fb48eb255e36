"""What no server would take, or can't be sent from here: told in the client's own words, and nothing goes out."""

from __future__ import annotations

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest

from cli.fake_crew import TOKEN
from windlass.client import AsyncCrew, Crew, CrewError, InvalidRequest, Kickoff
from windlass.client.requests import body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cli.batch_crew import BatchCrew

TEA = {"topic": "tea"}


@pytest.fixture
def crew(fake: BatchCrew) -> Iterator[Crew]:
    with Crew(fake.url, TOKEN, patience=0) as crew:
        yield crew


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda crew: crew.kickoff("topic"), r"`inputs` must be a dict .* not a str"),
        (lambda crew: crew.kickoff(None), r"`inputs` must be a dict .* not None"),
        (lambda crew: crew.run([("topic", "tea")]), r"`inputs` must be a dict .* not a list"),
        (lambda crew: crew.kickoff(TEA, meta=[1]), r"`meta` must be a dict .* not a list"),
        (lambda crew: crew.kickoff(TEA, prioritty=1), "no member 'prioritty'"),
        (lambda crew: crew.kickoff({"at": datetime.now(UTC)}), "can't be written as JSON"),
        (lambda crew: crew.kickoff_many(TEA), "must be a list, not a dict"),
        (lambda crew: crew.kickoff_many(None), "must be a list, not None"),
        (lambda crew: crew.kickoff_many([TEA], idempotency_key=""), "idempotency key is empty"),
        (lambda crew: crew.status(7), "not the id of a kickoff: 7"),
        (lambda crew: crew.stop(None), "not the id of a kickoff: None"),
        (lambda crew: crew.wait("a", timeout="5"), "`timeout` is not a time: '5'"),
        (lambda crew: crew.status("a", wait=math.nan), "`wait` is not a time: nan"),
        (lambda crew: Crew(crew.base_url, TOKEN, patience=cast("Any", "long")), "`patience` is not a time: 'long'"),
    ],
)
def test_a_call_that_makes_no_request_says_what_to_give(
    crew: Crew, fake: BatchCrew, call: Callable[[Any], object], why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why) as raised:
        call(crew)
    assert raised.value.status == 400
    assert raised.value.hint
    assert fake.seen == []


def test_of_many_one_that_cant_be_sent_is_refused_in_its_place_and_spoils_no_other(crew: Crew, fake: BatchCrew) -> None:
    items: list[Any] = [TEA, {"at": datetime.now(UTC)}, None, Kickoff({"topic": "tin"}), Kickoff(TEA, members={"a": 1})]
    first, a_time, nothing, second, strange = crew.kickoff_many(items)
    assert [first, second] == list(fake.ids.values())
    assert [type(why) for why in (a_time, nothing, strange)] == [InvalidRequest] * 3
    assert "datetime" in str(a_time)
    assert "no member 'a'" in str(strange)


def test_of_many_that_cant_be_sent_nothing_is_sent(crew: Crew, fake: BatchCrew) -> None:
    (found,) = crew.kickoff_many(cast("Any", ["topic"]))
    assert isinstance(found, InvalidRequest)
    assert fake.seen == []


def test_a_key_is_made_only_where_none_is_given() -> None:
    assert json.loads(body(Kickoff({}, idempotency_key="")))["idempotencyKey"] == ""
    assert json.loads(body(Kickoff({})))["idempotencyKey"]


def test_a_moment_without_a_zone_is_told_to_lack_it() -> None:
    at = datetime(2030, 1, 2)  # noqa: DTZ001 - that is the point
    with pytest.raises(InvalidRequest, match=r"`run_at` has no time zone: 2030-01-02T00:00:00\. Add one"):
        body(Kickoff({}, members={"run_at": at}))
    assert json.loads(body(Kickoff({}, members={"run_at": at.astimezone()})))["runAt"] == at.astimezone().isoformat()


def test_a_timeout_may_be_a_timedelta() -> None:
    two = timedelta(minutes=2)
    sent = json.loads(body(Kickoff({}, members={"timeout": two, "limits": {"timeout": two, "tokens": 7}})))
    assert (sent["timeout"], sent["limits"]) == (120, {"timeout": 120, "tokens": 7})
    with Crew("http://x", TOKEN, patience=two) as crew:
        assert crew.patience == 120


async def test_a_closed_crew_says_so(fake: BatchCrew) -> None:
    with Crew(fake.url, TOKEN) as crew:
        crew.inputs()
    with pytest.raises(CrewError, match=r"closed\. Create a new one"):
        crew.inputs()
    async with AsyncCrew(fake.url, TOKEN) as other:
        await other.inputs()
    with pytest.raises(CrewError, match=r"closed\. Create a new one"):
        await other.kickoff(TEA)


def test_an_async_crew_says_when_it_is_used_in_a_second_event_loop() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json={"inputs": []}))
    crew = AsyncCrew("http://x", TOKEN, transport=transport)
    asyncio.run(crew.inputs())
    for call in (crew.inputs, crew.close):
        with pytest.raises(CrewError, match=r"another event loop\. Create one in each"):
            asyncio.run(cast("Any", call()))
