"""What is wrong with a crew is said in words, with the place and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import crew_project, one_task
from projects_for_tests.making import Bench, written
from windlass.errors import ProjectError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

FROM_YAML = """
@CrewBase
class Work:
    @agent
    def boss(self):
        return Agent(config=self.agents_config["boss"], llm=Parrot(model="parrot"))

    @task
    def work(self):
        return Task(config=self.tasks_config["work"])

    @crew
    def crew(self):
        return Crew(agents=self.agents, tasks=self.tasks)
"""


async def fault_of(bench: Bench, project: Path) -> ProjectError:
    with pytest.raises(ProjectError) as caught:
        await bench.inspect(project)
    return caught.value


async def test_no_crew(bench: Bench, tmp_path: Path) -> None:
    fault = await fault_of(bench, crew_project(tmp_path, "class Work:\n    pass\n"))
    assert fault.message == "no crew found: work/crew.py has no class with @CrewBase."
    assert fault.hint == "Decorate the crew's class with it."


async def test_two_crews(bench: Bench, tmp_path: Path) -> None:
    fault = await fault_of(bench, crew_project(tmp_path, one_task() + one_task().replace("class Work", "class Play")))
    assert (
        "more than one crew: Work (work/crew.py:26, a class with @CrewBase); Play (work/crew.py:33, " in fault.message
    )
    assert fault.hint.startswith('Add to pyproject.toml: [tool.windlass] crew = "work.crew:Work", or name one: ')


async def test_of_two_crews_the_chosen_one_is_taken(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, one_task() + one_task().replace("class Work", "class Play"))
    written(project, {"pyproject.toml": '[tool.windlass]\ncrew = "work.crew:Play"\n'})
    assert (await bench.inspect(project)).name == "Play"


async def test_a_crew_that_is_imported_from_its_own_package_is_found(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, one_task())
    (project / "work" / "crew.py").rename(project / "work" / "inner.py")
    written(project, {"work/crew.py": "from .inner import Work\n"})
    assert (await bench.inspect(project)).name == "Work"


async def test_a_chosen_name_that_is_no_crew(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, one_task())
    written(project, {"pyproject.toml": '[tool.windlass]\ncrew = "work.crew:Parrot"\n'})
    assert (await fault_of(bench, project)).message == "work.crew:Parrot is not a crew."


async def test_a_chosen_name_that_is_not_there(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, one_task())
    written(project, {"pyproject.toml": '[tool.windlass]\ncrew = "work.crew:Other"\n'})
    fault = await fault_of(bench, project)
    assert fault.message == "work.crew has no 'Other', which the entrypoint 'work.crew:Other' names."


async def test_a_chosen_module_that_is_not_there(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, one_task())
    written(project, {"pyproject.toml": '[tool.windlass]\ncrew = "work.other:Work"\n'})
    fault = await fault_of(bench, project)
    assert fault.message == "the entrypoint 'work.other:Work' names a module that is not there."
    assert f"Looked for work/other in {project}" in fault.hint


async def test_a_class_without_a_crew_method(bench: Bench, tmp_path: Path) -> None:
    fault = await fault_of(bench, crew_project(tmp_path, "@CrewBase\nclass Work:\n    pass\n"))
    assert fault.message == "the class Work has no method crew()."


async def test_a_crew_method_that_gives_something_else(bench: Bench, tmp_path: Path) -> None:
    code = "@CrewBase\nclass Work:\n    def crew(self):\n        return 'work'\n"
    assert (await fault_of(bench, crew_project(tmp_path, code))).message == "Work.crew() gave a str."


async def test_yaml_files_that_are_missing(bench: Bench, tmp_path: Path) -> None:
    fault = await fault_of(bench, crew_project(tmp_path, FROM_YAML))
    assert fault.message.startswith("Work can't be built: KeyError: 'work' (work/crew.py:")
    assert fault.hint.startswith("There is no work/config/agents.yaml and no work/config/tasks.yaml:")


async def test_a_name_that_the_yaml_lacks(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, FROM_YAML)
    written(project, {"work/config/agents.yaml": "chief: {role: a, goal: b, backstory: c}\n"})
    written(project, {"work/config/tasks.yaml": "work: {description: a, expected_output: b, agent: boss}\n"})
    fault = await fault_of(bench, project)
    assert "KeyError: 'boss'" in fault.message
    assert fault.hint == "Look for the name in work/config/agents.yaml and work/config/tasks.yaml."


async def test_yaml_that_can_not_be_read(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, FROM_YAML)
    written(project, {"work/config/agents.yaml": "boss: [\n"})
    fault = await fault_of(bench, project)
    assert "agents.yaml" in fault.message
    assert "line 2" in fault.message


async def test_a_variable_that_is_not_set(bench: Bench, tmp_path: Path) -> None:
    code = one_task('LLM(model="openai/gpt-4o-mini", api_key=os.environ["MODEL_KEY"])')
    fault = await fault_of(bench, crew_project(tmp_path, code))
    assert fault.message.startswith("KeyError: 'MODEL_KEY' (work/crew.py:")
    assert fault.hint == "Set MODEL_KEY among the crew's variables."


async def test_a_key_that_a_provider_misses(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(crew_project(tmp_path, one_task('LLM(model="openai/gpt-4o-mini")')))
    assert outcome.error == "ValueError: OPENAI_API_KEY is required. Set OPENAI_API_KEY among the crew's variables."


async def test_values_that_do_not_fit_are_told_without_the_values(bench: Bench, tmp_path: Path) -> None:
    fault = await fault_of(bench, crew_project(tmp_path, one_task().replace("agents=[one]", "agents='sk-all'")))
    assert "agents: Input should be a valid list" in fault.message
    assert "sk-all" not in str(fault)


async def test_a_function_with_arguments_that_returns_a_crew_is_to_be_an_entrypoint(
    bench: Bench, tmp_path: Path
) -> None:
    code = one_task() + "\n\ndef make(topic):\n    return Work().crew()\n"
    project = written(crew_project(tmp_path, code), {"pyproject.toml": '[tool.windlass]\ncrew = "work.crew:make"\n'})
    fault = await fault_of(bench, project)
    assert fault.message == "no kickoff can run make: it needs the arguments topic."
    assert '[tool.windlass] entrypoint = "work.crew:make". Its parameters are then inputs.' in fault.hint


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_async_callback_is_found_when_the_crew_is_loaded(bench: Bench, tmp_path: Path, when: str) -> None:
    method = f"    @{when}_kickoff\n    async def tidy(self, value):\n        return value\n\n"
    fault = await fault_of(bench, crew_project(tmp_path, one_task().replace("    @crew\n", method + "    @crew\n")))
    assert f"its callback tidy (@{when}_kickoff) is async, and crewai " in fault.message
    assert "asyncio.run" in (fault.hint or "")
