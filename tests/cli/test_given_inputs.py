from __future__ import annotations

from typing import Any

import click
import pytest

from windlass.cli.kickoff_options import fitted, given_inputs, json_object, pair

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("topic=tea", ("topic", "tea")),
        ("topic=", ("topic", "")),
        ("topic=a=b:=c", ("topic", "a=b:=c")),
        ("depth:=2", ("depth", 2)),
        ('list:=["a", {"b": null}]', ("list", ["a", {"b": None}])),
        ("two words=x", ("two words", "x")),
        ("a:b=x", ("a:b", "x")),
    ],
)
def test_a_pair_is_a_name_and_a_text_or_a_value(given: str, expected: tuple[str, Any]) -> None:
    assert pair(given) == expected


@pytest.mark.parametrize(
    "given", ["topic", "=tea", ":=1", "", "depth:=two", "depth:=NaN", pytest.param("x:=" + "[" * 100_000, id="deep")]
)
def test_what_is_no_pair_is_refused_in_words(given: str) -> None:
    with pytest.raises(click.UsageError, match=r"NAME=VALUE|is not JSON"):
        pair(given)


def test_pairs_go_before_the_text_and_the_text_before_the_file() -> None:
    assert given_inputs('{"a": 1, "b": 1, "c": 1}', '{"b": 2, "c": 2}', ["c:=3"]) == {"a": 1, "b": 2, "c": 3}


def test_a_later_pair_goes_before_an_earlier_one() -> None:
    assert given_inputs(None, None, ["a=1", "a=2"]) == {"a": "2"}


@pytest.mark.parametrize("text", ["[]", '"a"', "null", "3", ""])
def test_what_is_no_object_is_refused_with_the_option_that_gave_it(text: str) -> None:
    with pytest.raises(click.UsageError, match=r"^--meta: "):
        json_object(text, "--meta")


SCHEMA: dict[str, Any] = {
    "$defs": {"Depth": {"type": "integer"}},
    "properties": {
        "text": {"type": "string"},
        "any": {},
        "sentences": {"type": "integer"},
        "weight": {"type": "number"},
        "brief": {"type": "boolean"},
        "tags": {"type": "array"},
        "audience": {"type": "object"},
        "perhaps": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "open": {"anyOf": [{"type": "integer"}, {}]},
        "both": {"type": ["integer", "string"]},
        "level": {"enum": [1, 2]},
        "tone": {"enum": ["dry", "1"]},
        "depth": {"allOf": [{"$ref": "#/$defs/Depth"}], "description": "How deep."},
    },
}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("text=3", "3"),
        ("any=3", "3"),
        ("unnamed=3", "3"),
        ("sentences=3", 3),
        ("sentences=-3", -3),
        ("sentences=3.0", 3.0),
        ("weight=3", 3),
        ("weight=2.5", 2.5),
        ("brief=true", True),
        ("brief=False", False),
        ('tags=["a"]', ["a"]),
        ('audience={"a": 1}', {"a": 1}),
        ("perhaps=4", 4),
        ("perhaps=None", None),
        ("either=3", "3"),
        ("open=3", "3"),
        ("both=3", "3"),
        ("level=2", 2),
        ("tone=1", "1"),
        ("depth=7", 7),
        ('sentences:="3"', "3"),
    ],
)
def test_a_text_is_converted_to_the_type_that_the_schema_demands(given: str, value: Any) -> None:
    name, _ = pair(given)
    converted = fitted(given_inputs(None, None, [given]), [given], SCHEMA)
    assert (converted, type(converted[name])) == ({name: value}, type(value))


@pytest.mark.parametrize(
    ("given", "wanted", "example"),
    [
        ("sentences=three", "integer", "sentences:=3"),
        ("sentences=2.5", "integer", "sentences:=3"),
        ("sentences=true", "integer", "sentences:=3"),
        ("weight=NaN", "number", "weight:="),
        ("tags=a,b", "array", 'tags:=["a", "b"]'),
        ("brief=yes", "boolean", "brief:=true"),
        ("perhaps=", "integer or null", "perhaps:=3"),
    ],
)
def test_a_text_that_is_no_value_of_the_type_is_refused_with_the_way_to_give_one(
    given: str, wanted: str, example: str
) -> None:
    with pytest.raises(click.UsageError, match=f"demands .*{wanted}") as refused:
        fitted(given_inputs(None, None, [given]), [given], SCHEMA)
    assert example in refused.value.message


def test_the_last_of_several_pairs_decides_whether_it_is_a_text() -> None:
    pairs = ["sentences=x", "sentences:=2", "weight:=1", "weight=2"]
    assert fitted(given_inputs(None, None, pairs), pairs, SCHEMA) == {"sentences": 2, "weight": 2}


def test_inputs_of_other_options_are_not_converted() -> None:
    assert fitted({"sentences": "3"}, [], SCHEMA) == {"sentences": "3"}
