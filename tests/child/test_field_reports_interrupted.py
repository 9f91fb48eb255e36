"""Situations of public reports (test_field_reports.py) in runs whose process is killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.interrupted import kickoff_of_crew, kickoff_of_function
from windlass_child.process.messages import Succeeded

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

MIXED = """
from crewai.tasks.conditional_task import ConditionalTask

@CrewBase
class Work:
    @crew
    def crew(self):
        agents = {name: one(role=name) for name in "abcde"}
        left_out = ConditionalTask(
            description="Do [d]", expected_output="Words", name="d", agent=agents["d"], condition=lambda output: False
        )
        tasks = [
            step("a", agents["a"]),
            step("b", agents["b"], async_execution=True),
            step("c", agents["c"], async_execution=True),
            left_out,
            step("e", agents["e"]),
        ]
        return Crew(agents=list(agents.values()), tasks=tasks)
"""


def test_async_tasks_that_ended_before_a_kill_are_not_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_crew(zygote, tmp_path, MIXED)
    run.interrupted("e")
    assert run.attempt().answer() == Succeeded("e of attempt 2")
    assert run.calls == dict.fromkeys("abce", 1)


FOR_EACH = """
def run():
    agent = one()
    task = Task(description="Do [{word}]", expected_output="Words", name="read", agent=agent)
    crew = Crew(agents=[agent], tasks=[task])
    return [str(each) for each in crew.kickoff_for_each(inputs=[{"word": word} for word in "abc"])]
"""


def test_kickoff_for_each_goes_on_with_the_input_at_which_it_was_killed(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_function(zygote, tmp_path, FOR_EACH)
    run.interrupted("b")
    answer = run.attempt().answer()
    assert isinstance(answer, Succeeded)
    assert json.loads(str(answer.output)) == ["a of attempt 1", "b of attempt 2", "c of attempt 2"]
    assert run.calls == dict.fromkeys("abc", 1)
