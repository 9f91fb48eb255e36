"""A crew ends from within: when it is asked to, and when it has used up what it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import PRELUDE, WAIT_UNTIL_ASKED_TO_END, crew_project, started, started_function
from projects_for_tests.model_server import ModelServer
from windlass_child.protocol.messages import (
    Abort,
    Budget,
    Event,
    ModelCalled,
    Project,
    Succeeded,
    TaskEnded,
    Tokens,
    Warned,
)

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

HINT = "Raise {} under [tool.windlass.limits] in pyproject.toml, or in the kickoff's `limits`."

ENDLESS = '''
from crewai.tools import tool

@tool("look")
def look(text: str) -> str:
    """Looks."""
    os.write(1, b"looked\\n")
    return "again, and again " + os.urandom(8).hex()


class Restless(BaseLLM):
    """Never has enough."""

    def call(self, messages, *arguments, **named):
        os.write(1, b"called\\n")
        word = os.urandom(8).hex()
        return f'Thought: more\\nAction: look\\nAction Input: {{"text": "{word}"}}'

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 8192


@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker(llm=Restless(model="restless"), tools=[look], max_iter=500)
        return Crew(agents=[one], tasks=[Task(description="Work", expected_output="Work", agent=one)])
'''

UNTIL_ASKED = WAIT_UNTIL_ASKED_TO_END + ENDLESS.replace(
    '    return "again', '    wait_until_asked_to_end()\n    return "again'
)

MANY_TASKS = """
@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker(llm={llm})
        tasks = [Task(description=f"Work {{n}}", expected_output="Work", agent=one) for n in range(8)]
        return Crew(agents=[one], tasks=tasks)
"""

REAL_MODEL = 'LLM(model="openai/gpt-4o-mini")'


def test_a_crew_that_is_asked_to_end_does_at_its_next_step(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = started(zygote, tmp_path, UNTIL_ASKED)
    zygote.until(lambda: "looked" in child.printed)
    child.talk.send(Abort("the kickoff was stopped on request"))
    assert child.failure().message == "the kickoff was stopped on request"
    child.exited()
    assert [ended.state for ended in child.talk.of(TaskEnded)] == ["failed"]
    steps = [line for line in child.printed.splitlines() if line in ("called", "looked")]
    assert steps == ["called", "looked"], "the model is not asked again"


def test_a_crew_that_is_asked_before_it_begins_calls_no_model(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = zygote.fork()
    project = Project("crew", str(crew_project(tmp_path / "project", ENDLESS)), "work.crew")
    child.talk.send(Abort("never mind"))
    child.run(project, tmp_path / "folder")
    assert child.failure().message == "never mind"
    child.exited()
    assert "called" not in child.printed


@pytest.mark.parametrize(
    ("budget", "calls", "words", "limit"),
    [
        (Budget(model_call_limit=5), 5, "made 5 model calls; its limit is 5.", "model_call_limit"),
        (Budget(token_limit=50), 3, "used 54 tokens; its limit is 50.", "token_limit"),
        # with what earlier attempts have used
        (Budget(model_call_limit=5, model_calls_made=3), 2, "made 5 model calls; its limit is 5.", "model_call_limit"),
        (Budget(token_limit=50, tokens_used=40), 1, "used 58 tokens; its limit is 50.", "token_limit"),
    ],
    ids=["calls", "tokens", "calls of all attempts", "tokens of all attempts"],
)
def test_exactly_as_many_model_calls_are_made_as_may_be(
    zygote: DrivenZygote, tmp_path: Path, budget: Budget, calls: int, words: str, limit: str
) -> None:
    with ModelServer() as model:
        code = MANY_TASKS.format(llm=REAL_MODEL)
        child = started(zygote, tmp_path, code, environment=model.environment, budget=budget)
        failed = child.failure()
        child.exited()
        assert len(model.requests) == calls
    assert (failed.reason, failed.message) == ("limit", words)
    assert failed.hint == HINT.format(limit)
    assert sum(used.total for used in child.talk.of(Tokens)) == 18 * calls
    assert len(child.talk.of(ModelCalled)) == calls, "what the next attempt is told of"
    assert [ended.state for ended in child.talk.of(TaskEnded)] == ["completed"] * calls + ["failed"]


def test_calls_of_a_model_class_of_the_crews_own_count_too(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = started(zygote, tmp_path, ENDLESS, budget=Budget(model_call_limit=2))
    assert child.failure().message == "made 2 model calls; its limit is 2."
    child.exited()
    assert child.printed.count("called") == 2
    assert (len(child.talk.of(ModelCalled)), child.talk.of(Tokens)) == (2, [])


def test_a_crew_within_its_budget_runs_to_its_end(zygote: DrivenZygote, tmp_path: Path) -> None:
    budget = Budget(token_limit=1000, model_call_limit=8, result_limit=1000)
    child = started(zygote, tmp_path, MANY_TASKS.format(llm='Parrot(model="parrot")'), budget=budget)
    assert child.answer() == Succeeded("said")


def test_a_crew_in_a_function_is_asked_to_end_and_counted_too(zygote: DrivenZygote, tmp_path: Path) -> None:
    crew = ENDLESS.partition("@CrewBase")[0]
    made = (
        "def run():\n"
        "    one = worker(llm=Restless(model='restless'), tools=[look], max_iter=500)\n"
        "    task = Task(description='Work', expected_output='Work', agent=one)\n"
        "    return str(Crew(agents=[one], tasks=[task]).kickoff())\n"
    )
    child = started_function(zygote, tmp_path / "a", PRELUDE + crew + made, budget=Budget(model_call_limit=2))
    assert child.failure().message == "made 2 model calls; its limit is 2."
    child = started_function(zygote, tmp_path / "b", PRELUDE + crew + made)
    zygote.until(lambda: "looked" in child.printed)
    child.talk.send(Abort("enough"))
    assert child.failure().message == "enough"
    kinds = {event.type for event in child.talk.of(Event)}
    assert {"crew_kickoff_started", "task_started", "tool_usage_started"} <= kinds


def test_a_task_whose_event_can_not_be_told_ends_all_the_same(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    import traceback
    from pydantic import BaseModel, field_serializer

    class Answer(BaseModel):
        number: int
        @field_serializer("number")
        def told(self, value):
            if "crew_events" in "".join(traceback.format_stack()):
                raise RuntimeError("not to be told")
            return value

    def checked(output):
        output.json_dict = {"answer": Answer(number=7)}
        return True, output

    @CrewBase
    class Work:
        @crew
        def crew(self):
            one = worker()
            task = Task(description="Work", expected_output="Work", agent=one, guardrail=checked)
            return Crew(agents=[one], tasks=[task])
    """
    child = started(zygote, tmp_path, code)
    child.exited()
    words = "an event task_completed of the run could not be reported: "
    assert any(warned.message.startswith(words) for warned in child.talk.of(Warned))
    (ended,) = child.talk.of(TaskEnded)
    assert (ended.state, ended.output) == ("completed", "said")
