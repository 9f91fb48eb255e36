"""How an input of a crew is described."""

from __future__ import annotations

import pytest

from windlass_child.crewai.inputs import Input, described

pytestmark = pytest.mark.unit


def test_the_description_of_an_input_names_few_places() -> None:
    places = ["task a", "task b", "task c", "agent d", "agent e"]
    assert described(Input("topic", required=True, used_in=places[:3])) == "Used in task a, task b, task c."
    assert described(Input("topic", required=True, used_in=places)) == "Used in task a, task b and 3 more places."
