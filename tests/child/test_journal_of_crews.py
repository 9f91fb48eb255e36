"""A crew whose process is killed goes on in the next attempt where it was: no finished task is run again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.interrupted import kickoff_of_crew, kickoff_of_function, restored_tasks
from windlass_child.protocol.messages import Event, JournalAppend, Succeeded, TaskEnded, TaskStarted, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

THREE = """
@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        tasks = [step("a", agent), step("b", agent), step("c", agent)]
        return Crew(agents=[agent], tasks=tasks)
"""


@pytest.mark.parametrize(("at", "finished"), [("a", []), ("b", ["a"]), ("c", ["a", "b"])])
def test_a_crew_that_is_killed_in_a_task_begins_again_with_that_task(
    zygote: DrivenZygote, tmp_path: Path, at: str, finished: list[str]
) -> None:
    run = kickoff_of_crew(zygote, tmp_path, THREE)
    run.interrupted(at)
    child = run.attempt()
    assert child.answer() == Succeeded("c of attempt 2")
    assert run.calls == dict.fromkeys("abc", 1)
    assert restored_tasks(child) == finished
    assert [started.name for started in child.talk.of(TaskStarted)] == [name for name in "abc" if name not in finished]
    assert not {ended.position for ended in child.talk.of(TaskEnded)} & {"abc".index(name) for name in finished}


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("lost", [False, True], ids=["committed", "not committed"])
def test_a_crew_that_is_killed_while_it_writes_loses_no_task_that_is_committed(
    zygote: DrivenZygote, tmp_path: Path, number: int, *, lost: bool
) -> None:
    run = kickoff_of_crew(zygote, tmp_path, THREE)
    run.interrupted_in_writing(number, lost=lost)
    assert sum(run.calls.values()) == number, "the next task waits until it is written"
    assert isinstance(run.attempt().answer(), Succeeded)
    again = "abc"[number - 1]
    assert run.calls == {name: 2 if lost and name == again else 1 for name in "abc"}


def test_a_crew_that_is_killed_in_every_task_runs_each_once(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_crew(zygote, tmp_path, THREE)
    for name in "abc":
        run.interrupted(name)
    assert run.attempt().answer() == Succeeded("c of attempt 4")
    assert run.calls == dict.fromkeys("abc", 1)
    numbers = [entry.number for entry in run.journal()]
    assert numbers == [1, 2, 3], "they count on from attempt to attempt"


def test_a_crew_that_had_finished_gives_its_result_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_crew(zygote, tmp_path, THREE)
    run.attempt().exited()
    child = run.attempt()
    assert child.answer() == Succeeded("c of attempt 1")
    assert run.calls == dict.fromkeys("abc", 1)
    assert child.talk.of(JournalAppend) == []


RICH = """
from pydantic import BaseModel

class Answer(BaseModel):
    number: int

def told(output):
    note("callback", output.name)

def checked(output):
    note("guardrail", output.raw)
    return True, output.raw + ", checked"

@CrewBase
class Work:
    @before_kickoff
    def begin(self, inputs):
        note("before", inputs["topic"])
        return inputs

    @after_kickoff
    def end(self, result):
        return {
            "outputs": [output.raw for output in result.tasks_output],
            "number": self.second.output.pydantic.number,
            "kind": type(self.second.output.pydantic).__name__,
            "json": self.third.output.json_dict,
            "file": open("first.txt").read(),
        }

    @crew
    def crew(self):
        agent = one()
        first = step("a", agent, guardrail=checked, callback=told, output_file="first.txt",
                     description="Look into {topic} [a]")
        self.second = step("b", agent, output_pydantic=Answer)
        self.third = step("c", agent, output_json=Answer)
        last = step("d", agent, context=[first, self.second], description="Put together: [d]")
        return Crew(agents=[agent], tasks=[first, self.second, self.third, last], task_callback=told)
"""


def test_what_a_finished_task_gave_is_what_it_gave_in_the_first_attempt(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_crew(zygote, tmp_path, RICH, inputs={"topic": "parrots"})
    run.interrupted("d", answers={"b": '{"number": 7}', "c": '{"number": 8}'})
    answer = run.attempt(answers={"b": '{"number": 1}'}).answer()
    assert isinstance(answer, Succeeded)
    assert json.loads(answer.structured or "") == {
        "outputs": ["a of attempt 1, checked", '{"number": 7}', '{"number": 8}', "d of attempt 2"],
        "number": 7,
        "kind": "Answer",
        "json": {"number": 8},
        "file": "a of attempt 1, checked",
    }
    assert run.noted("guardrail") == ["a of attempt 1"]
    assert run.noted("callback") == ["a", "b", "c", "d"]
    assert run.noted("before") == ["parrots", "parrots"], "these run in every attempt"


def test_later_tasks_are_given_the_outputs_of_finished_ones(zygote: DrivenZygote, tmp_path: Path) -> None:
    last = 'step("c", agent, callback=lambda _: note("context", last.prompt_context))'
    code = THREE.replace('step("c", agent)', last)
    code = code.replace("        return Crew(", "        last = tasks[-1]\n        return Crew(")
    run = kickoff_of_crew(zygote, tmp_path, code)
    run.interrupted("c")
    run.attempt().exited()
    context = "\n".join(run.noted("context"))
    assert "a of attempt 1" in context
    assert "attempt 2" not in context


def test_an_output_is_kept_once(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_crew(zygote, tmp_path, THREE)
    child = run.attempt(answers={"b": "x" * 100_000})
    child.exited()
    entries = child.talk.of(JournalAppend)
    assert [entry.position for entry in entries] == [0, 1, 2]
    assert all(len(entry.record) < 1000 for entry in entries)
    assert "x" * 70_000 not in json.dumps([event.payload for event in child.talk.of(Event)]), "but their beginnings"
    assert child.talk.of(TaskEnded)[1].output == "x" * 100_000


def test_a_conditional_task_that_was_skipped_stays_skipped(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    def wanted(output):
        note("asked", "condition")
        return os.environ["ATTEMPT"] == "2"

    @CrewBase
    class Work:
        @crew
        def crew(self):
            agent = one()
            maybe = ConditionalTask(name="b", description="Do [b]", expected_output="W", agent=agent, condition=wanted)
            return Crew(agents=[agent], tasks=[step("a", agent), maybe, step("c", agent), step("d", agent)])
    """
    run = kickoff_of_crew(zygote, tmp_path, code)
    first = run.interrupted("d")
    assert [ended.state for ended in first.talk.of(TaskEnded)] == ["completed", "skipped", "completed"]
    child = run.attempt()
    assert child.answer() == Succeeded("d of attempt 2")
    assert run.calls == dict.fromkeys("acd", 1)
    assert run.noted("asked") == ["condition"]
    assert restored_tasks(child) == ["a", "b", "c"]
    assert [ended.position for ended in child.talk.of(TaskEnded)] == [3]


@pytest.mark.parametrize("native", [False, True], ids=["threads", "akickoff"])
def test_a_task_that_finished_beside_one_that_did_not_is_not_run_again(
    zygote: DrivenZygote, tmp_path: Path, *, native: bool
) -> None:
    code = """
    def run(native):
        agents = [one(role=name) for name in "abc"]
        tasks = [step(name, agent, async_execution=name != "c") for name, agent in zip("abc", agents)]
        crew = Crew(agents=agents, tasks=tasks)
        return str(asyncio.run(crew.akickoff()) if native else crew.kickoff())
    """
    run = kickoff_of_function(zygote, tmp_path, code, inputs={"native": native})
    run.interrupted("a", journaled=1)
    assert run.calls == {"b": 1}
    assert run.attempt().answer() == Succeeded("c of attempt 2")
    assert run.calls == dict.fromkeys("abc", 1)


def test_crews_that_a_crew_kicks_off_are_journaled_too_and_keep_their_task_records(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = """
    @CrewBase
    class Work:
        @before_kickoff
        def elsewhere(self, inputs):
            agent = one(role="other")
            other = Crew(agents=[agent], tasks=[step("x", agent), step("y", agent)])
            note("given", str(other.kickoff()))
            return inputs

        @crew
        def crew(self):
            agent = one()
            return Crew(agents=[agent], tasks=[step("a", agent), step("b", agent)])
    """
    run = kickoff_of_crew(zygote, tmp_path, code)
    first = run.interrupted("y")
    assert [started.position for started in first.talk.of(TaskStarted)] == [2, 3]
    second = run.interrupted("b")
    begun = [(started.name, started.position) for started in second.talk.of(TaskStarted)]
    assert begun == [("y", 3), ("a", 0), ("b", 1)]
    assert run.attempt().answer() == Succeeded("b of attempt 3")
    assert run.calls == dict.fromkeys("xyab", 1)
    assert set(run.noted("given")) == {"y of attempt 2"}


def test_a_crew_that_is_kicked_off_several_times_is_told_apart_by_its_inputs_and_their_order(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = """
    def run():
        crew, other = [Crew(agents=[one()], tasks=[step("a", one(), description="Do [{step}]")]) for _ in range(2)]
        first = [str(crew.kickoff(inputs={"step": "same"})) for _ in range(2)]
        return first + [str(output) for output in other.kickoff_for_each([{"step": name} for name in "pqr"])]
    """
    run = kickoff_of_function(zygote, tmp_path, code)
    run.interrupted("q")
    answer = run.attempt().answer()
    assert isinstance(answer, Succeeded)
    assert json.loads(answer.structured or "") == [
        *("same of attempt 1", "same of attempt 1", "p of attempt 1", "q of attempt 2", "r of attempt 2")
    ]
    assert run.calls == {"same": 2, "p": 1, "q": 1, "r": 1}


def test_crews_that_run_side_by_side_are_not_taken_for_one_another(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    def run():
        agent = one()
        tasks = [step("a", agent, description="Do [{step}]"), step("z", agent, description="Do [{step}z]")]
        names = "pqrs" if os.environ["ATTEMPT"] == "1" else "srqp"
        crew = Crew(agents=[agent], tasks=tasks)
        outputs = asyncio.run(crew.kickoff_for_each_async([{"step": name} for name in names]))
        return sorted(output.raw for output in outputs)
    """
    run = kickoff_of_function(zygote, tmp_path, code)
    run.interrupted("rz", journaled=7)
    answer = run.attempt().answer()
    assert isinstance(answer, Succeeded)
    assert json.loads(answer.structured or "") == [
        *("pz of attempt 1", "qz of attempt 1", "rz of attempt 2", "sz of attempt 1")
    ]
    assert set(run.calls.values()) == {1}


def test_a_crew_with_a_manager_goes_on_too(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = THREE.replace("tasks=tasks)", "tasks=tasks, process='hierarchical', manager_llm=Counted(model='manager'))")
    run = kickoff_of_crew(zygote, tmp_path, code)
    run.interrupted("c")
    assert run.attempt().answer() == Succeeded("c of attempt 2")
    assert run.calls == dict.fromkeys("abc", 1)


def test_a_crew_that_is_another_now_begins_anew_and_says_so(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = THREE.replace('step("b", agent)', 'step("b", agent, description=f"Since {os.environ[\'ATTEMPT\']} [b]")')
    run = kickoff_of_crew(zygote, tmp_path, code)
    run.interrupted("c")
    child = run.attempt()
    assert child.answer() == Succeeded("c of attempt 2")
    assert run.calls == {"a": 2, "b": 2, "c": 1}
    (warned,) = child.talk.of(Warned)
    assert warned.code == "journal_unused"
    assert warned.message.startswith("2 finished steps of an earlier attempt did not occur in this attempt")


def test_an_output_that_is_not_the_one_that_was_journaled_is_made_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_of_crew(zygote, tmp_path, THREE)
    run.interrupted("c")
    run.outputs[0] = "another"
    child = run.attempt()
    assert child.answer() == Succeeded("c of attempt 2")
    assert run.calls == {"a": 2, "b": 1, "c": 1}
    (warned,) = child.talk.of(Warned)
    assert (warned.code, warned.message) == (
        "journal_unfit",
        "the task a is run again: its output is not the one that was journaled",
    )


def test_structured_output_that_can_not_be_made_again_is_told_and_its_task_run_again(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = """
    from pydantic import BaseModel

    class Other(BaseModel):
        text: str

    def checked(output):
        output.pydantic = Other(text=output.raw)
        return True, output

    @CrewBase
    class Work:
        @crew
        def crew(self):
            agent = one()
            return Crew(agents=[agent], tasks=[step("a", agent, guardrail=checked), step("b", agent)])
    """
    run = kickoff_of_crew(zygote, tmp_path, code)
    child = run.interrupted("b")
    (warned,) = child.talk.of(Warned)
    assert warned.code == "not_journaled"
    assert warned.message.startswith("the task a is run again if the kickoff is interrupted after it: ")
    assert run.attempt().answer() == Succeeded("b of attempt 2")
    assert run.calls == {"a": 2, "b": 1}


def test_a_process_that_crew_code_forks_does_not_wait_for_the_journal(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    def kick():
        agent = one()
        return str(Crew(agents=[agent], tasks=[step("a", agent)]).kickoff())

    def run():
        pid = os.fork()
        if pid == 0:
            try:
                kick()
            finally:
                os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    """
    run = kickoff_of_function(zygote, tmp_path, code)
    assert run.attempt().answer() == Succeeded("7", "7")
    assert run.calls == {"a": 1}


AFTERWARDS = """
@CrewBase
class Work:
    @after_kickoff
    def end(self, result):
        note("after", result.raw)
        return result

    @crew
    def crew(self):
        agent = one()
        return Crew(agents=[agent], tasks=[step("a", agent), step("b", agent)])
"""

PLAIN_CALLBACK = """
@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        made = Crew(agents=[agent], tasks=[step("a", agent), step("b", agent)])
        made.after_kickoff_callbacks.append(lambda result: note("after", result.raw) or result)
        return made
"""


LISTENER = """
from crewai.events import CrewKickoffCompletedEvent, crewai_event_bus

@crewai_event_bus.on(CrewKickoffCompletedEvent)
def tell(source, event):
    note("after", event.output.raw)
""" + THREE.replace(', step("c", agent)', "")

HOOK = """
from crewai.hooks import InterceptionPoint, register_hook

register_hook(InterceptionPoint.OUTPUT, lambda context: note("after", context.payload.raw))
""" + THREE.replace(', step("c", agent)', "")

SUBCLASS = """
class Telling(Crew):
    def kickoff(self, *arguments, **named):
        result = super().kickoff(*arguments, **named)
        note("after", result.raw)
        return result
""" + THREE.replace(', step("c", agent)', "").replace("return Crew(", "return Telling(")

AFTER_TWO_TASKS = {
    "decorated": AFTERWARDS,
    "plain callback": PLAIN_CALLBACK,
    "listener": LISTENER,
    "hook": HOOK,
    "subclass": SUBCLASS,
}


@pytest.mark.parametrize("code", AFTER_TWO_TASKS.values(), ids=AFTER_TWO_TASKS)
def test_code_of_the_project_after_the_last_task_waits_until_the_task_is_committed(
    zygote: DrivenZygote, tmp_path: Path, code: str
) -> None:
    run = kickoff_of_crew(zygote, tmp_path, code)
    run.interrupted_in_writing(2, lost=False)
    run.attempt().exited()
    assert "b of attempt 1" in run.noted("after")
