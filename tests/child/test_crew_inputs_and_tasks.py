from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import crew_project, one_task
from projects_for_tests.making import Bench, Heard
from windlass.kickoffs.states import Reason, State
from windlass_child.protocol.messages import TaskEnded, TasksKnown, TaskStarted

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

PLACEHOLDERS = """
@CrewBase
class Work:
    @before_kickoff
    def prepare(self, inputs):
        inputs["year"] = 2024
        inputs["city"] = inputs["city"].upper()
        return inputs

    @after_kickoff
    def end(self, result):
        return [self.last.description, self.last.output_file]

    @crew
    def crew(self):
        one = worker(role="Guide of {city}", backstory="Lives in {street-name}")
        first = Task(description='Say {"x": 1} in {year}', expected_output="{mood} {not ok!}", agent=one, name="first")
        self.last = Task(description="Of {city} and {city}", expected_output="", output_file="{file}.md", agent=one)
        return Crew(agents=[one], tasks=[first, self.last])
"""

DESCRIPTION = "Work on {topic}\\n"
KEY = hashlib.md5(b"Work on {topic}\n", usedforsecurity=False).hexdigest()


async def test_inputs_are_the_placeholders_in_the_order_of_mention(bench: Bench, tmp_path: Path) -> None:
    manifest = await bench.inspect(crew_project(tmp_path, PLACEHOLDERS))
    assert list(manifest.inputs_schema["properties"]) == ["year", "mood", "city", "file", "street-name"]


async def test_what_the_crew_sets_before_a_kickoff_is_not_required_but_what_it_reads_is(
    bench: Bench, tmp_path: Path
) -> None:
    manifest = await bench.inspect(crew_project(tmp_path, PLACEHOLDERS))
    assert manifest.required_inputs == ["mood", "city", "file", "street-name"]


async def test_what_is_returned_beside_the_inputs_is_not_required(bench: Bench, tmp_path: Path) -> None:
    returned = """        return {**inputs, "year": 2024, "mood": "gay", "city": inputs["city"]}
"""
    code = PLACEHOLDERS.replace("        return inputs\n", returned).replace('        inputs["year"] = 2024\n', "")
    manifest = await bench.inspect(crew_project(tmp_path, code))
    assert manifest.required_inputs == ["city", "file", "street-name"]


async def test_a_crew_uses_no_other_inputs_unless_code_of_the_project_gets_them(bench: Bench, tmp_path: Path) -> None:
    callback = PLACEHOLDERS[PLACEHOLDERS.index("    @before_kickoff") : PLACEHOLDERS.index("    @after_kickoff")]
    plain = PLACEHOLDERS.replace(callback, "")
    assert "prepare" not in plain
    own = plain.replace("return Crew(", "return Own(").replace("@CrewBase", "class Own(Crew):\n    pass\n\n@CrewBase")
    found = [
        (await bench.inspect(crew_project(tmp_path / name, code))).inputs_schema.get("additionalProperties")
        for name, code in (("callback", PLACEHOLDERS), ("own", own), ("plain", plain))
    ]
    assert found == [None, None, False]


async def test_an_input_is_described_by_where_it_is_used(bench: Bench, tmp_path: Path) -> None:
    properties = (await bench.inspect(crew_project(tmp_path, PLACEHOLDERS))).inputs_schema["properties"]
    assert properties["mood"] == {"description": "Used in the expected_output of task first."}
    assert properties["city"] == {
        "description": "Used in the description of task 2, the role of agent Guide of {city}."
    }


async def test_inputs_fill_the_placeholders(bench: Bench, tmp_path: Path) -> None:
    inputs = {"mood": "gay", "city": "Rome", "file": "rome", "street-name": "Corso"}
    outcome = await bench.run(crew_project(tmp_path, PLACEHOLDERS), inputs)
    assert outcome.json == ["Of ROME and ROME", "rome.md"]


async def test_a_run_without_its_inputs_fails_and_names_them_all(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(crew_project(tmp_path, PLACEHOLDERS), {"city": "Rome"})
    assert outcome.reason is Reason.ERROR
    assert outcome.error == "the crew needs inputs that were not given: mood, file, street-name"


async def test_a_crew_without_placeholders_needs_nothing_and_ignores_what_comes(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, one_task())
    assert (await bench.inspect(project)).required_inputs == []
    assert (await bench.run(project)).output == "said"
    assert (await bench.run(project, {"what": "comes"})).output == "said"


async def test_a_task_is_known_by_the_md5_of_its_description_as_written(bench: Bench, tmp_path: Path) -> None:
    code = one_task().replace('"Work", expected', f'"{DESCRIPTION}", expected')
    project, heard = crew_project(tmp_path, code), Heard()
    manifest = await bench.inspect(project)
    await bench.run(project, {"topic": "parrots"}, heard=heard)
    assert [task.key for task in manifest.tasks] == [KEY]
    assert [task["key"] for task in heard.of(TasksKnown)[0].tasks] == [KEY]
    assert [started.key for started in heard.of(TaskStarted)] == [KEY]


async def test_a_conditional_task_whose_condition_is_not_met_is_skipped(bench: Bench, tmp_path: Path) -> None:
    code = """
    @CrewBase
    class Work:
        @crew
        def crew(self):
            one = worker(role="Writer of {topic}")
            never = {"condition": lambda output: False, "expected_output": "Work", "agent": one}
            return Crew(agents=[one], tasks=[
                Task(description="First", expected_output="Work", agent=one),
                ConditionalTask(description="Never", **never),
                Task(description="Last", expected_output="Work", agent=one),
                ConditionalTask(description="Never at the end", **never),
            ])
    """
    heard = Heard()
    outcome = await bench.run(crew_project(tmp_path, code), {"topic": "parrots"}, heard=heard)
    assert outcome.state is State.SUCCESS, outcome.error
    states = {ended.position: ended.state for ended in heard.of(TaskEnded)}
    assert states == {0: "completed", 1: "skipped", 2: "completed", 3: "skipped"}
    assert {ended.agent for ended in heard.of(TaskEnded)} == {"Writer of parrots"}


async def test_a_task_that_fails_is_told(bench: Bench, tmp_path: Path) -> None:
    code = """
    class Mute(Parrot):
        def call(self, messages, *arguments, **named):
            raise RuntimeError("no voice")

    @CrewBase
    class Work:
        @crew
        def crew(self):
            one = worker(llm=Mute(model="mute"), max_retry_limit=0)
            return Crew(agents=[one], tasks=[Task(description="Work", expected_output="Work", agent=one)])
    """
    heard = Heard()
    outcome = await bench.run(crew_project(tmp_path, code), heard=heard)
    assert str(outcome.error).startswith("RuntimeError: no voice (work/crew.py:")
    assert [ended.state for ended in heard.of(TaskEnded)] == ["failed"]


async def test_a_task_that_is_made_while_running_comes_behind_the_known_ones(bench: Bench, tmp_path: Path) -> None:
    code = """
    @CrewBase
    class Work:
        @after_kickoff
        def more(self, result):
            one = worker()
            late = Task(description="Late", expected_output="Work", agent=one, name="late")
            return Crew(agents=[one], tasks=[late]).kickoff(inputs={})

        @crew
        def crew(self):
            one = worker()
            return Crew(agents=[one], tasks=[Task(description="Work", expected_output="Work", agent=one)])
    """
    heard = Heard()
    await bench.run(crew_project(tmp_path, code), heard=heard)
    assert [(one.position, one.name) for one in heard.of(TaskStarted)] == [(0, None), (1, "late")]
