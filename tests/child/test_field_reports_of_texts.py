"""Situations of public reports, in which texts, names and processes of crews were the reason of the failure."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import PRELUDE, PYPROJECT, crew_project, flow_project
from projects_for_tests.making import Bench, Heard, function_project, written
from windlass.kickoffs.states import State
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

YAML_CREW = """
class Reader(Parrot):
    def call(self, messages, *arguments, **named):
        print("read", str(messages).count('{"action": "<x>",'), str(messages).count("about tea"))
        return super().call(messages)

@CrewBase
class Work:
    agents_config = "agents.yaml"
    tasks_config = "tasks.yaml"

    @agent
    def writer(self):
        return Agent(config=self.agents_config["writer"], llm=Reader(model="parrot"))

    @task
    def write(self):
        return Task(config=self.tasks_config["write"])

    @crew
    def crew(self):
        return Crew(agents=self.agents, tasks=self.tasks)
"""
TASKS = """
write:
  description: Write about {topic}
  expected_output: >
    JSON such as
    {"action": "<x>", "n": [1],
     "inner": {"a": {}}}
  agent: writer
"""


async def test_json_in_a_yaml_task_is_no_input_and_reaches_the_model(bench: Bench, tmp_path: Path) -> None:
    files = {
        "pyproject.toml": PYPROJECT,
        "work/__init__.py": "",
        "work/crew.py": PRELUDE + YAML_CREW,
        "work/agents.yaml": "writer: {role: Writer, goal: Write, backstory: None}\n",
        "work/tasks.yaml": TASKS,
    }
    project, heard = written(tmp_path, files), Heard()
    assert list((await bench.inspect(project)).inputs_schema["properties"]) == ["topic"]
    assert (await bench.run(project, {"topic": "tea"}, heard=heard)).state is State.SUCCESS
    assert heard.lines("stdout")[0] == "read 1 1"


async def test_half_a_character_in_a_long_output_is_replaced(bench: Bench, tmp_path: Path) -> None:
    lines = ['text = "x" * 25_000 + "\\ud83c end"', "print(text)", 'print("\\ud83c end")', "return text"]
    code = "\n    ".join(["def run():", *lines])
    heard = Heard()
    outcome = await bench.run(function_project(tmp_path, code), heard=heard)
    assert outcome.state is State.SUCCESS, outcome
    output = outcome.output.value if isinstance(outcome.output, Encoded) else outcome.output
    assert str(output).endswith("x\ufffd end")
    assert heard.lines("stdout")[-1].endswith(" end")
    assert "\ud83c" not in json.dumps(heard.lines("stdout"), ensure_ascii=False)


FILES = """
@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker()
        tasks = [Task(description="Write {topic}", expected_output="x", output_file="résumé 日.md", agent=one)]
        return Crew(agents=[one], tasks=tasks, output_log_file="log.txt")

    @after_kickoff
    def end(self, result):
        with open("résumé 日.md", "rb") as file, open("log.txt", "rb") as log:
            return [file.read().decode(), "→ 🎉 日本" in log.read().decode()]
"""


async def test_files_with_characters_of_all_kinds_in_a_c_locale(bench: Bench, tmp_path: Path) -> None:
    environment = {"LC_ALL": "C", "ANSWER": "→ 🎉 日本"}
    outcome = await bench.run(crew_project(tmp_path, FILES), {"topic": "→ 🎉"}, environment)
    assert outcome.json == ["→ 🎉 日本", True], outcome


ASYNC_IN_HIERARCHY = """
from crewai import Process

@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker()
        tasks = [Task(description="a", expected_output="x", agent=one, async_execution=True)]
        return Crew(agents=[one], tasks=tasks, process=Process.hierarchical, manager_llm=Parrot(model="parrot"))
"""


async def test_an_async_task_of_a_hierarchical_crew_runs(bench: Bench, tmp_path: Path) -> None:
    """Releases of crewai before those that Windlass runs refused it in the kickoff."""
    outcome = await bench.run(crew_project(tmp_path, ASYNC_IN_HIERARCHY))
    assert (outcome.state, outcome.output) == (State.SUCCESS, "said"), outcome


ODD_ROLES = """
from crewai import Process

class Manager(Parrot):
    def call(self, messages, *arguments, **named):
        if "said" in str(messages):
            return "Thought: I know\\nFinal Answer: done"
        work = '{"task": "write", "context": "none", "coworker": "' + os.environ["COWORKER"] + '"}'
        return "Thought: others can\\nAction: Delegate work to coworker\\nAction Input: " + work

@CrewBase
class Work:
    @crew
    def crew(self):
        roles = ["The writer  of\\n{topic}\\n", "'quoted'"]
        agents = [worker(role=role) for role in roles]
        manager = worker(role="manager", llm=Manager(model="manager"), allow_delegation=True)
        tasks = [Task(description="Do", expected_output="x", agent=agents[0])]
        return Crew(agents=agents, tasks=tasks, process=Process.hierarchical, manager_agent=manager)
"""


async def test_a_manager_delegates_to_a_role_with_spaces_and_an_input(bench: Bench, tmp_path: Path) -> None:
    environment = {"COWORKER": "The writer  of tea"}
    outcome = await bench.run(crew_project(tmp_path, ODD_ROLES), {"topic": "tea"}, environment)
    assert (outcome.state, outcome.output) == (State.SUCCESS, "done"), outcome


async def test_a_coworker_that_a_manager_does_not_find_is_in_the_events(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    await bench.run(crew_project(tmp_path, ODD_ROLES), {"topic": "tea"}, {"COWORKER": "nobody"}, heard)
    texts = [str(one) for kind in ("tool_usage_finished", "tool_usage_error") for one in heard.events(kind)]
    assert any("coworker" in text and "not found" in text for text in texts), texts


EACH = """
def run():
    one = worker(llm=Parrot(model="parrot"))
    tasks = [
        Task(description="Do {word}", expected_output="x", name="a", agent=one),
        ConditionalTask(
            description="More of {word}", expected_output="x", name="b", agent=one, condition=lambda output: True
        ),
        Task(description="End {word}", expected_output="x", name="c", agent=one),
    ]
    crew = Crew(agents=[one], tasks=tasks)
    return [len(one.tasks_output) for one in crew.kickoff_for_each([{"word": word} for word in "xyz"])]
"""


async def test_kickoff_for_each_of_a_crew_with_a_conditional_task_runs_or_names_its_line(
    bench: Bench, tmp_path: Path
) -> None:
    outcome = await bench.run(function_project(tmp_path, PRELUDE + EACH))
    assert outcome.json == [3, 3, 3] or "(work.py:" in str(outcome.error), outcome


SHARED = """
from crewai.flow.persistence import persist
from pydantic import BaseModel

class S(BaseModel):
    id: str = ""
    count: int = 0

@persist()
class Work(Flow[S]):
    _skip_auto_memory = True

    @start()
    def one(self):
        self.state.count += 1

    @listen(one)
    def two(self):
        self.state.count += 1
        return self.state.count
"""


async def test_flows_that_share_a_database_of_states_all_end(bench: Bench, tmp_path: Path) -> None:
    """SQLite is locked while another process writes. crewai waits for it, or the error names the lock."""
    project, shared = flow_project(tmp_path / "project", SHARED), tmp_path / "shared"
    shared.mkdir()
    runs = [bench.run(project, {}, {"CREWAI_STORAGE_DIR": str(shared)}) for _ in range(8)]
    for outcome in await asyncio.gather(*runs):
        assert outcome.output == "2" or "locked" in str(outcome.error), outcome


async def test_a_function_that_returns_an_exception_has_failed(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path, "def run():\n    return ValueError('no tea')\n"))
    assert outcome.state is State.FAILED
    assert str(outcome.error).startswith(
        "the crew's code returned an exception, ValueError: no tea, which is no result"
    )
