from __future__ import annotations

from typing import Any

import pytest

from windlass.kickoffs.inputs import LONGEST_REASON, MOST_UNKNOWN, InputsCheck, Invalid, Missing

pytestmark = pytest.mark.unit


PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TRIP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "topic": {"description": "anything", "title": "Topic", "default": None},
        "days": {"type": "integer", "minimum": 1},
        "pace": {"enum": ["slow", "fast"]},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
    },
    "required": ["topic", "days"],
    "$defs": {"Place": PLACE},
}
check = InputsCheck.of(TRIP)


def test_inputs_that_fit_are_taken() -> None:
    assert check({"topic": {"any": ["thing", None]}, "days": 2, "pace": "slow", "stops": [{"city": "Wien"}]}) is None


def test_inputs_that_the_schema_does_not_name_are_taken() -> None:
    assert check({"topic": "", "days": 1, "hobby": {"deep": [1]}}) is None


def test_inputs_that_a_crew_cannot_use_are_named_with_the_most_similar_name() -> None:
    closed = InputsCheck.of(TRIP | {"additionalProperties": False})
    given = {"topic": "", "days": 1, "paec": "slow", "hobby": 1}
    assert closed(given) is None, "they are accepted"
    assert closed.unknown(given) == {"paec": "pace", "hobby": None}
    assert closed.unknown({"topic": "", "days": 1}) == {}
    assert check.unknown(given) == {}, "the crew may use other names"


def test_an_input_that_a_crew_may_use_is_named_only_beside_a_similar_one_that_is_not_given() -> None:
    assert check.unknown({"topics": "", "hobby": 1}) == {"topics": "topic"}
    assert check.unknown({"topic": "", "topics": ""}) == {}
    assert InputsCheck.of(TRIP | {"additionalProperties": True}).unknown({"topics": ""}) == {}


def test_inputs_that_a_pattern_of_the_schema_names_are_known() -> None:
    closed = InputsCheck.of(TRIP | {"additionalProperties": False, "patternProperties": {"^id$": {}}})
    assert closed.unknown({"id": "x", "ids": "x"}) == {"ids": None}


def test_the_names_of_unknown_inputs_are_bounded() -> None:
    closed = InputsCheck.of(TRIP | {"additionalProperties": False})
    assert len(closed.unknown({f"{number}{'x' * 100_000}": 1 for number in range(50)})) == MOST_UNKNOWN


def test_all_missing_inputs_are_named_in_the_order_of_the_schema() -> None:
    assert check({}) == Missing(["topic", "days"])


def test_an_input_that_is_null_is_not_missing() -> None:
    assert check({"topic": None, "days": 1}) is None


def test_missing_inputs_are_told_before_invalid_ones() -> None:
    assert check({"days": "many", "pace": "sideways"}) == Missing(["topic"])


def test_every_invalid_input_has_its_reason() -> None:
    found = check({"topic": 1, "days": 0, "pace": "sideways"})
    assert found == Invalid(
        {"days": "0 is less than the minimum of 1", "pace": "'sideways' is not one of ['slow', 'fast']"}
    )


def test_a_reason_says_where_in_the_input_it_is() -> None:
    found = check({"topic": 1, "days": 1, "stops": [{"city": "Wien"}, {"city": 5}]})
    assert found == Invalid({"stops": "[1]['city']: 5 is not of type 'string'"})


def test_a_reason_is_not_as_long_as_the_input() -> None:
    found = check({"topic": 1, "days": "x" * 10_000})
    assert isinstance(found, Invalid)
    assert len(found.reasons["days"]) == LONGEST_REASON + len("...")


def test_true_is_no_whole_number() -> None:
    assert check({"topic": 1, "days": True}) == Invalid({"days": "True is not of type 'integer'"})


def test_inputs_of_which_nothing_is_said_need_no_validator() -> None:
    assert set(check.validators) == {"days", "pace", "stops"}


def test_a_property_that_takes_anything_or_nothing_is_a_schema_too() -> None:
    either = InputsCheck.of({"properties": {"any": True, "none": False}})
    assert either({"any": 1}) is None
    assert either({"none": 1}) == Invalid({"none": "False schema does not allow 1"})


def test_a_schema_without_members_takes_everything() -> None:
    assert InputsCheck.of({})({"x": 1}) is None


@pytest.mark.parametrize("schema", [{"type": "thing"}, {"properties": {"x": {"minimum": "1"}}}, {"required": "x"}])
def test_what_is_no_schema_is_refused_in_words(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the input schema is not valid"):
        InputsCheck.of(schema)
