"""Tasks of every kind run as crewai has it, are told of, and are not run again once they are finished."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.crews import FLOW_PRELUDE, PYPROJECT
from projects_for_tests.interrupted import MODEL, restored_tasks
from projects_for_tests.offline import Served
from windlass_child.protocol.messages import Succeeded, TaskEnded, TaskStarted, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

CREW = """
from pydantic import BaseModel

class Tide(BaseModel):
    place: str
    hours: list[int] = []

{code}

@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        first = step("a", agent, {fields})
        return Crew(agents=[agent], tasks=[first, {more}step("b", agent, {last})])
"""


def crew_with(
    zygote: DrivenZygote, tmp_path: Path, fields: str = "", *, code: str = "", more: str = "", last: str = ""
) -> Served:
    """One with a task a that has these fields, more tasks, and a task b."""
    text = CREW.format(fields=fields, code=code, more=more, last=last)
    files = {"pyproject.toml": PYPROJECT, "work/__init__.py": "", "work/crew.py": FLOW_PRELUDE + MODEL + text}
    return Served(zygote, tmp_path, files)


def told(child: DrivenChild) -> dict[int, tuple[str, str | None]]:
    """What was told of the ends of tasks, by their positions."""
    return {end.position: (end.state, end.output) for end in child.talk.of(TaskEnded)}


GUARDED = """
def checked(output):
    note("checked", output.raw)
    first = noted("checked") == 1
    return (False, "Say [a] more clearly") if first else (True, output.raw + ", checked")

def noted(kind):
    with open(os.environ["NOTES"]) as file:
        return sum(line.startswith(kind) for line in file)
"""


def test_a_function_that_guards_a_task_has_it_run_again_until_it_passes(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = crew_with(zygote, tmp_path, "guardrail=checked", code=GUARDED).kickoff()
    first = run.interrupted("b")
    assert told(first) == {0: ("completed", "a of attempt 1, checked")}
    assert [started.name for started in first.talk.of(TaskStarted)] == ["a", "b"]
    child = run.attempt()
    assert child.answer() == Succeeded("b of attempt 2")
    assert run.calls == {"a": 2, "b": 1}
    assert run.noted("checked") == ["a of attempt 1"] * 2


def test_a_task_that_its_guard_never_passes_fails_the_crew(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = 'def never(output):\n    return False, "[a] is not good"\n'
    child = crew_with(zygote, tmp_path, "guardrail=never, guardrail_max_retries=1", code=code).kickoff().attempt()
    failed = child.failure()
    assert "[a] is not good" in failed.message
    assert {position: state for position, (state, _) in told(child).items()} == {0: "failed"}


TIDE: dict[str, Any] = {"place": "Brest", "hours": [1, 2]}


@pytest.mark.parametrize("kind", ["output_pydantic", "output_json"])
def test_structured_output_is_json_in_the_result(zygote: DrivenZygote, tmp_path: Path, kind: str) -> None:
    fields = f"{kind}=Tide"
    answers = dict.fromkeys("ab", json.dumps(TIDE))
    run = crew_with(zygote, tmp_path, fields, last=fields).kickoff()
    first = run.interrupted("b", answers=answers)
    assert told(first) == {0: ("completed", json.dumps(TIDE))}
    child = run.attempt(answers=answers)
    answer = child.answer()
    assert isinstance(answer, Succeeded)
    assert json.loads(answer.output) == json.loads(answer.structured or "") == TIDE
    assert run.calls == {"a": 1, "b": 1}


FILES = """
def look(output):
    note("written", json.dumps(json.load(open("out/brest.json"))))
"""


def test_files_that_tasks_write_are_in_the_folder_of_each_attempt(zygote: DrivenZygote, tmp_path: Path) -> None:
    fields = 'output_pydantic=Tide, output_file="out/{place}.json"'
    served = crew_with(zygote, tmp_path, fields, code=FILES, last='output_file="words.txt", callback=look')
    assert served.manifest().inputs_schema["required"] == ["place"]
    run = served.kickoff(place="brest")
    run.interrupted("b", answers={"a": json.dumps(TIDE)})
    assert json.loads((tmp_path / "attempt 1" / "work" / "out" / "brest.json").read_text()) == TIDE
    child = run.attempt()
    assert child.answer() == Succeeded("b of attempt 2")
    assert child.exited() == 0
    assert (tmp_path / "attempt 2" / "work" / "words.txt").read_text() == "b of attempt 2"
    assert json.loads((tmp_path / "attempt 2" / "work" / "out" / "brest.json").read_text()) == TIDE, (
        "though a did not run"
    )
    assert run.noted("written") == [json.dumps(TIDE)], "the task b finds it, too"
    assert run.calls == {"a": 1, "b": 1}
    assert sorted(path.name for path in served.root.iterdir()) == ["pyproject.toml", "work"]


def test_asynchronous_tasks_run_beside_one_another_and_each_is_told_of(zygote: DrivenZygote, tmp_path: Path) -> None:
    more = 'step("c", one(role="other"), async_execution=True), '
    served = crew_with(zygote, tmp_path, "async_execution=True", more=more)
    assert [task.name for task in served.manifest().tasks] == ["a", "c", "b"]
    run = served.kickoff()
    first = run.interrupted("b", journaled=2)
    assert told(first) == {0: ("completed", "a of attempt 1"), 1: ("completed", "c of attempt 1")}
    child = run.attempt()
    assert child.answer() == Succeeded("b of attempt 2")
    assert told(child) == {2: ("completed", "b of attempt 2")}
    assert run.calls == dict.fromkeys("abc", 1)
    assert sorted(restored_tasks(child)) == ["a", "c"]


MAYBE = 'ConditionalTask(name="c", description="Do [c]", expected_output="Words", agent=agent, condition={}), '


@pytest.mark.parametrize(("condition", "wanted"), [("lambda output: True", True), ("lambda output: False", False)])
def test_a_conditional_task_is_run_or_skipped(
    zygote: DrivenZygote, tmp_path: Path, condition: str, *, wanted: bool
) -> None:
    served = crew_with(zygote, tmp_path, more=MAYBE.format(condition))
    assert [task.name for task in served.manifest().tasks] == ["a", "c", "b"]
    run = served.kickoff()
    first = run.interrupted("b")
    assert told(first)[1] == (("completed", "c of attempt 1") if wanted else ("skipped", None))
    child = run.attempt()
    assert child.answer() == Succeeded("b of attempt 2")
    assert told(child) == {2: ("completed", "b of attempt 2")}
    assert run.calls == dict.fromkeys("acb" if wanted else "ab", 1)
    assert child.talk.of(Warned) == []


FLOW = """
from pydantic import BaseModel
from .texts import named

class State(BaseModel):
    place: str = "Brest"
    said: list[str] = []

class Tides(Flow[State]):
    @start()
    def begin(self):
        agent = one()
        crew = Crew(agents=[agent], tasks=[step("a", agent, guardrail=lambda output: (True, output.raw + "!"))])
        self.state.said.append(str(crew.kickoff()))

    @router(begin)
    def choose(self):
        return "go on"

    @listen("go on")
    def finish(self):
        agent = one()
        crew = Crew(agents=[agent], tasks=[step(named("b"), agent)])
        return [*self.state.said, str(crew.kickoff()), self.state.place]
"""


def test_a_flow_with_relative_imports_a_router_and_crews(zygote: DrivenZygote, tmp_path: Path) -> None:
    files = {
        "pyproject.toml": PYPROJECT.replace('"crew"', '"flow"'),
        "src/tides/__init__.py": "",
        "src/tides/texts.py": "def named(name):\n    return name\n",
        "src/tides/main.py": FLOW_PRELUDE + MODEL + FLOW,
    }
    served = Served(zygote, tmp_path, files)
    found = served.manifest()
    assert (found.kind, found.name) == ("flow", "Tides")
    assert [task.name for task in found.tasks] == ["begin", "choose", "finish"]
    assert found.inputs_schema["required"] == []
    run = served.kickoff(place="Rye")
    first = run.interrupted("b")
    assert {position: state for position, (state, _) in told(first).items()} == {0: "completed", 1: "completed"}
    answer = run.attempt().answer()
    assert isinstance(answer, Succeeded)
    assert json.loads(answer.structured or "") == ["a of attempt 1!", "b of attempt 2", "Rye"]
    assert run.calls == {"a": 1, "b": 1}
