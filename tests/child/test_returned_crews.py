"""A function may return a crew that it made and did not run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Task

from windlass_child.crewai import adapter
from windlass_child.kinds import results
from windlass_child.kinds.crew import callbacks_of
from windlass_child.kinds.function import returned_crew
from windlass_child.process.error_text import InputsRefused, ProjectFault

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MODEL = LLM(model="gpt-4o", api_key="sk-of-this-test")


def made() -> Crew:
    agent = Agent(role="Clerk", goal="Write", backstory="Reads", llm=MODEL)
    return Crew(agents=[agent], tasks=[Task(description="About {topic}", expected_output="Text", agent=agent)])


class Ran(Crew):  # type: ignore[misc]  # crewai has no types here
    def kickoff(self, inputs: dict[str, Any] | None = None, **_: Any) -> Any:
        return f"ran with {inputs}"


def test_a_returned_crew_is_run_with_the_inputs() -> None:
    crew = made()
    ran = Ran(agents=crew.agents, tasks=crew.tasks)
    assert returned_crew(ran, {"topic": "tides"}) == "ran with {'topic': 'tides'}"


def test_a_returned_crew_needs_its_inputs() -> None:
    with pytest.raises(InputsRefused, match="topic"):
        returned_crew(made(), {})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: [made()], "Crew"),
        (lambda: {"a": made().agents[0]}, "BaseAgent"),
        (lambda: made().tasks[0], "Task"),
        (lambda: MODEL, "BaseLLM"),
    ],
    ids=["crew", "agent", "task", "model"],
)
def test_no_object_of_crewai_is_a_result(make: Any, name: str) -> None:
    value = make()
    with pytest.raises(ProjectFault) as caught:
        results.Conversion().plain(value)
    assert f"a {name} object" in caught.value.message
    assert caught.value.hint == adapter.how_to_run(name)
    assert "sk-of-this-test" not in results.text_of_output(value)


def test_a_callback_is_named() -> None:
    def finish(output: Any) -> Any:
        return output

    assert callbacks_of(SimpleNamespace(after_kickoff_callbacks=[finish])) == "finish"
