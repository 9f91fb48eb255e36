from __future__ import annotations

from typing import Any

import pytest

from windlass.kickoffs.declared_settings import DAYS, BadSetting
from windlass.kickoffs.retention import Retention

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given", "days"), [(90, 90), (0.5, 0.5), ("7", 7), ("forever", 0), (" Forever ", 0), (0, 0), ("0", 0)]
)
def test_an_age_is_a_number_of_days_or_for_ever(given: Any, days: float) -> None:
    assert DAYS.value(given) == days


@pytest.mark.parametrize("given", [-1, "soon", "", True, None, float("nan"), float("inf"), "inf", 36_501, [], "1 day"])
def test_what_is_no_age_is_refused(given: Any) -> None:
    with pytest.raises(BadSetting, match=r'must be a number of days up to 36500, or "forever"'):
        DAYS.value(given)


def test_a_project_says_what_it_wants_and_the_usual_holds_for_the_rest() -> None:
    said = Retention.parse({"kickoffs": 10, "journal": "forever"})
    assert Retention(90, 30, 14, 7).replaced_by(said) == Retention(10, 30, 14, 0)


def test_what_was_said_is_read_back() -> None:
    said = Retention.parse({"kickoffs": "forever", "events": 2})
    assert Retention.parse(said.to_json()) == said
    assert Retention().to_json() == {}


def test_a_wrong_table_is_told_with_its_key() -> None:
    with pytest.raises(
        BadSetting, match="there is no retention time 'logs'; there are: deliveries, events, journal, kickoffs"
    ):
        Retention.parse({"logs": 3})
    with pytest.raises(BadSetting, match=r"events must be a number of days .*, not 'x'"):
        Retention.parse({"events": "x"})
