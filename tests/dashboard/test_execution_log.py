"""The lines of a log that a page shows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from windlass.dashboard.execution_log import MOST_CHARACTERS, Line, _newest

pytestmark = pytest.mark.unit


def lines(*lengths: int) -> list[Line]:
    return [Line(seq, 1, datetime.now(UTC), "printed", "", "x" * length) for seq, length in enumerate(lengths)]


def test_a_page_has_the_newest_lines_within_its_bound() -> None:
    half = MOST_CHARACTERS // 2
    assert [one.seq for one in _newest(lines(1, half, half, 0))] == [1, 2, 3]
    assert [one.seq for one in _newest(lines(10, 2 * MOST_CHARACTERS))] == [1]
    assert [one.seq for one in _newest(lines(10, 2 * MOST_CHARACTERS, 1))] == [2]
    assert _newest([]) == []
