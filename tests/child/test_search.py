"""The search for many patterns at once, against a plain one, and the masks of a stream, however it is divided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass_child.masking.search import BLOCK, SHORTEST, MaskedStream, Search, joined

pytestmark = pytest.mark.unit


MASK = b"#"
# few letters, so that patterns overlap themselves and each other
PATTERNS = st.lists(st.text("ab", min_size=SHORTEST, max_size=30).map(str.encode), max_size=6)


@st.composite
def data_with(draw: st.DrawFn, patterns: list[bytes]) -> bytes:
    letters = st.text("ab", max_size=12).map(str.encode)
    parts = st.one_of(st.binary(max_size=5), letters, st.sampled_from([*patterns, b""]))
    return b"".join(draw(st.lists(parts, max_size=12)))


@st.composite
def searched(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    patterns = draw(PATTERNS)
    return patterns, draw(data_with(patterns))


def plainly_masked(patterns: list[bytes], data: bytes) -> bytes:
    spans = [(at, at + len(one)) for one in patterns for at in range(len(data)) if data.startswith(one, at)]
    found, last = b"", 0
    for start, end in joined(spans):
        found, last = found + data[last:start] + MASK, end
    return found + data[last:]


@given(searched())
def test_all_patterns_are_found_wherever_they_are(given: tuple[list[bytes], bytes]) -> None:
    patterns, data = given
    assert Search(patterns).masked(data, MASK) == plainly_masked(patterns, data)


@given(searched(), st.integers(1, 40))
def test_the_division_of_a_stream_makes_no_difference(given: tuple[list[bytes], bytes], size: int) -> None:
    patterns, data = given
    stream = MaskedStream(Search(patterns), MASK)
    parts = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join([*parts, stream.end()]) == plainly_masked(patterns, data)


@pytest.mark.parametrize("length", [SHORTEST, 11, 12, 19, 20, 40, BLOCK, BLOCK + 1, 5 * BLOCK + 7])
def test_a_pattern_is_found_at_each_place(length: int) -> None:
    pattern = bytes(33 + number * number % 89 for number in range(length))
    search = Search([pattern])
    for before in range(40):
        assert search.masked(b" " * before + pattern + b"  ", MASK) == b" " * before + MASK + b"  "


def test_only_what_may_begin_a_pattern_is_held_back() -> None:
    stream = MaskedStream(Search([b"password-1", b"passphrase"]), MASK)
    assert [stream.feed(one) for one in (b"a pass", b"word", b"-2 passw", b"ord-1", b"!")] == [
        b"a ", b"", b"password-2 ", b"#", b"!"
    ]  # fmt: skip
    assert stream.end() == b""


def test_a_long_pattern_is_held_back_in_blocks_and_masked_once() -> None:
    pattern = "".join(f"{number}é" for number in range(5000)).encode()
    stream = MaskedStream(Search([pattern]), MASK)
    parts = [stream.feed(pattern[at : at + 100]) for at in range(0, len(pattern), 100)]
    assert b"".join(parts[:25]) == MASK, "given out before the end of the pattern"
    assert b"".join([*parts, stream.feed(b"!"), stream.end()]) == b"#!"


def test_half_of_a_long_pattern_is_masked_in_blocks() -> None:
    pattern = bytes(33 + number * number % 89 for number in range(5 * BLOCK))
    assert Search([pattern]).masked(b"x" + pattern[: 2 * BLOCK], MASK) == b"x#"


def test_without_patterns_all_is_left() -> None:
    stream = MaskedStream(Search([]), MASK)
    assert (Search([]).masked(b"anything", MASK), stream.feed(b"any"), stream.end()) == (b"anything", b"any", b"")


def test_a_pattern_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="6 bytes"):
        Search([b"a" * 6])
