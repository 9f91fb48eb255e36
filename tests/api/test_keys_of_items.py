from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.crew_api.kickoff_requests import KEY, key_of_item
from windlass.api.crew_api.schemas import LARGEST_BATCH

pytestmark = pytest.mark.unit


@given(st.text(min_size=1, max_size=255), st.lists(st.integers(0, LARGEST_BATCH), unique=True, min_size=2, max_size=5))
def test_the_keys_of_items_are_keys_and_differ_by_place(key: str, places: list[int]) -> None:
    found = [key_of_item(key, place) for place in places]
    assert len(set(found)) == len(found)
    assert all(KEY.validate_python(one) == one for one in found)
    assert found == [key_of_item(key, place) for place in places]
