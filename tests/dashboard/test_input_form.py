"""Which field each input of a schema has, and what becomes of the text in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.dashboard.input_form import InputField, described_inputs, texts_of, typed

pytestmark = pytest.mark.unit


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["topic", "audience"],
    "properties": {
        "length": {"type": "integer", "minimum": 1, "exclusiveMaximum": 11, "default": 3},
        "topic": {"type": "string", "description": "What to write about."},
        "code": {"type": "string", "maxLength": 8},
        "day": {"type": "string", "format": "date"},
        "tone": {"enum": ["dry", "warm", 7, None]},
        "style": {"$ref": "#/$defs/Style"},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "draft": {"type": "boolean", "default": True},
        "maybe": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "extra": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "nested": {"$ref": "#/$defs/Nested"},
        "loop": {"$ref": "#/properties/loop"},
        "elsewhere": {"$ref": "https://example.com/schema"},
        "anything": {},
        "count": {"default": 4},
        "always": True,
    },
    "$defs": {
        "Style": {"type": "string", "enum": ["a", "b"], "description": "Of a style."},
        "Nested": {"type": "object", "properties": {"x": {"type": "integer"}}},
    },
}
KINDS = {
    "topic": "text",
    "audience": "text",
    "length": "number",
    "code": "line",
    "day": "line",
    "tone": "select",
    "style": "select",
    "share": "number",
    "draft": "checkbox",
    "maybe": "select",
    "tags": "json",
    "extra": "json",
    "nested": "json",
    "loop": "json",
    "elsewhere": "json",
    "anything": "text",
    "count": "json",
    "always": "text",
}


def fields() -> dict[str, InputField]:
    return {field.name: field for field in described_inputs(SCHEMA)}


def sent(**texts: str) -> dict[str, str]:
    known = fields()
    return {known[name].key: text for name, text in texts.items()}


def test_each_input_has_the_field_of_its_type_and_the_required_ones_come_first() -> None:
    found = fields()
    assert {name: field.kind for name, field in found.items()} == KINDS
    assert list(found)[:2] == ["topic", "audience"]
    assert [name for name, field in found.items() if field.required] == ["topic", "audience"]
    length = found["length"]
    assert (length.minimum, length.maximum, length.is_whole, length.limits, length.initial) == (
        1,
        10,
        True,
        "1 to 10",
        "3",
    )
    assert found["tone"].options == (('"dry"', "dry"), ('"warm"', "warm"), ("7", "7"), ("null", "null"))
    assert found["style"].description == "Of a style."
    assert (found["share"].type, found["share"].nullable) == ("number or null", True)
    assert (found["draft"].initial, found["count"].initial, found["day"].html_type) == ("true", "4", "date")


def test_texts_become_values_of_the_type() -> None:
    form = sent(
        topic="tides\r\nand winds",
        length="5",
        tone="7",
        style='"b"',
        share="0.5",
        draft="true",
        maybe="false",
        tags='["a", 1]',
    )
    found = typed(list(fields().values()), form)
    assert found.errors == {}
    assert found.inputs == {
        "topic": "tides\nand winds",
        "length": 5,
        "tone": 7,
        "style": "b",
        "share": 0.5,
        "draft": True,
        "maybe": False,
        "tags": ["a", 1],
    }


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("length", "many", "whole number"),
        ("length", "1.5", "whole number"),
        ("length", "9" * 5000, "whole number"),
        ("share", "1e999", "Type a number"),
        ("share", "nan", "Type a number"),
        ("tags", "[1,", "at line 1"),
        ("tags", "[NaN]", "NaN"),
        ("nested", "[" * 101 + "]" * 101, "100 levels"),
    ],
)
def test_a_text_that_is_no_value_has_an_error_at_its_field_and_is_kept(name: str, text: str, words: str) -> None:
    found = typed(list(fields().values()), sent(**{name: text}))
    assert words in found.errors[name]
    assert list(found.errors) == [name]
    assert found.texts[name] == text
    assert name not in found.inputs


def test_an_empty_field_is_no_input_and_an_empty_box_is_false() -> None:
    assert typed(list(fields().values()), {}).inputs == {"draft": False}


def test_inputs_that_the_fields_can_not_hold_have_no_texts() -> None:
    known = list(fields().values())
    assert texts_of(known, {"topic": 4}) is None
    assert texts_of(known, {"other": "x"}) is None
    assert texts_of(known, {"tone": "cold"}) is None
    assert texts_of(known, {"draft": "yes"}) is None
    assert texts_of(known, {"length": True}) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "topic": st.text(min_size=1).filter(lambda text: text.strip() and "\r" not in text),
            "length": st.integers(),
            "share": st.floats(allow_nan=False, allow_infinity=False),
            "draft": st.booleans(),
            "tone": st.sampled_from(["dry", "warm", 7, None]),
            "tags": st.lists(VALUES),
            "nested": st.dictionaries(st.text(), VALUES),
        },
    )
)
def test_inputs_of_a_past_kickoff_come_back_from_the_form_as_they_were(inputs: dict[str, Any]) -> None:
    known = list(fields().values())
    texts = texts_of(known, inputs)
    assert texts is not None
    found = typed(known, {field.key: texts[field.name] for field in known})
    assert found.errors == {}
    assert {"draft": False, **json.loads(json.dumps(inputs))} == found.inputs
