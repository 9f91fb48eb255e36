"""A function whose process is killed goes on in the next attempt with the step where it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.crews import WAIT_UNTIL_ASKED_TO_END
from projects_for_tests.interrupted import Kickoff, kickoff_of_function, restored_tasks
from windlass_child.protocol.messages import Abort, Succeeded, TaskEnded, TaskStarted, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

PAID = """
def paid(step, *_):
    if os.environ["STOP_AT"] == step:
        os.write(1, b"stopped\\n")
        time.sleep(600)
    note("calls", step)
    return f"{step} of attempt {os.environ['ATTEMPT']}"

async def paid_meanwhile(step, *_):
    if os.environ["STOP_AT"] == step:
        os.write(1, b"stopped\\n")
        await asyncio.sleep(600)
    return paid(step)
"""
THREE = """
def run(steps, place="Brest"):
    return [steps.run(name, paid, name, place) for name in "abc"]
"""


def started(child: DrivenChild) -> list[tuple[int, str | None]]:
    return [(one.position, one.name) for one in child.talk.of(TaskStarted) if one.position > 0]


def of_code(zygote: DrivenZygote, folder: Path, code: str, **inputs: Any) -> Kickoff:
    return kickoff_of_function(zygote, folder, PAID + code, inputs=inputs)


def structured(child: DrivenChild) -> Any:
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    return json.loads(answer.structured or "null")


@pytest.mark.parametrize(("at", "finished"), [("a", []), ("b", ["a"]), ("c", ["a", "b"])])
def test_a_function_that_is_killed_in_a_step_goes_on_with_that_step(
    zygote: DrivenZygote, tmp_path: Path, at: str, finished: list[str]
) -> None:
    run = of_code(zygote, tmp_path, THREE)
    run.interrupted(at)
    child = run.attempt()
    assert structured(child) == [f"{name} of attempt {1 if name in finished else 2}" for name in "abc"]
    assert run.calls == dict.fromkeys("abc", 1)
    assert restored_tasks(child) == finished
    left = [(place, name) for place, name in enumerate("abc", start=1) if name not in finished]
    assert started(child) == left
    assert [(end.position, end.state) for end in child.talk.of(TaskEnded)] == [
        *((place, "completed") for place, _ in left),
        (0, "completed"),
    ]
    assert child.talk.of(Warned) == []


THREE_TO_AWAIT = """
async def run(steps):
    return [await steps.arun(name, paid_meanwhile, name) for name in "abc"]
"""


@pytest.mark.parametrize("code", [THREE, THREE_TO_AWAIT], ids=["run", "arun"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_step_is_finished_when_it_is_written_and_not_before(
    zygote: DrivenZygote, tmp_path: Path, code: str, *, lost: bool
) -> None:
    run = of_code(zygote, tmp_path, code)
    run.interrupted_in_writing(2, lost=lost)
    assert run.calls == {"a": 1, "b": 1}, "the next one waits for it"
    assert structured(run.attempt()) == ["a of attempt 1", f"b of attempt {1 + lost}", "c of attempt 2"]


ORDER = """
from concurrent.futures import ThreadPoolExecutor

ORDER = "abcd" if os.environ["ATTEMPT"] == "1" else "dcba"
"""
IN_A_LOOP = """
async def run(steps):
    return await asyncio.gather(*(steps.arun("s", paid_meanwhile, name) for name in ORDER))
"""
IN_THREADS = """
def run(steps):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda name: steps.run("s", paid, name), ORDER))
"""


@pytest.mark.parametrize("code", [IN_A_LOOP, IN_THREADS], ids=["asyncio", "threads"])
def test_steps_side_by_side_are_told_apart_by_what_they_are_given(
    zygote: DrivenZygote, tmp_path: Path, code: str
) -> None:
    run = of_code(zygote, tmp_path, ORDER + code)
    run.interrupted("b", journaled=3)
    child = run.attempt()
    assert structured(child) == ["d of attempt 1", "c of attempt 1", "b of attempt 2", "a of attempt 1"]
    assert run.calls == dict.fromkeys("abcd", 1)
    assert started(child) == [(1, "s")], "a name has one task record"


def test_a_step_that_runs_several_times_is_told_apart_by_its_turn(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
def run(steps):
    return [steps.run("turn", lambda: paid(name)) for name in "abc"]
"""
    run = of_code(zygote, tmp_path, code)
    run.interrupted("c")
    assert structured(run.attempt()) == ["a of attempt 1", "b of attempt 1", "c of attempt 2"]
    assert run.calls == dict.fromkeys("abc", 1)


OUTER = """
def run(steps):
    def outer(name):
        return [steps.run("inner", paid, name + number) for number in "12"]

    return [steps.run("outer", outer, "a"), steps.run("outer", outer, "b"), steps.run("last", paid, "z")]
"""


@pytest.mark.parametrize(("at", "told"), [("a2", ["inner"]), ("b2", ["outer", "inner"]), ("z", ["outer", "outer"])])
def test_steps_within_steps_are_kept_too(zygote: DrivenZygote, tmp_path: Path, at: str, told: list[str]) -> None:
    run = of_code(zygote, tmp_path, OUTER)
    run.interrupted(at)
    child = run.attempt()
    assert isinstance(child.answer(), Succeeded)
    assert run.calls == dict.fromkeys(["a1", "a2", "b1", "b2", "z"], 1)
    assert restored_tasks(child) == told
    assert child.talk.of(Warned) == [], "what was within a finished step is not missed"


CREW = """
def crew(topic):
    agent = one()
    crew = Crew(agents=[agent], tasks=[step("a", agent), step("b", agent)])
    return crew.kickoff(inputs={"topic": topic}).raw

def run(steps):
    return [steps.run("crew", crew, "tides"), steps.run("after", paid, "c")]
"""


@pytest.mark.parametrize(("at", "told"), [("b", ["a"]), ("c", ["crew"])])
def test_a_crew_in_a_step_goes_on_where_it_was(zygote: DrivenZygote, tmp_path: Path, at: str, told: list[str]) -> None:
    run = of_code(zygote, tmp_path, CREW)
    run.interrupted(at)
    child = run.attempt()
    assert structured(child) == [f"b of attempt {1 if at == 'c' else 2}", "c of attempt 2"]
    assert run.calls == dict.fromkeys("abc", 1)
    assert restored_tasks(child) == told
    assert child.talk.of(Warned) == []


def test_a_function_that_is_asked_to_end_begins_no_other_step(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = f"""{WAIT_UNTIL_ASKED_TO_END}
def waits():
    os.write(1, b"waits\\n")
    wait_until_asked_to_end()

def run(steps):
    steps.run("waits", waits)
    steps.run("next", paid, "a")
"""
    run = of_code(zygote, tmp_path, code)
    child = run.attempt()
    zygote.until(lambda: "waits" in child.printed)
    child.talk.send(Abort("the kickoff was stopped on request"))
    assert child.failure().message == "the kickoff was stopped on request"
    assert run.calls == {}
