"""Projects as people write them: each is recognised, inspected and run without a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import PRELUDE
from projects_for_tests.layouts import LAYOUTS, MAKE, files_of
from projects_for_tests.making import Bench, Heard, written
from windlass.errors import ProjectError
from windlass.kickoffs.states import State
from windlass.projects import recognise
from windlass_child.protocol.messages import TaskEnded, TaskStarted, Warned

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.xdist_group("crewai"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("name", LAYOUTS)
async def test_a_layout_is_recognised_inspected_and_run(bench: Bench, tmp_path: Path, name: str) -> None:
    layout, heard = LAYOUTS[name], Heard()
    project = written(tmp_path / "project", files_of(layout)) / layout.named
    found = recognise(project)
    assert (found.project.kind, found.project.entrypoint, found.preload) == (layout.kind, layout.entrypoint, "crewai")
    manifest = await bench.inspect(project)
    assert [task.name for task in manifest.tasks] == list(layout.tasks)
    assert "topic" in manifest.inputs_schema["properties"]
    outcome = await bench.run(project, layout.inputs, heard=heard)
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.output == "said"
    assert [one.state for one in heard.of(TaskEnded)][: len(layout.tasks)] == ["completed"] * len(layout.tasks)


async def test_crews_in_a_function_have_task_records_of_their_own(bench: Bench, tmp_path: Path) -> None:
    code = (
        PRELUDE
        + MAKE
        + "\n\ndef main(topic: str):\n    make(topic).kickoff()\n    return make(topic + '!').kickoff().raw\n"
    )
    heard = Heard()
    outcome = await bench.run(written(tmp_path / "project", {"main.py": code}), {"topic": "tea"}, heard=heard)
    assert outcome.output == "said"
    begun = [(one.position, one.name) for one in heard.of(TaskStarted)]
    assert begun == [(0, "main"), (1, "say"), (2, "say")]
    ended = {one.position: (one.state, one.output) for one in heard.of(TaskEnded)}
    assert ended == dict.fromkeys(range(3), ("completed", "said"))


async def test_a_function_warns_once_of_missing_capabilities_of_crewai(bench: Bench, tmp_path: Path) -> None:
    code = (
        "from windlass_child.crewai import capabilities\n"
        "known = capabilities.found() | {'token_usage': False}\n"
        "capabilities.found = lambda: known\n"
        f"{PRELUDE}{MAKE}\n\ndef main(topic: str):\n    make(topic).kickoff()\n    return make(topic).kickoff().raw\n"
    )
    heard = Heard()
    outcome = await bench.run(written(tmp_path / "project", {"main.py": code}), {"topic": "tea"}, heard=heard)
    assert outcome.state is State.SUCCESS, outcome.error
    assert [one.code for one in heard.of(Warned)] == ["crewai_without_token_usage"]


async def test_a_script_is_served_up_to_its_kickoff_with_a_warning_and_its_inputs_as_defaults(
    bench: Bench, tmp_path: Path
) -> None:
    project, heard = written(tmp_path / "project", files_of(LAYOUTS["a script without a guard"])), Heard()
    found = recognise(project)
    manifest = await bench.runner.inspect(bench.interpreter, found.preload, found.project, {}, heard.report)
    assert manifest.inputs_schema["properties"]["topic"]["default"] == "tea"
    (warning,) = heard.of(Warned)
    assert warning.code == "runs_at_import"
    assert warning.message.startswith("script.py:")
    assert (await bench.run(project)).output == "said"


NESTED = """
from pydantic import BaseModel


class Fact(BaseModel):
    words: str


class Facts(BaseModel):
    first: Fact


class Answers(Parrot):
    def call(self, *arguments, **named):
        print("called")
        return '{"first": {"words": "said"}}'


one = worker(llm=Answers(model="parrot"))
say = Task(name="say", description="Say {topic}", expected_output="W", agent=one, output_pydantic=Facts)
team = Crew(agents=[one], tasks=[say])
print("imported")
"""


@pytest.mark.parametrize(
    "files",
    [
        {"main.py": NESTED + "team.kickoff(inputs={'topic': 'tea'})\n"},
        {"main.py": "from part import team\n", "part.py": NESTED + "team.kickoff(inputs={'topic': 'tea'})\n"},
    ],
    ids=["entrypoint", "imported module"],
)
async def test_a_script_with_models_of_its_own_runs_once_in_a_kickoff(
    bench: Bench, tmp_path: Path, files: dict[str, str]
) -> None:
    files = {name: PRELUDE + text if "class Fact" in text else text for name, text in files.items()}
    files["pyproject.toml"] = '[tool.windlass]\ncrew = "main:team"\n'
    project, heard = written(tmp_path / "project", files), Heard()
    outcome = await bench.run(project, heard=heard)
    assert outcome.state is State.SUCCESS, outcome.error
    lines = heard.lines("stdout")
    assert (lines.count("imported"), lines.count("called")) == (1, 1)


async def test_a_crew_that_is_kicked_off_while_it_is_made_is_refused(bench: Bench, tmp_path: Path) -> None:
    code = (
        PRELUDE + MAKE + "\nclass Team:\n    def crew(self) -> Crew:\n        make().kickoff()\n        return make()\n"
    )
    files = {"main.py": code, "pyproject.toml": '[tool.windlass]\ncrew = "main:Team"\n'}
    with pytest.raises(ProjectError, match="while it makes the crew") as caught:
        await bench.inspect(written(tmp_path / "project", files))
    assert "(main.py:" in caught.value.message


async def test_a_method_that_was_bound_while_modules_were_imported_kicks_off_in_a_run(
    bench: Bench, tmp_path: Path
) -> None:
    code = PRELUDE + MAKE + "\nask = make('tea').kickoff\n\ndef main():\n    return ask().raw\n"
    files = {"main.py": code, "pyproject.toml": '[tool.windlass]\nentrypoint = "main:main"\n'}
    assert (await bench.run(written(tmp_path / "project", files))).output == "said"


@pytest.mark.parametrize("start", ["make().kickoff()", "import asyncio; asyncio.run(make().kickoff_async())"])
async def test_a_crew_that_is_made_after_a_kickoff_at_import_is_refused_with_what_to_do(
    bench: Bench, tmp_path: Path, start: str
) -> None:
    code = PRELUDE + MAKE.replace("def make(", "def make(needed, ").replace("make()", "make(1)")
    code += f"\n{start.replace('make()', 'make(1)')}\nteam = make(2)\n"
    with pytest.raises(ProjectError) as caught:
        await bench.inspect(written(tmp_path / "project", {"main.py": code}))
    method = "kickoff_async" if "async" in start else "kickoff"
    assert f"starts Crew.{method}() while it is imported" in caught.value.message
    assert "(main.py:" in caught.value.message
    assert 'below `if __name__ == "__main__":`' in caught.value.hint


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (MAKE + "team = input('Topic? ') and make()\nteam = make(1)\n", "called input() and asked for 'Topic?'"),
        ("class Team:\n    def __init__(self, a): ...\n    def crew(self): return Crew()\n", "its constructor needs a"),
    ],
)
async def test_what_can_not_be_served_is_refused(bench: Bench, tmp_path: Path, code: str, words: str) -> None:
    with pytest.raises(ProjectError) as caught:
        await bench.inspect(written(tmp_path / "project", {"main.py": PRELUDE + code}))
    assert words in caught.value.message


async def test_a_function_whose_project_names_no_framework_starts_no_crew_at_import(
    bench: Bench, tmp_path: Path
) -> None:
    files = {
        "pyproject.toml": '[project]\ndependencies = ["other"]\n[tool.windlass]\nentrypoint = "main:run"\n',
        "main.py": PRELUDE + MAKE + "\nmake().kickoff()\n\ndef run():\n    return 1\n",
    }
    project = written(tmp_path / "project", files)
    assert recognise(project).preload is None
    with pytest.raises(ProjectError, match="while it is imported"):
        await bench.inspect(project)
