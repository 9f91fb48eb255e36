"""The value of a secret variable in a prompt is a warning that names the variable and the task, or ends the run."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.crews import crew_project
from projects_for_tests.making import Bench, Heard, function_project
from projects_for_tests.model_server import ModelServer
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass_child.masking.secret_values import SecretValues
from windlass_child.process.prompts import Prompt, Prompts, SecretRefused, texts_in
from windlass_child.protocol.messages import Event, ModelCalled, TaskEnded, Warned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from windlass.kickoffs.outcome import Outcome

asynchronous = pytest.mark.asyncio(loop_scope="session")
pytestmark = pytest.mark.xdist_group("crewai")

SECRET = "Xk29vQ7mT4zR8bLw"
VARIABLES = {"TOKEN": SECRET}

IN_DESCRIPTION = """
token = os.environ["TOKEN"]
agent = worker(goal="Work with " + token)
tasks = [
    Task(name="first", description="Work", expected_output="Work", agent=agent),
    Task(name="second", description=f"Log in with {token}", expected_output="Work", agent=agent),
]
crew = Crew(agents=[agent], tasks=tasks)
"""
OF_INPUT = """
agent = worker()
tasks = [Task(name="told", description="Work on {topic}", expected_output="Work", agent=agent)]
crew = Crew(agents=[agent], tasks=tasks)
"""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


async def run(bench: Bench, project: Path, heard: Heard, inputs: dict[str, Any], **more: Any) -> Outcome:
    environment = VARIABLES | more.pop("environment", {})
    outcome = await bench.run(project, inputs, environment, heard, secrets=frozenset(VARIABLES), **more)
    assert SECRET not in repr([outcome, *heard.all])
    return outcome


def found(heard: Heard) -> list[Warned]:
    return [one for one in heard.of(Warned) if one.code == "secret_in_prompt"]


@asynchronous
async def test_a_secret_in_a_description_is_a_warning_of_the_build_and_of_each_kickoff(
    bench: Bench, tmp_path: Path
) -> None:
    project, heard = recognise(crew_project(tmp_path, IN_DESCRIPTION)), Heard()
    manifest = await bench.runner.inspect(
        bench.interpreter, "crewai", project.project, VARIABLES, heard.report, secrets=VARIABLES
    )
    assert [one["code"] for one in manifest.warnings] == ["secret_in_prompt"]
    (warned,) = found(heard)
    assert warned.message.startswith("The value of the secret variable TOKEN is in the description of the task second,")
    assert warned.task == 1
    kickoff = Heard()
    outcome = await run(bench, tmp_path, kickoff, {})
    assert outcome.state is State.SUCCESS, outcome.error
    assert found(kickoff) == [warned], "once, also if it is in more prompts"


@asynchronous
@pytest.mark.parametrize(
    "topic", [SECRET, base64.b64encode(f"user:{SECRET}".encode()).decode()], ids=["text", "base64"]
)
async def test_a_secret_in_an_input_is_a_warning_that_names_the_task(bench: Bench, tmp_path: Path, topic: str) -> None:
    heard = Heard()
    outcome = await run(bench, crew_project(tmp_path, OF_INPUT), heard, {"topic": topic})
    assert outcome.state is State.SUCCESS, outcome.error
    (warned,) = found(heard)
    assert "TOKEN is in a prompt of the task told" in warned.message
    assert warned.task == 0


@asynchronous
async def test_without_a_secret_in_a_prompt_there_is_no_warning(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    await run(bench, crew_project(tmp_path, OF_INPUT), heard, {"topic": SECRET[:-1]})
    assert found(heard) == []


@asynchronous
@pytest.mark.parametrize(
    ("code", "inputs", "where"),
    [(IN_DESCRIPTION, {}, "the description of the task second"), (OF_INPUT, {"topic": SECRET}, "the task told")],
    ids=["description", "input"],
)
async def test_a_prompt_that_is_refused_ends_the_run_before_the_model_is_called(
    bench: Bench, tmp_path: Path, code: str, inputs: dict[str, Any], where: str
) -> None:
    heard = Heard()
    outcome = await run(bench, crew_project(tmp_path, code), heard, inputs, secret_in_prompt="refuse")
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.SECRETS)
    assert outcome.error is not None
    assert f"{where}, which secret_in_prompt = " in outcome.error
    assert heard.of(ModelCalled) == []
    assert [one for one in heard.of(TaskEnded) if one.state == "completed"] == []


CALLS = """
import os

def run():
    from crewai import LLM
    return LLM(model="openai/gpt-4o-mini").call([{"role": "user", "content": "Use " + os.environ["TOKEN"]}])
"""
WITHOUT_HOOKS = """
import crewai
from windlass_child.crewai import capabilities

capabilities.found()["hooks"] = False
"""


@asynchronous
@pytest.mark.parametrize("before", ["", WITHOUT_HOOKS], ids=["hooks", "none"])
@pytest.mark.parametrize("effect", ["warn", "refuse"])
async def test_a_call_of_a_model_without_an_agent_is_checked_too(
    bench: Bench, tmp_path: Path, model: ModelServer, before: str, effect: Any
) -> None:
    """With crewai's hooks, and as in its releases without them."""
    heard = Heard()
    outcome = await run(
        bench,
        function_project(tmp_path, before + CALLS),
        heard,
        {},
        environment=model.environment,
        secret_in_prompt=effect,
    )
    if effect == "warn":
        assert outcome.state is State.SUCCESS, outcome.error
        assert ["TOKEN is in a prompt, so" in one.message for one in found(heard)] == [True]
    else:
        assert outcome.reason is Reason.SECRETS, outcome.error
    assert len(model.requests) == (effect == "warn")
    assert [one.type for one in heard.of(Event) if one.type == "llm_call_completed"] == (
        ["llm_call_completed"] if effect == "warn" else []
    )


def test_the_texts_of_messages() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {"url": "two"}}]
    messages = [{"role": "user", "content": parts}, {"role": "tool", "content": None}, {"content": "three"}]
    assert {"one", "two", "three"} <= set(texts_in(messages))
    assert list(texts_in("a prompt")) == ["a prompt"]
    assert list(texts_in(None)) == []


def test_each_variable_is_reported_once() -> None:
    prompts = Prompts(SecretValues({"A": "aaaaaaaa-1", "B": "bbbbbbbb-2"}))
    first = prompts.check([Prompt("one", "aaaaaaaa-1"), Prompt("two", "bbbbbbbb-2 aaaaaaaa-1", 3)])
    assert [(one.message.split()[6], one.task) for one in first] == [("A", None), ("B", 3)]
    assert prompts.check([Prompt("one", "aaaaaaaa-1")]) == []


def test_refused_prompts_are_refused_each_time() -> None:
    prompts = Prompts(SecretValues({"A": "aaaaaaaa-1"}), refuse=True)
    for _ in range(2):
        with pytest.raises(SecretRefused):
            prompts.check([Prompt("one", "aaaaaaaa-1")])
