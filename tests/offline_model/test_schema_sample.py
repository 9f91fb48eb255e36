from typing import Any

import pytest
from jsonschema import Draft202012Validator

from windlass.offline_model.schema_sample import sample

pytestmark = pytest.mark.unit


NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
    "required": ["value", "next"],
}
SUM = {
    "type": "object",
    "properties": {side: {"anyOf": [{"$ref": "#/$defs/Sum"}, {"$ref": "#/$defs/Leaf"}]} for side in ("left", "right")},
    "required": ["left", "right"],
}
SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "string"},
    {"type": "string", "minLength": 200},
    {"type": "string", "maxLength": 3},
    {"type": "string", "format": "date-time"},
    {"type": ["string", "null"]},
    {"type": "integer"},
    {"type": "integer", "minimum": 2.5},
    {"type": "integer", "maximum": -7},
    {"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 7},
    {"type": "integer", "minimum": 10, "multipleOf": 7},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "minimum": 0.25, "maximum": 0.25},
    {"type": "boolean"},
    {"type": "null"},
    {"const": {"fixed": 1}},
    {"enum": ["first", "second"]},
    {"type": "array"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2},
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a", "b"]},
    {"properties": {"optional": {"type": "integer"}}, "additionalProperties": False},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"},
    {"$defs": {"Sum": SUM, "Leaf": {"type": "integer"}}, "$ref": "#/$defs/Sum"},
    {
        "$defs": {"Service": {"properties": {"a": {"type": "null"}}, "required": ["a"]}},
        "allOf": [{"$ref": "#/$defs/Service"}],
    },
    {
        "type": "object",
        "properties": {"own": {"type": "integer"}},
        "required": ["own"],
        "allOf": [{"properties": {"more": {"type": "boolean"}}, "required": ["more"]}],
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_a_sample_fits_its_schema(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(sample(schema, "some text"))


def test_strings_hold_the_given_text() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert sample(schema, "some text") == {"a": "some text"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": 1},
        {"type": 1},
        {"type": []},
        {"enum": "none", "anyOf": [None], "properties": 3, "required": "all"},
        {"allOf": [True, {"$ref": "#"}]},
        {"type": "number", "minimum": "a lot", "multipleOf": 0},
        {"type": "object", "required": [1, {}], "properties": {"a": 1}},
        {"type": "array", "minItems": -1, "items": False},
        {"type": "array", "minItems": 1e300, "items": {"type": "null"}},
        {"type": "string", "minLength": 1e300},
        {"allOf": [{"$ref": "#/allOf"}]},
        {"type": "string", "format": {}, "maxLength": -1},
    ],
    ids=str,
)
def test_a_schema_that_makes_no_sense_gets_some_value_all_the_same(schema: dict[str, Any]) -> None:
    sample(schema, "some text")
