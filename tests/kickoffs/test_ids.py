from __future__ import annotations

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kickoffs.ids import new_id, parse_id

pytestmark = pytest.mark.unit


A_KICKOFF = "019ab0c4-7d1e-7cc3-98c4-dc0c0c07398f"


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = new_id()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_an_id_begins_with_the_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


@given(st.integers(0, 2**61), st.integers(1, 10**9))
def test_ids_are_in_the_order_of_their_making(at: int, later: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        first = _made_at(at, patch)
        second = _made_at(at + later, patch)
    assert first <= second | _RANDOM_PART


def test_a_quarter_of_a_microsecond_is_enough_to_be_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    ids = [_made_at(now + step * 245, monkeypatch) for step in range(1000)]
    assert ids == sorted(ids)


def test_ids_of_one_instant_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    assert len({_made_at(now, monkeypatch) for _ in range(1000)}) == 1000


def test_an_id_is_read_in_either_case() -> None:
    assert parse_id(A_KICKOFF) == parse_id(A_KICKOFF.upper()) == uuid.UUID(A_KICKOFF)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        A_KICKOFF.replace("-", ""),
        f"{{{A_KICKOFF}}}",
        f"urn:uuid:{A_KICKOFF}",
        f" {A_KICKOFF}",
        f"{A_KICKOFF}\n",
        A_KICKOFF[:-1],
        A_KICKOFF + "0",
        A_KICKOFF.replace("0", "\N{ARABIC-INDIC DIGIT ZERO}"),
        "019ab0c47-d1e-7cc3-98c4-dc0c0c07398f",
        "\ud800" * 36,
        "\x00",
    ],
)
def test_another_form_is_no_id(text: str) -> None:
    assert parse_id(text) is None


@given(st.text())
def test_no_text_is_too_strange_to_be_read(text: str) -> None:
    assert parse_id(text) is None


_RANDOM_PART = (1 << 62) - 1


def _made_at(nanoseconds: int, patch: pytest.MonkeyPatch) -> int:
    patch.setattr("time.time_ns", lambda: nanoseconds)
    return new_id().int
