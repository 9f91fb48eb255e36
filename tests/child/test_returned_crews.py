"""A function may return a crew that it made and did not run."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Task

from windlass_child import results
from windlass_child.crewai import adapter
from windlass_child.crewai.callbacks import names_of, refuse_async
from windlass_child.kinds.function import returned_crew
from windlass_child.process.error_text import InputsRefused, ProjectFault

pytestmark = [pytest.mark.unit, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

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

    assert names_of([finish]) == "finish"


async def later(value: Any) -> Any:
    return value


class Later:
    async def __call__(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("callback", [later, Later(), functools.partial(later)], ids=["function", "object", "partial"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_async_callback_is_refused_by_its_name(callback: Any, when: str) -> None:
    callbacks = {"before": [], "after": [], when: [callback]}
    crew = SimpleNamespace(**{f"{name}_kickoff_callbacks": listed for name, listed in callbacks.items()})
    with pytest.raises(ProjectFault, match=rf"\(@{when}_kickoff\) is async") as caught:
        refuse_async(crew)
    assert caught.value.code == "never_runs"
    if callback is later:
        assert "its callback later " in caught.value.message
