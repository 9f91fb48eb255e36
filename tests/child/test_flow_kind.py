"""Flows that are written in Python, as a kind of project."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.crews import flow_project, running
from windlass.kickoffs.inputs import InputsCheck
from windlass_child.protocol.messages import (
    Abort,
    Budget,
    Event,
    Failed,
    Inspected,
    Project,
    Succeeded,
    TaskEnded,
    TasksKnown,
    TaskStarted,
)

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

TYPED = '''
from pydantic import BaseModel


class Place(BaseModel):
    city: str = "Rome"


class State(BaseModel):
    days: int = 3
    place: Place = Place()


class Journey(Flow[State]):
    """Plans a journey."""

    _skip_auto_memory = True

    def __init__(self, **given):
        print("constructed", flush=True)
        super().__init__(**given)

    @start()
    def begin(self):
        """Looks where to go."""
        return self.state.place.city

    @router(begin)
    def choose(self):
        return "short" if self.state.days < 5 else "long"

    @listen("short")
    def stroll(self):
        return {"days": self.state.days}

    @listen("long")
    def sail(self):
        return ["far"]
'''


def start(zygote: DrivenZygote, folder: Path, code: str, **given: Any) -> DrivenChild:
    project = Project("flow", str(flow_project(folder / "project", code)), "main")
    return running(zygote, project, folder, **given)


def inspected(zygote: DrivenZygote, folder: Path, code: str) -> tuple[Any, DrivenChild]:
    child = zygote.fork()
    child.inspect(Project("flow", str(flow_project(folder / "project", code)), "main"), folder / "folder")
    return child.answer(), child


def schema_of(zygote: DrivenZygote, folder: Path, code: str) -> dict[str, Any]:
    answer, _ = inspected(zygote, folder, code)
    assert isinstance(answer, Inspected), answer
    found: dict[str, Any] = answer.manifest["inputs_schema"]
    return found


def test_inspection_finds_methods_and_state_without_making_a_flow(zygote: DrivenZygote, tmp_path: Path) -> None:
    answer, child = inspected(zygote, tmp_path, TYPED)
    child.exited()
    assert isinstance(answer, Inspected), answer
    assert (answer.manifest["kind"], answer.manifest["name"]) == ("flow", "Journey")
    assert [task["name"] for task in answer.manifest["tasks"]] == ["begin", "choose", "stroll", "sail"]
    keys = [task["key"] for task in answer.manifest["tasks"]]
    assert keys[0] == hashlib.md5(b"Looks where to go.").hexdigest(), "of what its docstring says"
    assert keys[1] == hashlib.md5(b"Journey.choose").hexdigest(), "else of its name"
    found = answer.manifest["inputs_schema"]
    assert (found["type"], found["required"], set(found["properties"])) == ("object", [], {"days", "place"})
    assert found["properties"]["days"] == {"default": 3, "title": "Days", "type": "integer"}
    assert found["$defs"]["Place"]["properties"]["city"]["default"] == "Rome"
    assert "constructed" not in child.printed


STATE = "from pydantic import BaseModel\nclass S(BaseModel):\n    id: str = ''\n    days: int = 1\n"


@pytest.mark.parametrize(
    ("state", "properties"),
    [
        ("class Plain(Flow):\n    pass", {}),
        ("class Plain(Flow[dict]):\n    pass", {}),
        ("class Plain(Flow):\n    initial_state = {'days': 2, 'id': 'x'}", {"days": {"default": 2}}),
        (
            f"{STATE}class Plain(Flow):\n    initial_state = S(days=4)",
            {"days": {"default": 4, "title": "Days", "type": "integer"}},
        ),
        (
            f"{STATE}class Plain(Flow):\n    initial_state = S",
            {"days": {"default": 1, "title": "Days", "type": "integer"}},
        ),
    ],
    ids=["none", "dictionary", "dictionary to begin with", "object to begin with", "class"],
)
def test_inputs_are_the_fields_of_the_state(
    zygote: DrivenZygote, tmp_path: Path, state: str, properties: dict[str, Any]
) -> None:
    code = f"{state}\n    @start()\n    def begin(self):\n        return 1\n"
    found = schema_of(zygote, tmp_path, code)
    assert (found["properties"], found["required"]) == (properties, [])


LATE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from pydantic import BaseModel
from crewai.flow.flow import Flow, start

if TYPE_CHECKING:
    from datetime import date

class S(BaseModel):
    days: int = 1
    when: date | None = None

class Plain(Flow[S]):
    _skip_auto_memory = True
    {own}

    @start()
    def begin(self):
        return self.state.days
"""


MADE = """def _create_initial_state(self):
        from datetime import date
        S.model_rebuild(_types_namespace={"date": date})
        return S()
"""


def written_late(folder: Path, own: str, rest: str = "") -> Project:
    root = flow_project(folder / "project", "")
    (root / "main.py").write_text(LATE.format(own=own) + rest)
    return Project("flow", str(root), "main")


def test_a_state_of_a_type_that_is_not_known_at_run_time_is_refused_by_deploy_check_and_run(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    project = written_late(tmp_path, "pass")
    child = zygote.fork()
    child.inspect(project, tmp_path / "folder")
    refused = child.failure()
    words = "no kickoff can run Plain: the type of its state is not complete: `S` is not fully defined; you should "
    assert refused.message.startswith(f"{words}define `date`")
    assert refused.hint.startswith("Import the name outside of `if TYPE_CHECKING:`")
    examined = zygote.fork()
    examine = Project("function", project.root, "windlass_child.checks:examine")
    examined.run(examine, tmp_path / "check", inputs={"kind": "flow", "root": project.root, "entrypoint": "main"})
    answer = examined.answer()
    assert isinstance(answer, Succeeded), answer
    (found,) = [one for one in json.loads(answer.structured or "")["findings"] if one["level"] == "error"]
    assert (found["code"], found["message"], found["hint"]) == ("never_runs", refused.message, refused.hint)


@pytest.mark.parametrize(
    ("own", "rest"),
    [
        ("pass", "from datetime import date\nS.model_rebuild()\n"),
        (MADE, ""),
    ],
    ids=["rebuilt", "made by the flow"],
)
def test_a_state_whose_type_becomes_known_runs(zygote: DrivenZygote, tmp_path: Path, own: str, rest: str) -> None:
    project = written_late(tmp_path, own, rest)
    child = zygote.fork()
    child.inspect(project, tmp_path / "folder")
    answer = child.answer()
    assert isinstance(answer, Inspected), answer
    assert set(answer.manifest["inputs_schema"]["properties"]) == {"days", "when"}
    assert running(zygote, project, tmp_path / "run", inputs={"days": 4}).answer() == Succeeded("4", structured="4")


OTHERS = """
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

class S(BaseModel):
    {member}
    days: int = 1

class Plain(Flow[{state}]):
    {own}

    @start()
    def begin(self):
        return 1
"""
TAKES = "def kickoff(self, inputs=None, **more): return super().kickoff({'days': inputs['day']})"


@pytest.mark.parametrize(
    ("member", "state", "own", "others"),
    [
        ("x: str = ''", "S", "pass", False),
        ("model_config = ConfigDict(extra='forbid')", "S", "pass", False),
        ("@model_validator(mode='after')\n    def check(self): return self", "S", "pass", False),
        ("model_config = ConfigDict(extra='allow')", "S", "pass", True),
        ("@model_validator(mode='before')\n    @classmethod\n    def f(cls, given): return given", "S", "pass", None),
        ("x: int = Field(1, validation_alias=AliasChoices('y', 'z'))", "S", "pass", None),
        ("x: str = ''", "S", TAKES, None),
        ("x: str = ''", "dict", "pass", None),
    ],
    ids=["fields", "forbid", "validator after", "allow", "validator before", "aliases", "own kickoff", "dictionary"],
)
def test_a_state_of_a_type_takes_its_fields_and_the_id(
    zygote: DrivenZygote, tmp_path: Path, member: str, state: str, own: str, others: bool | None
) -> None:
    found = schema_of(zygote, tmp_path, OTHERS.format(member=member, state=state, own=own))
    assert found.get("additionalProperties") is others
    assert found.get("patternProperties") == ({"^id$": {}} if others is False else None)
    check = InputsCheck.of(found)
    assert check.unknown({"id": "x", "dayz": 1}) == ({"dayz": "days"} if others is False else {})


@pytest.mark.parametrize(
    ("days", "output", "skipped", "names"),
    [(3, {"days": 3}, 3, ["begin", "choose", "stroll"]), (7, ["far"], 2, ["begin", "choose", "sail"])],
)
def test_methods_are_told_as_tasks_and_those_that_never_ran_are_skipped(
    zygote: DrivenZygote, tmp_path: Path, days: int, output: Any, skipped: int, names: list[str]
) -> None:
    child = start(zygote, tmp_path, TYPED, inputs={"days": days})
    answer = child.answer()
    child.exited()
    assert isinstance(answer, Succeeded), answer
    assert json.loads(answer.structured or "") == output
    (known,) = child.talk.of(TasksKnown)
    assert [task["name"] for task in known.tasks] == ["begin", "choose", "stroll", "sail"]
    assert [started.name for started in child.talk.of(TaskStarted)] == names
    ended = child.talk.of(TaskEnded)
    assert [one.output for one in ended] == ["Rome", "short" if days < 5 else "long", json.dumps(output), None]
    assert [(one.position, one.state) for one in ended][-1] == (skipped, "skipped")
    assert all(one.seconds is not None and one.seconds >= 0 for one in ended[:-1])
    assert child.printed == "constructed\n", "crewai's own panels are not its output"
    told = [event.type for event in child.talk.of(Event)]
    assert {"flow_started", "method_execution_started", "method_execution_finished", "flow_finished"} <= set(told)


def test_inputs_that_the_state_does_not_take_are_refused_in_words(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = start(zygote, tmp_path, TYPED, inputs={"days": "many", "other": 1})
    failed = child.failure()
    assert failed.stage == "inputs"
    assert failed.message.startswith("the flow's state does not take these inputs: days: Input should be a valid int")


def test_without_inputs_the_defaults_of_a_state_are_not_validated(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = TYPED.replace("days: int = 3", "days: int = None").replace("self.state.days < 5", "self.state.days is None")
    assert start(zygote, tmp_path, code, inputs={}).answer() == Succeeded('{"days": null}', structured='{"days":null}')


def test_a_method_that_fails_fails_the_run(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = start(zygote, tmp_path, TYPED.replace('return {"days"', 'raise LookupError("lost"); return {"days"'))
    failed = child.failure()
    assert failed.stage == "run"
    assert failed.message.startswith("LookupError: lost (main.py:")
    assert [ended.state for ended in child.talk.of(TaskEnded)] == ["completed", "completed", "failed"]


ENDLESS = """
class Endless(Flow):
    _skip_auto_memory = True

    @start()
    def begin(self):
        print("begun", flush=True)

    @router(or_(begin, "again"))
    def turn(self):
        agent = worker()
        Crew(agents=[agent], tasks=[Task(description="Work", expected_output="Work", agent=agent)]).kickoff()
        return "again"
"""


def test_a_flow_is_asked_to_end_and_ends_at_its_next_step(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = start(zygote, tmp_path, ENDLESS)
    zygote.until(lambda: "begun" in child.printed)
    child.talk.send(Abort("enough"))
    assert child.failure().message == "enough"


def test_model_calls_of_crews_in_methods_are_counted(zygote: DrivenZygote, tmp_path: Path) -> None:
    failed = start(zygote, tmp_path, ENDLESS, budget=Budget(model_call_limit=3)).failure()
    assert (failed.reason, failed.message) == ("limit", "made 3 model calls; its limit is 3.")


def test_a_flow_that_persists_its_state_runs(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = TYPED.replace(
        "class Journey(", "from crewai.flow.persistence import persist\n\n\n@persist()\nclass Journey("
    )
    assert isinstance(start(zygote, tmp_path, code).answer(), Succeeded)


def test_a_flow_that_streams_runs_to_its_end(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = TYPED.replace("    _skip_auto_memory = True\n", "    _skip_auto_memory = True\n    stream = True\n")
    answer = start(zygote, tmp_path, code).answer()
    assert isinstance(answer, Succeeded), answer
    assert json.loads(answer.structured or "") == {"days": 3}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", "no flow found: main.py has no class that is a Flow with methods of its own."),
        (TYPED + TYPED.replace("Journey", "Other"), "main.py has more than one flow: Journey and Other."),
    ],
    ids=["none", "two"],
)
def test_a_module_without_one_flow_is_told(zygote: DrivenZygote, tmp_path: Path, code: str, message: str) -> None:
    answer, _ = inspected(zygote, tmp_path, code)
    assert isinstance(answer, Failed), answer
    assert (answer.stage, answer.message) == ("load", message)


REQUIRED = """
from pydantic import BaseModel, model_validator

class State(BaseModel):
    harbour: str
    draught: int
    hours: int = 6

class Journey(Flow[State]):
    _skip_auto_memory = True

    @start()
    def begin(self):
        return self.state.harbour
"""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "class Still(Flow):\n    @listen('nothing')\n    def wait(self): pass\n",
            "no kickoff can run Still: none of its methods starts it.",
        ),
        (REQUIRED, "no kickoff can run Journey: fields of its state have no default: harbour, draught."),
        (
            REQUIRED.replace("(Flow[State]):", "(Flow):\n    initial_state = State"),
            "no kickoff can run Journey: fields of its state have no default: harbour, draught.",
        ),
    ],
    ids=["no start", "fields", "fields of the first state"],
)
def test_a_flow_that_no_kickoff_can_run_is_refused(
    zygote: DrivenZygote, tmp_path: Path, code: str, message: str
) -> None:
    answer, _ = inspected(zygote, tmp_path, code)
    assert isinstance(answer, Failed), answer
    assert (answer.stage, answer.message) == ("load", message)
    assert answer.hint


OWN_STATE = """
    def __init__(self, **given):
        super().__init__(initial_state=State(harbour="Brest", draught=3), **given)
"""
SET_LATER = """
    def model_post_init(self, context):
        self.initial_state = State(harbour="Brest", draught=3)
        super().model_post_init(context)
"""
FILLED = """
    @model_validator(mode="before")
    @classmethod
    def filled(cls, given):
        return {"harbour": "Rye", "draught": 2} | given
"""


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (REQUIRED.replace("(Flow[State]):", f"(Flow[State]):{OWN_STATE}"), "Brest"),
        (REQUIRED.replace("(Flow[State]):", f"(Flow[State]):{SET_LATER}"), "Brest"),
        (REQUIRED.replace("    hours: int = 6\n", f"    hours: int = 6\n{FILLED}"), "Rye"),
    ],
    ids=["of its own", "set later", "filled in"],
)
def test_a_flow_may_give_its_state_what_has_no_default(
    zygote: DrivenZygote, tmp_path: Path, code: str, output: str
) -> None:
    assert start(zygote, tmp_path, code, inputs={}).answer() == Succeeded(output)


def test_a_subclass_without_methods_of_its_own_is_no_flow_beside_its_parent(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    answer, _ = inspected(zygote, tmp_path, TYPED + "\n\nclass Same(Journey):\n    pass\n")
    assert isinstance(answer, Inspected), answer
    assert answer.manifest["name"] == "Journey"
