"""No answer is awaited for ever: neither from a server that stands still, nor from one that never comes to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.fake_crew import KICKOFF, TOKEN, running
from client.slow_server import dripping
from client.test_trying_again import BODY, BROKEN, Conversation, answered
from windlass.client import AsyncCrew, Crew, StillRunning, Unreachable, protocol
from windlass.client.protocol import GRACE, WAIT
from windlass.client.requests import ANSWER_SECONDS

if TYPE_CHECKING:
    from windlass.client.requests import Request
    from windlass.client.responses import Outcome

EPSILON = 1e-3


def standing_still(after: int = 0) -> Conversation:
    """With a server that answers so many times, and no more: each other request takes as long as it may."""

    def answer(request: Request) -> Outcome:
        if len(told.sent) <= after:
            return answered(200, running())
        told.now += request.seconds
        return BROKEN

    told = Conversation(answer)
    return told


@given(timeout=st.floats(0, 500), patience=st.floats(0, 100))
def test_a_wait_for_a_server_that_stands_still_ends_soon_after_its_time(timeout: float, patience: float) -> None:
    told = standing_still()
    with pytest.raises(Unreachable):
        told.converse(protocol.wait(KICKOFF, timeout, told.patience(patience)))
    assert told.now <= timeout + GRACE + EPSILON


@given(patience=st.floats(1, 200))
def test_trying_again_with_a_server_that_stands_still_ends_soon_after_the_patience(patience: float) -> None:
    told = standing_still()
    with pytest.raises(Unreachable):
        told.converse(protocol.kickoff(BODY, told.patience(patience)))
    assert patience <= told.now + EPSILON
    assert told.now <= patience + GRACE + EPSILON


def test_one_that_is_asked_once_may_take_its_time() -> None:
    told = standing_still()
    with pytest.raises(Unreachable):
        told.converse(protocol.kickoff(BODY, told.patience(0)))
    assert told.now == ANSWER_SECONDS


def test_a_wait_without_an_end_begins_its_patience_when_an_answer_is_due() -> None:
    told = standing_still()
    with pytest.raises(Unreachable, match="It was tried again for 60 s"):
        told.converse(protocol.wait(KICKOFF, None, told.patience()))
    assert WAIT + 60 <= told.now + EPSILON <= WAIT + 60 + GRACE


@given(timeout=st.floats(0.1, 60))
def test_a_wait_tells_how_it_stood_when_the_server_stands_still_since(timeout: float) -> None:
    told = standing_still(after=1)
    with pytest.raises(StillRunning) as raised:
        told.converse(protocol.wait(KICKOFF, timeout, told.patience()))
    assert raised.value.kickoff.state == "STARTED"
    assert isinstance(raised.value.__cause__, Unreachable)
    assert told.now <= timeout + GRACE + EPSILON


def test_a_server_that_is_away_for_longer_than_the_patience_is_told_though_there_is_time() -> None:
    told = standing_still(after=1)
    with pytest.raises(Unreachable):
        told.converse(protocol.wait(KICKOFF, 1000, told.patience()))


def test_a_status_that_is_asked_for_again_is_held_back_until_the_same_moment() -> None:
    told = standing_still()
    told.answer = lambda _: BROKEN if told.now < 8 else answered(200, running())
    told.each = 3.0
    told.converse(protocol.status(KICKOFF, 20, told.patience()))
    began = 0.0
    for request in told.sent:
        began += request.after
        assert began + request.wait == pytest.approx(20)
        began += told.each


async def test_an_answer_that_never_comes_to_its_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.client.protocol.GRACE", 0.2)
    with dripping() as url:
        with (
            Crew(url, TOKEN, patience=0.1) as crew,
            pytest.raises(Unreachable, match=r"no complete answer within 0\.3 s"),
        ):
            crew.kickoff({})
        async with AsyncCrew(url, TOKEN) as other:
            with pytest.raises(Unreachable, match=r"no complete answer within 0\.3 s"):
                await other.wait(KICKOFF, timeout=0.1)
