"""What a crew's schema or a stranger's value can't do to a server that checks one by the other."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from windlass.kickoffs.inputs import InputsCheck, Invalid
from windlass.kickoffs.schema_checks import MOST_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator


def reasons(schema: dict[str, Any], value: Any, **more: Any) -> list[str]:
    """Why the value of the input x is refused."""
    match InputsCheck.of({"properties": {"x": schema}, **more})({"x": value}):
        case Invalid(found):
            return list(found.values())
    return []


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and what it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/x", paths
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_pattern_holds() -> None:
    assert reasons({"pattern": "^[A-Z]{2}$"}, "AT") == []
    assert reasons({"pattern": "^[A-Z]{2}$"}, "at") == ["'at' does not match '^[A-Z]{2}$'"]
    assert reasons({"pattern": "b"}, "abc") == [], "it is searched for"
    assert reasons({"pattern": "^a$"}, 7) == [], "it is of texts"


def test_a_pattern_that_other_engines_take_for_ever_for_is_matched_at_once() -> None:
    assert reasons({"pattern": r"^(\w+\s?)+$"}, "a" * 5000 + "!") != []


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", r"^(?=a)", r"(a)\1", "["])
def test_a_pattern_that_one_of_the_engines_does_not_know_refuses_no_schema(pattern: str) -> None:
    assert reasons({"pattern": pattern}, "aa") == []


def test_nothing_is_fetched_for_a_reference(asked: tuple[str, list[str]]) -> None:
    address, paths = asked
    with pytest.raises(ValueError, match="which is not in it"):
        InputsCheck.of({"properties": {"x": {"$ref": address}}})
    assert paths == []


@pytest.mark.parametrize("reference", ["#/nope", "#/$defs/nope", "file:///etc/hostname", "other.json", "#anchor"])
def test_a_reference_to_what_is_not_there_is_refused_when_the_schema_is_read(reference: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"refers to {reference}")):
        InputsCheck.of({"properties": {"x": {"items": {"$ref": reference}}}})


@pytest.mark.parametrize("where", ["$defs", "definitions"])
def test_a_reference_is_found_wherever_it_leads_in_the_schema(where: str) -> None:
    more = {where: {"n": {"type": "number"}}}
    assert reasons({"$ref": f"#/{where}/n"}, 1, **more) == []
    assert reasons({"$ref": f"#/{where}/n"}, "1", **more) == ["'1' is not of type 'number'"]
    assert reasons({"$ref": f"#/{where}/n"}, "1", **more, **{"$id": "https://example.com/inputs"}) != []


def test_one_input_may_be_as_another() -> None:
    schema = {"properties": {"a/b ~ c%": {"type": "integer"}, "x": {"$ref": "#/properties/a~1b%20~0%20c%25"}}}
    found = InputsCheck.of(schema)({"x": "1", "a/b ~ c%": "1"})
    assert isinstance(found, Invalid)
    assert set(found.reasons) == {"x", "a/b ~ c%"}


def test_what_a_default_holds_is_no_reference() -> None:
    assert reasons({"default": {"$ref": "#/nope"}, "type": "string"}, "a") == []


TREE = {
    "tree": {
        "anyOf": [
            {"properties": {"kind": {"const": kind}, "next": {"$ref": "#/$defs/tree"}}, "required": ["kind"]}
            for kind in ("add", "subtract")
        ]
    }
}


def deep(levels: int) -> Any:
    value: Any = {"kind": "nothing"}
    for _ in range(levels):
        value = {"kind": "nothing", "next": value}
    return value


def test_a_value_whose_check_would_double_with_each_level_is_given_up() -> None:
    assert reasons({"$ref": "#/$defs/tree"}, deep(2), **{"$defs": TREE}) != []
    assert reasons({"$ref": "#/$defs/tree"}, deep(90), **{"$defs": TREE}) == []


def test_a_long_list_is_left_to_the_crew() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert reasons(schema, [1] * (MOST_STEPS - 10) + ["no"]) != []
    assert reasons(schema, [1] * (MOST_STEPS + 10) + ["no"]) == []


def test_items_that_stand_twice_are_found_among_thousands_of_objects() -> None:
    schema = {"type": "array", "uniqueItems": True}
    once = [{"n": number} for number in range(30_000)]
    assert reasons(schema, once) == []
    assert len(reasons(schema, [*once, {"n": 7}])) == 1


@pytest.mark.parametrize("value", [19.99, 4.35, 0.07, 3, -0.01, 1e300, 10**400])
def test_a_multiple_is_one_of_the_number_as_it_is_written(value: float) -> None:
    assert reasons({"multipleOf": 0.01}, value) == []
    assert reasons({"multipleOf": 0.01}, 0.015) == ["0.015 is not a multiple of 0.01"]


@pytest.mark.parametrize(
    "passed_over", [{"patternProperties": {"^a": {"type": "integer"}}}, {"pattern": "^(?=a)"}], ids=["names", "pattern"]
)
def test_what_is_left_to_the_crew_refuses_nothing_where_it_stands_among_others(passed_over: dict[str, Any]) -> None:
    value: Any = {"b": 1} if "patternProperties" in passed_over else "b"
    other = (
        {"patternProperties": {"^b": {"type": "integer"}}} if "patternProperties" in passed_over else {"minLength": 1}
    )
    assert reasons({"oneOf": [passed_over, other]}, value) == []
    assert reasons({"not": passed_over}, value) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/properties/x"},
        {"$dynamicRef": "#nowhere"},
        {"$ref": "#/$defs/list"},
        {"$ref": "#/$defs/text"},
        {"properties": {"default": {"$ref": "#/nope"}}},
        {"$defs": {"enum": {"$ref": "http://127.0.0.1:9/x"}}},
    ],
    ids=["to itself", "dynamic", "to a list", "to a text", "in a property named default", "in a definition named enum"],
)
def test_no_reference_raises_when_a_value_is_checked(schema: dict[str, Any]) -> None:
    more = {"$defs": {"list": [1], "text": "no schema"}}
    try:
        check = InputsCheck.of({"properties": {"x": schema}, **more})
    except ValueError:
        return
    assert check({"x": {"default": 1}}) is None


def test_references_are_resolved_where_they_stand() -> None:
    own = {"$id": "https://example.org/n", "$ref": "#/$defs/whole", "$defs": {"whole": {"type": "integer"}}}
    assert reasons(own, 1) == []
    assert reasons(own, "1") != []


def test_a_schema_that_is_nested_too_deeply_is_refused_in_words() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(3000):
        schema = {"items": schema}
    with pytest.raises(ValueError, match="nested too deeply"):
        InputsCheck.of({"properties": {"x": schema}})


def test_a_name_may_hold_half_a_character() -> None:
    assert InputsCheck.of({"properties": {"\ud800": {"type": "integer"}}})({"\ud800": "x"}) is None


def test_names_of_members_by_pattern_are_left_to_the_crew() -> None:
    schema = {"patternProperties": {r"^(\w+\s?)+$": {"type": "integer"}}, "additionalProperties": False}
    assert reasons(schema, {"a" * 5000 + "!": "x"}) == []
    assert reasons({"additionalProperties": False}, {"a": 1}) != []
