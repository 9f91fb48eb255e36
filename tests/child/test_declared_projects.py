"""Crews that are declared in JSON and flows that are declared in YAML run as those that are written in Python do."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.crews import PRELUDE
from projects_for_tests.interrupted import MODEL, Kickoff, restored_tasks
from projects_for_tests.making import written
from windlass.kickoffs.manifest import Manifest
from windlass.projects import recognise
from windlass_child.protocol.messages import Inspected, Succeeded, TaskStarted

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote
    from windlass_child.protocol.messages import Failed

pytestmark = pytest.mark.xdist_group("crewai")

CODE = """
MODEL = "no function"
class Worker(Agent):
    def __init__(self, **fields):
        super().__init__(**fields | {"llm": Counted(model="counted")})

class Tide(BaseModel):
    place: str
    hours: int = 6
"""

AGENT = '{"type": {"python": "work.Worker"}, "role": "Clerk of {place}", "goal": "Answer", "backstory": "Brief."}'

CREW = """
{
  // with comments, and a comma too many
  "name": "Tides",
  "agents": ["clerk"],
  "inputs": {"place": "Brest", "unused": [1, 2]},
  "tasks": [
    {"name": "a", "description": "Do [a] in {place} at {hour}", "expected_output": "Words", "agent": "clerk"},
    {"name": "b", "description": "Do [b]", "expected_output": "Words", "agent": "clerk", "context": ["a"]},
  ],
}
"""


def declared(folder: Path, crew: str = CREW, **files: str) -> Path:
    code = PRELUDE + MODEL + "from pydantic import BaseModel\n" + CODE
    return written(folder, {"crew.jsonc": crew, "agents/clerk.jsonc": AGENT, "work.py": code} | files)


def flow(folder: Path, text: str) -> Path:
    pyproject = '[tool.crewai]\ntype = "flow"\ndefinition = "flow.yaml"\n'
    return declared(folder, **{"pyproject.toml": pyproject, "flow.yaml": textwrap.dedent(text)})


def kickoff(zygote: DrivenZygote, tmp_path: Path, root: Path, **given: Any) -> Kickoff:
    return Kickoff(zygote, recognise(root).project, tmp_path, **given)


def inspected(zygote: DrivenZygote, tmp_path: Path, root: Path) -> Manifest:
    child = zygote.fork()
    child.inspect(recognise(root).project, tmp_path / "inspection")
    answer = child.answer()
    assert isinstance(answer, Inspected), answer
    return Manifest.from_json(answer.manifest)


def refused(zygote: DrivenZygote, tmp_path: Path, root: Path) -> Failed:
    child = zygote.fork()
    child.inspect(recognise(root).project, tmp_path / "inspection")
    return child.failure()


def test_a_json_crew_is_described(zygote: DrivenZygote, tmp_path: Path) -> None:
    found = inspected(zygote, tmp_path, declared(tmp_path / "project"))
    assert (found.kind, found.name) == ("crew", "Tides")
    assert [task.name for task in found.tasks] == ["a", "b"]
    assert found.inputs_schema == {
        "type": "object",
        "properties": {
            "place": {"description": "Used in the description of task a, the role of agent Clerk of {place}."}
            | {"default": "Brest"},
            "hour": {"description": "Used in the description of task a."},
            "unused": {"description": "Has a default, and is in no text.", "default": [1, 2]},
        },
        "required": ["hour"],
        "additionalProperties": False,
    }


def test_a_json_crew_runs_with_its_defaults_and_goes_on_where_it_was(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff(zygote, tmp_path, declared(tmp_path / "project"), inputs={"hour": 5})
    first = run.interrupted("b")
    assert [started.agent for started in first.talk.of(TaskStarted)] == ["Clerk of Brest"] * 2
    child = run.attempt()
    assert child.answer() == Succeeded("b of attempt 2")
    assert restored_tasks(child) == ["a"]
    assert run.calls == {"a": 1, "b": 1}


def test_an_input_takes_the_place_of_a_default(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff(zygote, tmp_path, declared(tmp_path / "project"), inputs={"hour": 5, "place": "Rye"})
    child = run.attempt()
    assert child.answer() == Succeeded("b of attempt 1")
    assert child.talk.of(TaskStarted)[0].agent == "Clerk of Rye"


def test_a_json_crew_without_a_needed_input_is_refused(zygote: DrivenZygote, tmp_path: Path) -> None:
    failed = kickoff(zygote, tmp_path, declared(tmp_path / "project"), inputs={}).attempt().failure()
    assert (failed.stage, failed.message) == ("inputs", "the crew needs inputs that were not given: hour")


@pytest.mark.parametrize(
    ("crew", "words"),
    [
        ('{"name": "Tides" "agents": []}', "crew.jsonc: invalid JSON at line 1, column 18"),
        (CREW.replace('"context": ["a"]', '"context": ["c"]'), "context"),
        (CREW.replace('["clerk"]', '["clerk", "ghost"]'), "ghost"),
        (CREW.replace('"agent": "clerk", "context"', '"agent": "nobody", "context"'), "nobody"),
        (CREW.replace('{"place": "Brest", "unused": [1, 2]}', "[1]"), "crew.jsonc: 'inputs' must be an object."),
        (
            CREW.replace('"agents"', '"max_rpm": 1e999, "agents"'),
            "crew.jsonc: max_rpm: Input should be a finite number.",
        ),
    ],
    ids=["no json", "unknown context", "agent without a file", "unknown agent", "inputs", "a number"],
)
def test_what_is_wrong_in_a_json_crew_is_told_in_words(
    zygote: DrivenZygote, tmp_path: Path, crew: str, words: str
) -> None:
    failed = refused(zygote, tmp_path, declared(tmp_path / "project", crew))
    assert words in failed.message
    assert str(tmp_path) not in failed.message
    assert failed.stage == "load"


CHAIN = """
    schema: crewai.flow/v1
    name: Tides
    state: {state}
    config: {{memory: {{memory_kind: scope, root_path: /}}}}
    methods:
      begin:
        description: Looks where it is.
        start: true
        do: {{call: expression, expr: state.place}}
      ask:
        listen: begin
        do:
          call: crew
          from_declaration: crew.jsonc
          inputs: {{place: "${{state.place}}", hour: "${{state.hours}}"}}
      end:
        listen: ask
        do: {{call: expression, expr: "state.place + ' is done'"}}
"""
DICT = "{type: dict, default: {place: Brest, hours: 5}}"
JSON_SCHEMA = json.dumps(
    {
        "type": "json_schema",
        "json_schema": {
            "title": "Tide",
            "type": "object",
            "properties": {"place": {"type": "string"}, "hours": {"type": "integer"}},
            "required": ["place", "hours"],
        },
        "default": {"hours": 5},
    }
)


@pytest.mark.parametrize(
    ("state", "properties", "required"),
    [
        (DICT, {"place": {"default": "Brest"}, "hours": {"default": 5}}, []),
        (JSON_SCHEMA, {"place": {"type": "string"}, "hours": {"type": "integer", "default": 5}}, ["place"]),
        (
            '{type: pydantic, ref: "work:Tide"}',
            {
                "place": {"title": "Place", "type": "string"},
                "hours": {"title": "Hours", "type": "integer", "default": 6},
            },
            ["place"],
        ),
        ("null", {}, []),
    ],
    ids=["dict", "json schema", "pydantic", "none"],
)
def test_a_declarative_flow_is_described(
    zygote: DrivenZygote, tmp_path: Path, state: str, properties: dict[str, Any], required: list[str]
) -> None:
    found = inspected(zygote, tmp_path, flow(tmp_path / "project", CHAIN.format(state=state)))
    assert (found.kind, found.name) == ("flow", "Tides")
    assert [task.name for task in found.tasks] == ["begin", "ask", "end"]
    assert found.inputs_schema["properties"] == properties
    assert found.inputs_schema["required"] == required


@pytest.mark.parametrize("state", [DICT, JSON_SCHEMA, '{type: pydantic, ref: "work:Tide"}'])
def test_a_declarative_flow_goes_on_within_a_crew_of_its(zygote: DrivenZygote, tmp_path: Path, state: str) -> None:
    root = flow(tmp_path / "project", CHAIN.format(state=state))
    run = kickoff(zygote, tmp_path, root, inputs={"place": "Rye"})
    run.interrupted("b", journaled=2)
    child = run.attempt()
    assert child.answer() == Succeeded("Rye is done")
    assert run.calls == {"a": 1, "b": 1}


def test_a_declarative_flow_refuses_inputs_that_its_state_does_not_take(zygote: DrivenZygote, tmp_path: Path) -> None:
    root = flow(tmp_path / "project", CHAIN.format(state=JSON_SCHEMA))
    for inputs, name in ({}, "place"), ({"place": "Rye", "hours": "many"}, "hours"):
        failed = kickoff(zygote, tmp_path / name, root, inputs=inputs).attempt().failure()
        assert failed.stage == "inputs", failed
        assert name in failed.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [Tides", "flow.yaml can't be read: "),
        ("- Tides", "flow.yaml can't be read: Flow declaration must contain a mapping"),
        ("schema: crewai.flow/v1\nname: Tides\n", "flow.yaml has no methods"),
        (
            "name: T\nmethods: {begin: {start: true, do: {call: code, ref: 'work:nope'}}}\n",
            "flow.yaml: methods.begin: unresolvable",
        ),
        (
            "name: T\nmethods: {begin: {start: true, do: {call: code, ref: 'work:MODEL'}}}\n",
            "work:MODEL is nothing to call",
        ),
        (CHAIN.format(state='{type: pydantic, ref: "work:Nope"}'), "state.ref: unresolvable state ref 'work:Nope'"),
        ("methods: {begin: {start: true, do: {call: dance}}}\n", "flow.yaml is no flow: "),
        ("name: a\nmethods: {a: {do: {call: expression, expr: state.a}}}\n", "can run flow.yaml: none of its methods"),
        (CHAIN.format(state=JSON_SCHEMA.replace('{"hours": 5}', '{"hours": "many"}')), "state.default: hours: Input"),
        (CHAIN.format(state='{type: pydantic, ref: "work:Tide", default: {place: []}}'), "state.default: place: Input"),
    ],
    ids=[
        "no yaml",
        "a list",
        "no methods",
        "code that is not there",
        "nothing to call",
        "a state that is not there",
        "unknown action",
        "no start",
        "default of a schema",
        "default of a model",
    ],
)
def test_what_is_wrong_in_a_declarative_flow_is_told_in_words(
    zygote: DrivenZygote, tmp_path: Path, text: str, words: str
) -> None:
    failed = refused(zygote, tmp_path, flow(tmp_path / "project", text))
    assert words in failed.message
    assert failed.stage == "load"
    assert failed.hint.startswith(
        ("Give it one with `start: true`.", "Change this part", "Write the code that it names")
    )
