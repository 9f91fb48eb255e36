"""Crews that are kicked off by callbacks, guardrails and tools of a task, and in threads: each goes on as itself."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import flow_project
from projects_for_tests.interrupted import MODEL, Kickoff, kickoff_of_crew, kickoff_of_function, restored_tasks
from windlass_child.protocol.messages import JournalAppend, Project, Succeeded, TaskEnded, TaskStarted, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

INNER = """
def inner(of="inner", word="x"):
    agent = one(role="inner")
    tasks = [Task(name=of, description=f"Do [{word}]", expected_output="Words", agent=agent,
                  callback=lambda output: note("inner", of + ": " + output.raw))]
    return Crew(agents=[agent], tasks=tasks).kickoff()
"""

OUTER = (
    INNER
    + """
class Kicks:
    def __init__(self, of):
        self.of = of
    def __call__(self, output):
        inner(self.of)
        return True, output

@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        tasks = [step(name, agent, WHERE=Kicks(name)) for name in "ab"]
        return Crew(agents=[agent], tasks=[*tasks, step("c", agent)])
"""
)


@pytest.mark.parametrize("where", ["callback", "guardrail"])
def test_a_crew_that_a_task_kicks_off_is_not_taken_for_that_of_another(
    zygote: DrivenZygote, tmp_path: Path, where: str
) -> None:
    code = OUTER.replace("WHERE=Kicks(name)", "guardrail=lambda output, of=name: Kicks(of)(output)")
    run = kickoff_of_crew(zygote, tmp_path, OUTER.replace("WHERE", where) if where == "callback" else code)
    run.interrupted("b")
    child = run.attempt()
    assert child.answer() == Succeeded("c of attempt 2")
    assert run.noted("inner") == ["a: x of attempt 1", "b: x of attempt 2"]
    assert run.calls == {"a": 1, "b": 1, "c": 1, "x": 2}
    assert not child.talk.of(Warned), "what was kicked off by a finished task is not missed"


def test_a_crew_that_an_unfinished_task_had_kicked_off_is_not_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = OUTER.replace("WHERE=Kicks(name)", "callback=lambda _: (inner(), inner(word='y'))")
    run = kickoff_of_crew(zygote, tmp_path, code)
    run.interrupted("y")
    second = run.interrupted("c")
    assert restored_tasks(second) == ["inner"]
    assert run.attempt().answer() == Succeeded("c of attempt 3")
    assert run.calls == {"a": 2, "b": 1, "c": 1, "x": 2, "y": 2}, "the callback of a was not over"


def test_a_condition_that_kicks_off_a_crew_is_told_apart_from_others(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = INNER + textwrap.dedent("""
    @CrewBase
    class Work:
        @crew
        def crew(self):
            agent = one()
            def task(name, wanted):
                def condition(output):
                    return inner(name) and wanted
                return ConditionalTask(name=name, description=f"Do [{name}]", expected_output="W", agent=agent,
                                       condition=condition)
            tasks = [task("b", True), task("c", False), task("d", True), task("e", True)]
            return Crew(agents=[agent], tasks=[step("a", agent), *tasks])
    """)
    run = kickoff_of_crew(zygote, tmp_path, code)
    run.interrupted("d")
    assert run.attempt().answer() == Succeeded("e of attempt 2")
    assert run.noted("inner") == [*(f"{name}: x of attempt 1" for name in "bcd"), "e: x of attempt 2"]


def test_a_crew_in_a_native_asynchronous_task_is_told_apart_too(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = INNER + textwrap.dedent("""
    async def kicks(output):
        agent = one(role="inner")
        await Crew(agents=[agent], tasks=[step("x", agent)]).akickoff()

    def run():
        agent = one()
        tasks = [step(name, agent, callback=kicks) for name in "ab"]
        return str(asyncio.run(Crew(agents=[agent], tasks=tasks).akickoff()))
    """)
    run = kickoff_of_function(zygote, tmp_path, code)
    run.interrupted("b")
    assert run.attempt().answer() == Succeeded("b of attempt 2")
    assert run.calls == {"a": 1, "b": 1, "x": 2}


FLOW = """
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

pool = ThreadPoolExecutor(1)

def in_thread(of):
    thread = Thread(target=inner, args=[of])
    thread.start()
    thread.join()

def in_pool(of):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(inner, of).result()

def in_one_pool(of):
    list(pool.map(inner, [of]))

class Work(Flow):
    _skip_auto_memory = True
    @start()
    def a(self):
        KICKS("a")

    @listen(a)
    def b(self):
        Counted(model="counted").call("[b]")
        KICKS("b")
        Counted(model="counted").call("[c]")
        return "done"
"""


def kickoff_of_flow(zygote: DrivenZygote, folder: Path, kicks: str) -> Kickoff:
    code = MODEL + INNER + FLOW.replace("KICKS", kicks)
    return Kickoff(zygote, Project("flow", str(flow_project(folder / "project", code)), "main"), folder)


@pytest.mark.parametrize("kicks", ["in_thread", "in_pool", "in_one_pool"])
def test_a_crew_in_a_thread_belongs_to_the_method_that_started_it(
    zygote: DrivenZygote, tmp_path: Path, kicks: str
) -> None:
    run = kickoff_of_flow(zygote, tmp_path, kicks)
    run.interrupted("b")
    child = run.attempt()
    assert child.answer() == Succeeded("done")
    assert run.noted("inner") == ["a: x of attempt 1", "b: x of attempt 2"]
    assert not child.talk.of(Warned)


@pytest.mark.parametrize("kicks", ["in_thread", "in_pool", "in_one_pool"])
def test_a_crew_in_a_thread_of_a_method_that_did_not_finish_is_not_run_again(
    zygote: DrivenZygote, tmp_path: Path, kicks: str
) -> None:
    run = kickoff_of_flow(zygote, tmp_path, kicks)
    run.interrupted("c")
    assert run.attempt().answer() == Succeeded("done")
    assert run.noted("inner") == ["a: x of attempt 1", "b: x of attempt 1"]


def test_what_a_thread_runs_that_was_there_before_the_run_is_told_and_run_again(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = INNER + textwrap.dedent("""
    import queue, threading
    wanted, given = queue.Queue(), queue.Queue()

    def serve():
        while True:
            given.put(str(inner(wanted.get())))

    threading.Thread(target=serve, daemon=True).start()

    def run():
        wanted.put("a")
        said = given.get()
        Counted(model="counted").call("[b]")
        return said
    """)
    run = kickoff_of_function(zygote, tmp_path, code)
    first = run.interrupted("b")
    (warned,) = first.talk.of(Warned)
    assert warned.code == "not_journaled"
    assert "it was kicked off in a thread that was there before the run" in warned.message
    assert not first.talk.of(JournalAppend)
    assert run.attempt().answer() == Succeeded("x of attempt 2")


TWICE = """
@CrewBase
class Work:
    @after_kickoff
    def once_more(self, result):
        if self.topic == "first":
            self.topic = "second"
            return self.made.kickoff(inputs={"topic": "second"})
        return result

    @crew
    def crew(self):
        self.topic, agent = "first", one()
        tasks = [step(name, agent, description=f"Do {{topic}} [{name}]") for name in "ab"]
        self.made = Crew(agents=[agent], tasks=[*tasks, step("c", agent, description="Do [{topic}]")])
        return self.made
"""


def test_a_crew_that_kicks_itself_off_once_more_pays_for_each_task_once(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_crew(zygote, tmp_path, TWICE, inputs={"topic": "first"})
    first = run.interrupted("second")
    assert all(entry.output_elsewhere for entry in first.talk.of(JournalAppend)), "no output is kept twice"
    child = run.attempt()
    assert child.answer() == Succeeded("second of attempt 2")
    assert run.calls == {"a": 2, "b": 2, "first": 1, "second": 1}
    assert not child.talk.of(Warned)
    ended = [(one.position, one.output) for one in first.talk.of(TaskEnded)]
    assert [position for position, _ in ended] == [0, 1, 2, 3, 4], "each kickoff has task records of its own"
    assert [(one.position, one.name) for one in child.talk.of(TaskStarted)] == [(5, "c")]


def test_a_task_of_another_attempt_keeps_its_task_record_from_those_that_come_now(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = OUTER.replace("WHERE=Kicks(name)", "callback=lambda _, of=name: inner(of, os.environ['ATTEMPT'])")
    run = kickoff_of_crew(zygote, tmp_path, code.replace("Do [{word}]", "Do {word} [x]"))
    first = run.interrupted("b")
    assert [(one.position, one.name) for one in first.talk.of(TaskStarted)] == [(0, "a"), (3, "a"), (1, "b")]
    child = run.attempt()
    child.exited()
    assert [(one.position, one.name) for one in child.talk.of(TaskStarted)] == [(1, "b"), (4, "b"), (2, "c")]
