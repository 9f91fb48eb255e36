from __future__ import annotations

from typing import TYPE_CHECKING

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_model.offline_serving import ask, asked, script, text_of
from windlass.offline_model.app import offline_model_app
from windlass.offline_model.faults import LONGEST, Faults, Lots, Seconds

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from windlass.offline_model.script import Script

FRACTIONS = st.floats(0, 1, exclude_max=True)
SOME_SECONDS = st.floats(0, LONGEST).map(lambda seconds: round(seconds, 3))
FEW = [f"request {number}" for number in range(2000)]


class Clock:
    """Notes for how long the model would have waited."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def app(self, latency: str, rules: Script | None = None) -> ASGIApp:
        return offline_model_app(rules, Faults(Seconds.of(latency)), self.pause)


def failing(**faults: object) -> ASGIApp:
    return offline_model_app(faults=Faults(**faults))  # type: ignore[arg-type]


@given(SOME_SECONDS, SOME_SECONDS, FRACTIONS)
def test_a_latency_lies_in_its_range(one: float, other: float, fraction: float) -> None:
    least, most = sorted((one, other))
    found = Seconds.of(f"{least:f}-{most:f}")
    assert (found.least, found.most) == (least, most)
    assert least <= found.at(fraction) <= most


@pytest.mark.parametrize("given", [0.5, ".5", "0.5", " 0.50 ", "0.5-0.5"])
def test_a_latency_may_be_one_number(given: object) -> None:
    assert Seconds.of(given) == Seconds(0.5, 0.5)


@pytest.mark.parametrize(
    "given",
    ["", "-1", -1, "1.5-0.2", "fast", "1-", "1-2-3", "1e3", "inf", float("nan"), float("inf"), 3601, True, None],
)
def test_a_latency_that_is_none_is_told_with_what_it_may_be(given: object) -> None:
    with pytest.raises(ValueError, match=r"is no latency: give seconds such as 0\.5, or a range such as 0\.2-1\.5"):
        Seconds.of(given)


@given(st.integers(), st.text(), FRACTIONS)
def test_what_falls_to_a_request_is_the_same_in_each_run_and_whatever_came_between(
    seed: int, digest: str, rate: float
) -> None:
    faults = Faults(Seconds(0, 1), rate, (429, 500), seed)
    first, again = Lots(faults), Lots(faults)
    again.draw(f"another than {digest}")
    assert [first.draw(digest) for _ in range(3)] == [again.draw(digest) for _ in range(3)]


@given(st.integers(), st.text())
def test_no_request_fails_at_the_rate_0_and_each_at_1(seed: int, digest: str) -> None:
    assert Lots(Faults(error_rate=0, seed=seed)).draw(digest).error is None
    assert Lots(Faults(error_rate=1, error_statuses=(503,), seed=seed)).draw(digest).error == 503


def test_the_rate_is_the_part_that_fails_and_each_status_has_its_share() -> None:
    lots = Lots(Faults(error_rate=0.2, error_statuses=(429, 503)))
    errors = [lot.error for lot in map(lots.draw, FEW)]
    assert 300 < len(errors) - errors.count(None) < 500
    assert errors.count(429) > 100 < errors.count(503)


def test_another_seed_chooses_others_and_a_request_that_comes_again_has_a_new_chance() -> None:
    one, other = (Lots(Faults(error_rate=0.5, seed=seed)) for seed in (1, 2))
    first = [one.draw(request).error for request in FEW]
    assert first != [other.draw(request).error for request in FEW]
    assert first != [one.draw(request).error for request in FEW]


def test_what_is_remembered_of_requests_is_bounded() -> None:
    lots = Lots(Faults())
    for number in range(25_000):
        lots.draw(str(number))
    assert len(lots._came) <= 10_000


def test_an_answer_takes_as_long_as_it_is_told() -> None:
    clock = Clock()
    with asked(clock.app("2.5")) as client:
        ask(client, "Name a river.")
        client.embeddings.create(model="any", input="a river")
        client.models.list()
    assert clock.pauses == [2.5, 2.5]


def test_a_latency_from_a_range_is_the_same_for_the_same_request_in_the_next_run() -> None:
    runs = []
    for clock in (Clock(), Clock()):
        with asked(clock.app("1-9")) as client:
            ask(client, "Name a river.")
            ask(client, "Name a lake.")
        runs.append(clock.pauses)
    first, again = runs
    assert first == again
    assert first[0] != first[1]
    assert all(1 <= seconds <= 9 for seconds in first)


def test_the_latency_of_a_streamed_answer_is_spread_over_its_chunks() -> None:
    clock = Clock()
    with (
        asked(clock.app("3")) as client,
        client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Name a river."}], stream=True
        ) as stream,
    ):
        chunks = list(stream)
    assert len(clock.pauses) == len(chunks) + 1  # the last one is before the end of the stream
    assert sum(clock.pauses) == pytest.approx(3)


def test_a_rule_may_have_a_latency_of_its_own_for_its_answer_for_the_usual_one_and_for_an_error() -> None:
    clock = Clock()
    rules = script(
        {"contains": "river", "text": "Usk", "latency": 7},
        {"contains": "lake", "latency": "8-8"},
        {"contains": "sea", "error": 500, "latency": 9},
        {"contains": "hill", "error": 500},
    )
    with asked(clock.app("1", rules)) as client:
        assert text_of(ask(client, "Name a river.")) == "Usk"
        assert text_of(ask(client, "Name a lake.")).startswith("[offline model]")
        for prompt in ("Name a sea.", "Name a hill."):
            with pytest.raises(openai.InternalServerError):
                ask(client, prompt)
        ask(client, "Name a town.")
    assert clock.pauses == [7, 8, 9, 1]


@pytest.mark.parametrize(
    ("status", "error"),
    [(429, openai.RateLimitError), (500, openai.InternalServerError), (503, openai.InternalServerError)],
)
def test_errors_come_as_the_client_knows_them_for_chats_and_embeddings(
    status: int, error: type[openai.APIStatusError]
) -> None:
    with asked(failing(error_rate=1, error_statuses=(status,))) as client:
        with pytest.raises(error, match=f"answers with the error {status}, as its error rate requires") as chat:
            ask(client, "Name a river.")
        with pytest.raises(error):
            ask(client, "Name a river.", stream=True)
        with pytest.raises(error):
            client.embeddings.create(model="any", input="a river")
        assert client.models.list().data
    assert chat.value.response.headers.get("Retry-After") == (None if status == 500 else "1")
