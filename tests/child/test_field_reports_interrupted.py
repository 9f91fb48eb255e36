"""Situations of public reports (test_field_reports.py) in runs whose process is killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import flow_project
from projects_for_tests.interrupted import MODEL, Kickoff, kickoff_of_crew, kickoff_of_function
from windlass_child.protocol.messages import Project, Succeeded, TaskEnded

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")


def kickoff_of_flow(zygote: DrivenZygote, folder: Path, code: str) -> Kickoff:
    return Kickoff(zygote, Project("flow", str(flow_project(folder / "project", MODEL + code)), "main"), folder)


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


CHECKPOINTED = """
@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        return Crew(agents=[agent], tasks=[step("a", agent), step("b", agent)], checkpoint=True)
"""


def test_a_crew_with_checkpoints_goes_on_after_its_first_task(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_crew(zygote, tmp_path, CHECKPOINTED)
    run.interrupted("b")
    assert run.attempt().answer() == Succeeded("b of attempt 2")
    assert run.calls == {"a": 1, "b": 1}


GUARDED = """
def guard(output):
    note("guarded", output.raw)
    return ("good" in output.raw, output.raw if "good" in output.raw else "say [retry]")

class Scripted(Counted):
    def call(self, messages, *arguments, **named):
        step = "retry" if os.environ["STOP_AT"] == "retry" and noted_once() else "note"
        if os.environ.get("STOP_AT") == step:
            os.write(1, b"stopped\\n")
            time.sleep(600)
        return answer_to(step)

def noted_once():
    with open(os.environ["NOTES"]) as file:
        return "guarded" in file.read()

@CrewBase
class Work:
    @crew
    def crew(self):
        open(os.environ["NOTES"], "a").close()
        agent = worker(llm=Scripted(model="scripted"), max_retry_limit=0)
        task = step("note", agent, guardrail=guard, guardrail_max_retries=3)
        return Crew(agents=[agent], tasks=[task])
"""


def test_a_task_that_was_killed_between_two_tries_of_its_guardrail_begins_again(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    run = kickoff_of_crew(zygote, tmp_path, GUARDED)
    run.interrupted("retry", answers={"note": "bad"})
    assert run.attempt(answers={"note": "good"}).answer() == Succeeded("good")
    assert run.noted("guarded") == ["bad", "good"]


ROUTERS = """
class Work(Flow):
    _skip_auto_memory = True

    @start()
    def begin(self):
        return "begun"

    @router(begin)
    def left(self):
        return "to_left"

    @router(begin)
    def right(self):
        return "to_right"

    @listen("to_left")
    def on_left(self):
        note("ran", "left")
        Counted(model="counted").call("[left]")

    @listen("to_right")
    def on_right(self):
        note("ran", "right")
        Counted(model="counted").call("[right]")
"""


def test_two_routers_of_one_method_lead_to_the_same_methods_after_a_kill(zygote: DrivenZygote, tmp_path: Path) -> None:
    whole = kickoff_of_flow(zygote, tmp_path / "whole", ROUTERS)
    assert isinstance(whole.attempt().answer(), Succeeded)
    for stop_at in sorted(set(whole.noted("ran"))):
        run = kickoff_of_flow(zygote, tmp_path / stop_at, ROUTERS)
        run.interrupted(stop_at)
        last = run.attempt()
        assert isinstance(last.answer(), Succeeded)
        assert set(run.noted("ran")) == set(whole.noted("ran"))
        assert run.calls == whole.calls
        assert {one.state for one in last.talk.of(TaskEnded)} <= {"completed", "skipped"}


PERSISTED = """
import datetime, uuid
from crewai.flow.persistence import persist
from pydantic import BaseModel, Field

class Inner(BaseModel):
    when: datetime.datetime
    tags: set[str]

class Now(BaseModel):
    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    who: uuid.UUID | None = None
    inner: Inner | None = None

@persist()
class Work(Flow[Now]):
    _skip_auto_memory = True

    @start()
    def begin(self):
        self.state.who = uuid.UUID(int=7)
        self.state.inner = Inner(when=datetime.datetime(2026, 1, 2), tags={"a"})
        note("ran", "begin")

    @listen(begin)
    def end(self):
        Counted(model="counted").call("[end]")
        inner = self.state.inner
        return [type(one).__name__ for one in (self.state.who, inner, inner.when, inner.tags)]
"""


def test_a_persisted_state_has_its_types_after_a_kill(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_flow(zygote, tmp_path, PERSISTED)
    run.interrupted("end")
    answer = run.attempt().answer()
    assert isinstance(answer, Succeeded), answer
    assert json.loads(str(answer.structured or answer.output)) == ["UUID", "Inner", "datetime", "set"]
    assert run.noted("ran") == ["begin"]
