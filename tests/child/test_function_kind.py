from __future__ import annotations

import datetime as dt
import enum
import hashlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest
from pydantic import BaseModel, Field

from projects_for_tests.driver import value_of
from projects_for_tests.making import function_project
from windlass_child.kinds.function import LoadedFunction, load
from windlass_child.masking.redaction import Redaction
from windlass_child.process.error_text import InputsRefused, ProjectFault, explain
from windlass_child.process.report import Report
from windlass_child.protocol.messages import (
    Message,
    ProcessEnvironment,
    Project,
    Run,
    Succeeded,
    TaskEnded,
    TasksKnown,
    TaskStarted,
    Warned,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0
    colours: list[Colour] = field(default_factory=list)


class Options(TypedDict):
    depth: int
    note: NotRequired[str]


class Nested(BaseModel):
    words: list[str]


class Model(BaseModel):
    inner: Nested
    limit: int = Field(5, description="At most.")


class Listening:
    """The worker's end of a report."""

    def __init__(self) -> None:
        self.heard: list[Message] = []

    def send(self, message: Message) -> None:
        self.heard.append(message)


def run(function: Any, heard: list[Message] | None = None, **inputs: Any) -> Succeeded:
    channel = Listening()
    report = Report(channel, Redaction({}))
    order = Run("id", 1, Project("function", "/", "a:b"), ProcessEnvironment({}, "/"), inputs)
    try:
        return LoadedFunction(function).run(order, report)
    finally:
        (heard if heard is not None else []).extend(channel.heard)


def schema(annotation: Any) -> dict[str, Any]:
    def function(value: Any) -> None:
        """Takes one."""

    function.__annotations__ = {"value": annotation}
    found = LoadedFunction(function).manifest()["inputs_schema"]
    value: dict[str, Any] = found["properties"]["value"]
    return value | ({"$defs": found["$defs"]} if "$defs" in found else {})


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict[str, Any], {"type": "object"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045 - as others write it
        (int | Any, {}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Colour, {"enum": ["red", "blue"]}),
        (Annotated[int, "How many"], {"type": "integer", "description": "How many"}),
        (Annotated[int, Field(description="How many")], {"type": "integer", "description": "How many"}),
        (Any, {}),
        (object, {}),
        ("no such name", {}),
    ],
    ids=str,
)
def test_annotations_become_json_schema(annotation: Any, expected: dict[str, Any]) -> None:
    assert schema(annotation) == expected


def test_a_dataclass_becomes_an_object() -> None:
    colours = {"type": "array", "items": {"enum": ["red", "blue"]}}
    properties = {"x": {"type": "integer"}, "y": {"type": "integer"}, "colours": colours}
    assert schema(Point) == {"type": "object", "properties": properties, "required": ["x"]}


def test_a_typed_dict_becomes_an_object() -> None:
    properties = {"depth": {"type": "integer"}, "note": {"type": "string"}}
    assert schema(Options) == {"type": "object", "properties": properties, "required": ["depth"]}


def test_a_model_brings_its_own_schema_and_what_that_refers_to_lies_at_the_root() -> None:
    found = schema(list[Model])
    assert found["items"]["properties"]["inner"] == {"$ref": "#/$defs/Model.Nested"}
    assert found["$defs"]["Model.Nested"]["properties"]["words"]["type"] == "array"


def test_defaults_make_an_input_optional_and_are_told() -> None:
    odd, start = object(), Point(1)
    ones: list[Any] = [lambda needed, number=3: needed, lambda odd=odd: odd, lambda point=start: point]
    first, second, third = (LoadedFunction(one).manifest()["inputs_schema"] for one in ones)
    assert first["required"] == ["needed"]
    assert first["properties"] == {"needed": {}, "number": {"default": 3}}
    assert second["properties"] == {"odd": {}}
    assert third["properties"]["point"]["default"] == {"x": 1, "y": 0, "colours": []}


def test_the_schema_excludes_inputs_that_the_function_cannot_take() -> None:
    schemas = [LoadedFunction(one).manifest()["inputs_schema"] for one in (lambda a: a, lambda a, **others: others)]
    assert [one.get("additionalProperties", True) for one in schemas] == [False, True]


@pytest.mark.parametrize(
    "doc",
    [
        "Adds.\n\n:param a: The first\n",
        "Adds.\n\nArgs:\n    a: The first\n",
        "Adds.\n\nArgs:\n    a (int): The first\n",
    ],
)
def test_parameters_are_described_by_the_docstring(doc: str) -> None:
    def function(a: int) -> int:
        return a

    function.__doc__ = doc
    properties = LoadedFunction(function).manifest()["inputs_schema"]["properties"]
    assert properties == {"a": {"type": "integer", "description": "The first"}}


def test_its_one_task_is_known_by_its_description() -> None:
    def described() -> None:
        """Does it."""

    def bare() -> None:
        pass

    (task,) = LoadedFunction(described).manifest()["tasks"]
    assert task == {"key": hashlib.md5(b"Does it.").hexdigest(), "name": "described", "agent": None}
    assert LoadedFunction(bare).manifest()["tasks"][0]["key"] == hashlib.md5(b"bare").hexdigest()


def test_objects_are_built_as_annotated() -> None:
    def function(point: Point, colour: Colour, model: Model | None, points: list[Point], options: Options) -> Any:
        assert colour is Colour.RED
        words = None if model is None else model.inner.words
        return [point.y, words, points[0].x, options["depth"]]

    inputs: dict[str, Any] = {"point": {"x": 1, "y": 2}, "colour": "red", "points": [{"x": 2}], "options": {"depth": 3}}
    assert value_of(run(function, model={"inner": {"words": ["a"]}}, **inputs)) == [2, ["a"], 2, 3]
    assert value_of(run(function, model=None, **inputs)) == [2, None, 2, 3]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "function needs inputs that were not given: point"),
        ({"point": {"z": 1}}, "the input point does not fit: "),
        ({"point": {"x": 1}, "colour": "green"}, "the input colour does not fit: 'green' is not a valid Colour"),
        ({"point": {"x": 1}, "model": {"inner": {}}}, "the input model does not fit: inner.words: Field required"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_words(inputs: dict[str, Any], words: str) -> None:
    def function(point: Point, colour: Colour = Colour.RED, model: Model | None = None) -> None:
        pass

    with pytest.raises(InputsRefused) as caught:
        run(function, **inputs)
    assert str(caught.value).startswith(words)


def test_more_inputs_than_it_takes_are_left_out() -> None:
    assert run(lambda a: a, a=1, b=2) == Succeeded("1", "1")


def test_a_function_that_takes_anything_gets_them_all() -> None:
    assert value_of(run(lambda a, **more: [a, more], a=1, b=2, c=3)) == [1, {"b": 2, "c": 3}]


def test_an_async_function_is_run_to_its_end() -> None:
    async def function(a: int) -> int:
        return a + 1

    assert value_of(run(function, a=1)) == 2


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", Succeeded("text")),
        (None, Succeeded("")),
        (1, Succeeded("1", "1")),
        ({"a": ["é", None]}, Succeeded('{"a": ["é", null]}', '{"a":["\\u00e9",null]}')),
        ((1, 2), Succeeded("[1, 2]", "[1,2]")),
        ({2, 1}, Succeeded("[1, 2]", "[1,2]")),
        ([Point(1)], Succeeded('[{"x": 1, "y": 0, "colours": []}]', '[{"x":1,"y":0,"colours":[]}]')),
        ({"k": Nested(words=["a"])}, Succeeded('{"k": {"words": ["a"]}}', '{"k":{"words":["a"]}}')),
        ({dt.date(2026, 1, 2): Decimal("1.5")}, Succeeded('{"2026-01-02": "1.5"}', '{"2026-01-02":"1.5"}')),
        (dt.timedelta(minutes=1.5), Succeeded("PT90S")),
        (Colour.RED, Succeeded(Colour.RED.value)),
        (b"text", Succeeded("text")),
        (Nested(words=["a"]), Succeeded('{"words": ["a"]}', '{"words":["a"]}')),
        (Point(1), Succeeded('{"x": 1, "y": 0, "colours": []}', '{"x":1,"y":0,"colours":[]}')),
    ],
    ids=str,
)
def test_what_it_returns_is_the_result(value: Any, result: Succeeded) -> None:
    heard: list[Message] = []
    assert run(lambda: value, heard) == result
    assert not any(isinstance(message, Warned) for message in heard)


@pytest.mark.parametrize(
    ("value", "result", "words"),
    [
        (math.nan, Succeeded("null", "null"), "the number nan, which JSON does not have: null was taken"),
        ({"a": [math.inf]}, Succeeded('{"a": [null]}', '{"a":[null]}'), "the number inf"),
        (1j, Succeeded("1j"), "a complex, which is not JSON: its text was taken"),
        (b"\xff", Succeeded("/w=="), "bytes that are not text in UTF-8"),
        ({1: "a", "1": "b"}, Succeeded('{"1": "b"}', '{"1":"b"}'), "two members with the name '1'"),
    ],
    ids=str,
)
def test_what_json_can_not_hold_is_warned_of(value: Any, result: Succeeded, words: str) -> None:
    heard: list[Message] = []
    assert run(lambda: value, heard) == result
    warned = [message for message in heard if isinstance(message, Warned)]
    assert [one.code for one in warned] == ["result_not_json"]
    assert words in warned[0].message


def test_its_task_starts_and_ends() -> None:
    heard: list[Message] = []
    run(lambda: "out", heard)
    known, started, ended = heard
    assert isinstance(known, TasksKnown)
    assert isinstance(started, TaskStarted)
    assert isinstance(ended, TaskEnded)
    assert (ended.state, ended.output) == ("completed", "out")
    assert started.key == known.tasks[0]["key"]


def test_its_task_fails_with_it() -> None:
    def function() -> None:
        raise LookupError

    heard: list[Message] = []
    with pytest.raises(LookupError):
        run(function, heard)
    assert [message.state for message in heard if isinstance(message, TaskEnded)] == ["failed"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("run = 3\n", "work:run is no function. Name one in pyproject.toml, under [tool.windlass]."),
        ("def run(a, /): pass\n", "work:run takes a by position only. Remove the `/` from its parameters."),
        (
            "class run:\n    is_crew_class = True\n",
            'work:run is a crew and no function. Write in pyproject.toml: [tool.windlass] crew = "work:run"',
        ),
        (
            "class run:\n    flow_definition = True\n",
            'work:run is a flow and no function. Write in pyproject.toml: [tool.windlass] flow = "work:run"',
        ),
    ],
)
def test_an_entrypoint_that_can_not_be_called_by_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.delitem(sys.modules, "work", raising=False)
    function_project(tmp_path, code)
    project = Project("function", str(tmp_path), "work:run")
    with pytest.raises(ProjectFault) as caught:
        load(project)
    told = explain(caught.value, "load", str(tmp_path))
    assert f"{told.message} {told.hint}" == words


class Unknown:
    pass


class Odd(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    handle: Unknown
    run: Callable[[], int] = int
    words: str
    raw: bytes = b"\xff"


class Later(BaseModel):
    inner: NotThere  # type: ignore[name-defined]  # noqa: F821 - as under TYPE_CHECKING
    words: str


def test_a_part_that_can_not_be_described_leaves_the_others_described() -> None:
    def run(odd: Odd, later: Later, missing: NotThere, several: list[NotThere], point: Point, depth: int = 2) -> None:  # type: ignore[name-defined]  # noqa: F821 - as under TYPE_CHECKING
        """Takes anything."""

    properties = LoadedFunction(run).manifest()["inputs_schema"]["properties"]
    assert list(properties) == ["odd", "later", "missing", "several", "point", "depth"]
    assert properties["odd"]["required"] == ["handle", "words"]
    assert properties["odd"]["properties"]["words"]["type"] == "string"
    assert list(properties["odd"]["properties"]) == ["handle", "run", "words", "raw"]
    assert properties["later"] == {
        "type": "object",
        "properties": {"inner": {}, "words": {}},
        "required": ["inner", "words"],
    }
    assert properties["missing"] == properties["several"] == {}
    assert properties["point"]["properties"]["x"] == {"type": "integer"}
    assert properties["depth"] == {"type": "integer", "default": 2}


def test_an_input_is_built_although_the_type_of_another_is_not_known() -> None:
    def run(missing: NotThere, point: Point) -> str:  # type: ignore[name-defined]  # noqa: F821 - as under TYPE_CHECKING
        return f"{missing} {point}"

    found = LoadedFunction(run)._arguments({"missing": 1, "point": {"x": 1}})
    assert found == {"missing": 1, "point": Point(1)}


@dataclass
class Partly:
    missing: NotThere  # type: ignore[name-defined]  # noqa: F821 - as under TYPE_CHECKING
    colour: Colour


def test_a_field_of_a_dataclass_that_can_not_be_described_leaves_the_others_described() -> None:
    def run(partly: Partly) -> None: ...

    schema = LoadedFunction(run).manifest()["inputs_schema"]["properties"]["partly"]
    assert schema["properties"] == {"missing": {}, "colour": {"enum": ["red", "blue"]}}
