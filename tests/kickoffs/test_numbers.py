from __future__ import annotations

import pytest

from windlass.kickoffs.waiting import how_often, ordinal

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (112, "112th"),
    ],
)
def test_places_are_numbered_as_people_do(number: int, text: str) -> None:
    assert ordinal(number) == text


@pytest.mark.parametrize(("count", "words"), [(1, "once"), (2, "2 times"), (0, "0 times")])
def test_how_often_is_said_as_people_do(count: int, words: str) -> None:
    assert how_often(count) == words
