"""What is sent again, and when: pure, and against a server that goes away."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.fake_crew import KICKOFF, TOKEN, completed, problem, running
from windlass.client import AsyncCrew, Crew, NotACrew, Refused, StillRunning, Unreachable, protocol
from windlass.client.errors import TEMPORARY
from windlass.client.protocol import PAUSE, Patience
from windlass.client.requests import Kickoff, Request, body
from windlass.client.responses import NoAnswer, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.batch_crew import BatchCrew
    from windlass.client.protocol import Exchange

BODY = body(Kickoff({"topic": "tea"}))
BROKEN = NoAnswer("http://x", httpx.ReadError("the connection broke"), 30.0)


def answered(status: int, said: Any, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json=said, headers=named, request=httpx.Request("GET", "http://x/"))


def refusing(status: int, retry_after: int | None = None) -> httpx.Response:
    later = {} if retry_after is None else {"Retry_After": str(retry_after)}
    return answered(status, {"error": "x", "message": "y", "details": {}}, **later)


@dataclass
class Conversation:
    """Carries a talk out without a network; time passes only by its pauses, and `each` second an answer takes."""

    answer: Callable[[Request], Outcome]
    each: float = 0.0
    now: float = 0.0

    def __post_init__(self) -> None:
        self.sent: list[Request] = []

    def patience(self, seconds: float = 60.0) -> Patience:
        return Patience(seconds, lambda: self.now)

    def converse(self, talk: Exchange[Any]) -> Any:
        try:
            request = next(talk)
            while True:
                self.sent.append(request)
                self.now += request.after + self.each
                request = talk.send(self.answer(request))
        except StopIteration as end:
            return end.value


def one_after_the_other(*outcomes: Outcome) -> Callable[[Request], Outcome]:
    left = list(outcomes)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize("failure", [BROKEN, *(refusing(status) for status in sorted(TEMPORARY))])
def test_a_kickoff_is_sent_again_as_it_was_until_there_is_an_answer(failure: Outcome) -> None:
    told = Conversation(one_after_the_other(failure, failure, failure, answered(200, {"kickoff_id": KICKOFF})))
    assert told.converse(protocol.kickoff(BODY, told.patience())) == KICKOFF
    assert {request.content for request in told.sent} == {BODY}
    assert [request.after for request in told.sent] == [0.0, 0.25, 0.5, 1.0]


@pytest.mark.parametrize("status", [400, 401, 404, 405, 409, 413, 422, 500])
def test_what_will_not_pass_is_not_sent_again(status: int) -> None:
    told = Conversation(one_after_the_other(refusing(status)))
    with pytest.raises(Refused):
        told.converse(protocol.kickoff(BODY, told.patience()))
    assert len(told.sent) == 1


def test_the_server_says_when_to_come_again() -> None:
    told = Conversation(one_after_the_other(refusing(429, 7), answered(200, {"kickoff_id": KICKOFF})))
    told.converse(protocol.kickoff(BODY, told.patience()))
    assert told.now == 7.0


@given(
    patience=st.floats(0, 1000),
    statuses=st.lists(st.tuples(st.sampled_from(sorted(TEMPORARY)), st.integers(0, 10_000)), min_size=1, max_size=5),
    each=st.floats(0.1, 30),
)
def test_trying_again_ends_when_the_patience_is_over(
    patience: float, statuses: list[tuple[int, int]], each: float
) -> None:
    told = Conversation(one_after_the_other(*(refusing(*one) for one in statuses)), each)
    with pytest.raises(Refused):
        told.converse(protocol.kickoff(BODY, told.patience(patience)))
    assert patience <= told.now + 1e-6 <= patience + 2 * each + 1e-3
    assert len(told.sent) == 1 or patience > 0


def test_the_patience_is_for_one_time_in_a_row() -> None:
    offload = [BROKEN] * 5
    still = answered(200, running())
    told = Conversation(one_after_the_other(*offload, still, *offload, still, *offload, answered(200, completed())))
    found = told.converse(protocol.wait(KICKOFF, None, told.patience(5.0)))
    assert found.has_ended


def test_waiting_asks_a_server_that_answers_at_once_only_now_and_then() -> None:
    told = Conversation(one_after_the_other(*[answered(200, running())] * 5, answered(200, completed())))
    told.converse(protocol.wait(KICKOFF, None, told.patience()))
    assert [request.after for request in told.sent] == [0.0, *[PAUSE] * 5]
    assert {request.target for request in told.sent} == {f"/status/{KICKOFF}?wait=20"}


@given(timeout=st.floats(0, 500), each=st.floats(0, 30))
def test_waiting_ends_when_its_time_is_over(timeout: float, each: float) -> None:
    told = Conversation(one_after_the_other(answered(200, running())), each)
    with pytest.raises(StillRunning):
        told.converse(protocol.wait(KICKOFF, timeout, told.patience()))
    assert timeout <= told.now + 1e-6 <= timeout + each + 1e-3
    assert all(request.wait <= timeout for request in told.sent)


def test_of_a_batch_only_what_may_pass_is_sent_again() -> None:
    refused = {"error": {"status": 422, "error": "x", "message": "y", "details": {"missing_inputs": ["a"]}}}
    full = {"error": {"status": 429, "error": "x", "message": "y", "details": {}, "retry_after": 3}}
    first = answered(200, {"kickoffs": [{"kickoff_id": "a"}, full, refused, full]})
    told = Conversation(one_after_the_other(first, answered(200, {"kickoffs": [{"kickoff_id": "b"}, full]})))
    bodies = [body(Kickoff({"turn": turn})) for turn in range(4)]
    found = told.converse(protocol.kickoff_many(bodies[:4], told.patience(0.0)))
    assert [answer if isinstance(answer, str) else answer.status for answer in found] == ["a", 429, 422, 429]
    told = Conversation(
        one_after_the_other(
            first,
            answered(200, {"kickoffs": [{"kickoff_id": "b"}, full]}),
            answered(200, {"kickoffs": [{"kickoff_id": "c"}]}),
        )
    )
    found = told.converse(protocol.kickoff_many(bodies, told.patience()))
    assert [answer if isinstance(answer, str) else answer.status for answer in found] == ["a", "b", 422, "c"]
    assert json.loads(told.sent[1].content or b"")["kickoffs"] == [json.loads(bodies[1]), json.loads(bodies[3])]
    assert [request.after for request in told.sent] == [0.0, 3.0, 3.0]


@given(
    sizes=st.lists(st.sampled_from([10, 1000, 100_000, 500_000, 2_000_000]), max_size=30),
    largest=st.sampled_from([5000, 200_000, 1_048_576]),
)
def test_a_batch_that_a_server_finds_too_large_is_halved_until_it_fits(sizes: list[int], largest: int) -> None:
    def answer(request: Request) -> Outcome:
        if len(request.content or b"") > largest:
            return refusing(413)
        items = json.loads(request.content or b"")["kickoffs"]
        return answered(200, {"kickoffs": [{"kickoff_id": item["idempotencyKey"]} for item in items]})

    bodies = [body(Kickoff({"x": "x" * size}, idempotency_key=str(place))) for place, size in enumerate(sizes)]
    told = Conversation(answer)
    found = told.converse(protocol.kickoff_many(bodies, told.patience()))
    alone = len(b'{"kickoffs":[]}')
    assert [isinstance(one, Refused) for one in found] == [len(one) + alone > largest for one in bodies]
    assert all(one == str(place) for place, one in enumerate(found) if isinstance(one, str))


@pytest.mark.parametrize(
    "said", [{}, {"kickoffs": []}, {"kickoffs": [{}]}, {"kickoffs": [7]}, {"kickoffs": [{"error": "x"}]}]
)
def test_an_answer_to_a_batch_that_is_no_crews_is_told_as_such(said: Any) -> None:
    told = Conversation(one_after_the_other(answered(200, said)))
    try:
        (found,) = told.converse(protocol.kickoff_many([BODY], told.patience()))
    except NotACrew as error:
        found = error
    assert isinstance(found, NotACrew)


@pytest.mark.parametrize("said", [{}, {"kickoff_id": 7}])
def test_an_answer_to_a_kickoff_that_is_no_crews_is_told_as_such(said: Any) -> None:
    told = Conversation(one_after_the_other(answered(200, said)))
    with pytest.raises(NotACrew):
        told.converse(protocol.kickoff(BODY, told.patience()))


def test_an_answer_that_was_lost_starts_nothing_twice(fake: BatchCrew) -> None:
    fake.lose_answers = 2
    with Crew(fake.url, TOKEN) as crew:
        found = crew.kickoff_many([{"topic": "tea"}, {"topic": "tin"}])
    assert found == list(fake.ids.values())
    assert len(fake.batches) == 3


def test_a_sync_client_waits_over_a_restart_of_the_server(fake: BatchCrew) -> None:
    fake.held = {"tea"}
    with Crew(fake.url, TOKEN) as crew:
        (kickoff,) = crew.kickoff_many([{"topic": "tea"}])
        assert isinstance(kickoff, str)
        ended: list[Any] = []
        waiter = threading.Thread(target=lambda: ended.append(crew.wait(kickoff)))
        waiter.start()
        fake.wait_until_asked_for("tea")
        fake.stop()
        fake.held = set()
        fake.start()
        waiter.join(60)
    assert ended[0].result.output == "All about tea."


async def test_an_async_client_waits_over_a_restart_of_the_server(fake: BatchCrew) -> None:
    fake.held = {"tea"}
    async with AsyncCrew(fake.url, TOKEN) as crew:
        (kickoff,) = await crew.kickoff_many([{"topic": "tea"}])
        assert isinstance(kickoff, str)
        waiter = asyncio.create_task(crew.wait(kickoff))
        await asyncio.to_thread(fake.wait_until_asked_for, "tea")
        await asyncio.to_thread(fake.stop)
        fake.held = set()
        await asyncio.to_thread(fake.start)
        assert (await waiter).has_ended


async def test_a_server_that_stays_away_is_told(fake: BatchCrew) -> None:
    fake.stop()
    with Crew(fake.url, TOKEN, patience=0) as crew, pytest.raises(Unreachable, match="can't be reached") as raised:
        crew.kickoff({"topic": "tea"})
    assert not raised.value.was_sent
    async with AsyncCrew(fake.url, TOKEN, patience=0.1) as other:
        with pytest.raises(Unreachable, match=r"It was tried again for 0\.1 s"):
            await other.inputs()
    fake.start()


def test_a_refusal_of_now_is_told_when_the_patience_is_over(fake: BatchCrew) -> None:
    fake.refusal = problem(503, "Service Unavailable", "The database is unavailable.")
    with (
        Crew(fake.url, TOKEN, patience=0) as crew,
        pytest.raises(Refused, match="The database is unavailable") as raised,
    ):
        crew.kickoff({"topic": "tea"})
    assert raised.value.status == 503
