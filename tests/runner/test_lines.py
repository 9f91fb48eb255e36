from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.runner.io import CUT, LONGEST_LINE, LineSplitter

pytestmark = pytest.mark.unit


def split(*chunks: bytes) -> list[str]:
    lines = LineSplitter()
    return [line for chunk in chunks for line in lines.feed(chunk)] + lines.end()


def test_lines_come_when_they_are_complete() -> None:
    lines = LineSplitter()
    assert lines.feed(b"one\ntw") == ["one"]
    assert lines.feed(b"o\n\n") == ["two", ""]
    assert lines.end() == []


def test_a_last_line_needs_no_end() -> None:
    assert split(b"one\ntwo") == ["one", "two"]


def test_the_carriage_return_before_an_end_goes_with_it() -> None:
    assert split(b"one\r\n") == ["one"]


def test_what_is_no_utf_8_is_replaced() -> None:
    assert split(b"a\xffb\n") == ["a\N{REPLACEMENT CHARACTER}b"]


def test_a_line_of_the_longest_length_is_whole() -> None:
    assert split(b"x" * LONGEST_LINE + b"\n") == ["x" * LONGEST_LINE]


def test_a_longer_line_is_cut_with_a_mark_and_the_next_one_is_not() -> None:
    assert split(b"x" * LONGEST_LINE, b"xxx", b"x\nnext\n") == ["x" * LONGEST_LINE + CUT, "next"]


def test_a_character_is_not_cut_in_two() -> None:
    assert split(b"x" * (LONGEST_LINE - 1) + "é".encode() + b"\n") == ["x" * (LONGEST_LINE - 1) + CUT]


@given(st.binary(max_size=200), st.integers(1, 50))
def test_how_the_bytes_arrive_makes_no_difference(data: bytes, size: int) -> None:
    assert split(*(data[at : at + size] for at in range(0, len(data), size))) == split(data)
