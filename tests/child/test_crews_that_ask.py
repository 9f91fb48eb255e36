"""A crew or a flow that asks a person ends with that, at once, and is not paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import crew_project, one_task, started, started_function
from projects_for_tests.model_server import ModelServer
from windlass_child.protocol.messages import Inspected, Project, Succeeded, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

REAL_MODEL = 'LLM(model="openai/gpt-4o-mini")'

ASKING = one_task().replace("agent=one)", "agent=one, name='review', human_input=True)")


def test_a_task_that_asks_a_person_ends_the_run_before_a_model_is_called(zygote: DrivenZygote, tmp_path: Path) -> None:
    with ModelServer() as model:
        code = ASKING.replace('Parrot(model="parrot")', REAL_MODEL)
        failed = started(zygote, tmp_path, code, environment=model.environment).failure()
        assert model.requests == []
    assert failed.message == "the task review asks a person (human_input), and approvals are not supported yet."
    assert failed.hint == "Remove it, or let a person approve the result after the kickoff."
    assert failed.reason == "error"


def test_inspection_warns_of_a_task_that_asks_a_person(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = zygote.fork()
    child.inspect(Project("crew", str(crew_project(tmp_path / "project", ASKING)), "work.crew"), tmp_path / "folder")
    assert isinstance(child.answer(), Inspected)
    (warned,) = child.talk.of(Warned)
    assert (warned.code, warned.task) == ("approvals_not_there", 0)
    assert warned.message.startswith("the task review asks a person")


def test_a_task_that_is_made_to_ask_while_running_costs_one_model_call(zygote: DrivenZygote, tmp_path: Path) -> None:
    with ModelServer() as model:
        failed = started(zygote, tmp_path, MADE_TO_ASK, environment=model.environment).failure()
        assert len(model.requests) == 1
    assert failed.message == "the task late asks a person (human_input), and approvals are not supported yet."


MADE_TO_ASK = """
@CrewBase
class Work:
    @before_kickoff
    def ask(self, inputs):
        self.made.tasks[0].human_input = True
        return inputs

    @crew
    def crew(self):
        one = worker(llm=LLM(model="openai/gpt-4o-mini"))
        self.made = Crew(agents=[one], tasks=[Task(name="late", description="W", expected_output="W", agent=one)])
        return self.made
"""


def test_a_project_that_asks_persons_in_a_way_of_its_own_may(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = started(zygote, tmp_path, OWN_WAY + ASKING)
    assert child.answer() == Succeeded("approved by its own way")


OWN_WAY = """
from crewai.core.providers.human_input import set_provider

class Own:
    def setup_messages(self, context):
        return False

    def post_setup_messages(self, context):
        pass

    def handle_feedback(self, answer, context):
        answer.output = "approved by its own way"
        return answer

set_provider(Own())
"""


@pytest.mark.parametrize(
    ("method", "asker"),
    [
        (
            "    @human_feedback(message='ok?')\n    def begin(self):\n        return 1\n",
            "the method begin asks a person",
        ),
        ("    def begin(self):\n        return self.ask('name?')\n", "a flow asks a person ('name?')"),
    ],
    ids=["feedback", "ask"],
)
def test_a_flow_in_a_function_that_asks_a_person_ends_it_in_words(
    zygote: DrivenZygote, tmp_path: Path, method: str, asker: str
) -> None:
    code = (
        "from crewai.flow import Flow, start\nfrom crewai.flow.human_feedback import human_feedback\n\n"
        "class Asks(Flow):\n    _skip_auto_memory = True\n    @start()\n" + method + "\n"
        "def run():\n    return str(Asks().kickoff())\n"
    )
    failed = started_function(zygote, tmp_path, code).failure()
    assert failed.message.startswith(asker)
    assert failed.message.endswith("and approvals are not supported yet.")
