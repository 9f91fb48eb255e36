"""A flow whose process is killed goes on in the next attempt where it was: no finished method is run again."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.crews import flow_project
from projects_for_tests.interrupted import MODEL, Kickoff
from windlass_child.protocol.messages import Event, JournalAppend, Project, Succeeded, TaskEnded, TaskStarted, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

SHAPES = '''
from pydantic import BaseModel
from typing import Any


def say(step):
    """One call of the model."""
    return Counted(model="counted").call(f"[{step}]").partition("Final Answer: ")[2]


class Base(Flow):
    _skip_auto_memory = True
'''


def kickoff(zygote: DrivenZygote, folder: Path, code: str, **given: Any) -> Kickoff:
    project = flow_project(folder / "project", MODEL + SHAPES + textwrap.dedent(code))
    return Kickoff(zygote, Project("flow", str(project), "main"), folder, **given)


def restored(child: DrivenChild) -> list[str]:
    told = [event.payload["methods"] for event in child.talk.of(Event) if event.type == "journal_restored"]
    return [name for names in told for name in names]


def result(child: DrivenChild) -> Any:
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    return answer.output if answer.structured is None else json.loads(answer.structured)


CHAIN = """
class Chain(Base):
    @start()
    def a(self):
        self.state["seen"] = [say("a")]
        return {"from": "a"}

    @listen(a)
    def b(self, given):
        self.state["seen"].append(say("b"))
        return (given["from"], "b")

    @listen(b)
    def c(self, given):
        assert given == ("a", "b")
        self.state["seen"].append(say("c"))
        return self.state["seen"]
"""

ROUTED = """
class Routed(Base):
    @start()
    def a(self):
        return say("a")

    @router(a)
    def b(self, given):
        say("b")
        return "left" if given.startswith("a of") else "right"

    @listen("left")
    def c(self):
        return say("c")

    @listen("right")
    def wrong(self):
        return say("wrong")

    @listen(c)
    def d(self, given):
        return [given, say("d")]
"""

LOOP = """
class State(BaseModel):
    rounds: int = 0
    said: list[str] = []

class Loop(Flow[State]):
    _skip_auto_memory = True

    @start()
    def a(self):
        return say("a")

    @router(or_(a, "again"))
    def turn(self):
        self.state.rounds += 1
        self.state.said.append(say(f"turn{self.state.rounds}"))
        return "again" if self.state.rounds < 3 else "done"

    @listen("done")
    def end(self):
        say("end")
        return [self.state.rounds, len(self.state.said)]
"""

JOINED = """
class Joined(Base):
    @start()
    def a(self):
        return say("a")

    @start()
    def b(self):
        return say("b")

    @listen(a)
    def c(self):
        self.state["c"] = say("c")

    @listen(and_(b, c))
    def d(self):
        return [self.state["c"], say("d")]

    @listen(or_(b, d))
    def e(self):
        self.state["e"] = say("e")

    @listen(and_(d, e))
    def f(self):
        return [self.state["c"], self.state["e"], say("f")]
"""

SHAPED = {
    "chain": (CHAIN, {"a": 0, "b": 1, "c": 2}),
    "router": (ROUTED, {"a": 0, "b": 1, "c": 2, "d": 3}),
    "loop": (LOOP, {"a": 0, "turn1": 1, "turn2": 2, "turn3": 3, "end": 4}),
    "joined": (JOINED, {"a": 2, "b": 2, "c": 3, "d": 4, "e": 4, "f": 5}),
}
"""The steps of each, and how many others can be finished while it runs."""


@pytest.mark.parametrize(("shape", "at"), [(shape, at) for shape, (_, steps) in SHAPED.items() for at in steps])
def test_a_flow_that_is_killed_in_a_method_runs_no_finished_one_again(
    zygote: DrivenZygote, tmp_path: Path, shape: str, at: str
) -> None:
    code, steps = SHAPED[shape]
    expected = result(kickoff(zygote, tmp_path / "whole", code).attempt())
    run = kickoff(zygote, tmp_path / "killed", code)
    run.interrupted(at, journaled=steps[at])
    child = run.attempt()
    assert json.dumps(result(child)).replace("attempt 2", "attempt 1") == json.dumps(expected)
    assert run.calls == dict.fromkeys(steps, 1)
    assert len(restored(child)) == steps[at]
    started = [started.name for started in child.talk.of(TaskStarted)]
    assert len(started) == len(steps) - steps[at]


def test_a_flow_that_is_killed_in_every_method_runs_each_once(zygote: DrivenZygote, tmp_path: Path) -> None:
    for shape, (code, steps) in SHAPED.items():
        run = kickoff(zygote, tmp_path / shape, code)
        for at in steps:
            if at not in run.calls:
                run.interrupted(at)
        run.attempt().exited()
        assert set(run.calls) == set(steps)
        if shape != "joined":  # there, a kill may meet a method beside
            assert run.calls == dict.fromkeys(steps, 1), shape


def test_a_router_answers_what_it_answered_in_the_first_attempt(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = ROUTED.replace('given.startswith("a of")', 'os.environ["ATTEMPT"] == "1"')
    run = kickoff(zygote, tmp_path, code)
    run.interrupted("d")
    assert result(run.attempt()) == ["c of attempt 1", "d of attempt 2"]
    assert run.calls == dict.fromkeys("abcd", 1)


def test_a_flow_that_had_finished_gives_its_result_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff(zygote, tmp_path, LOOP)
    run.attempt().exited()
    child = run.attempt()
    assert result(child) == [3, 3]
    assert set(run.calls.values()) == {1}
    assert child.talk.of(JournalAppend) == []
    assert child.talk.of(TaskStarted) == []
    (finished,) = [event for event in child.talk.of(Event) if event.type == "flow_finished"]
    assert finished.payload["state"]["rounds"] == 3, "the state is there, too"


@pytest.mark.parametrize("lost", [False, True], ids=["committed", "not committed"])
def test_a_flow_that_is_killed_while_it_writes_loses_no_method_that_is_committed(
    zygote: DrivenZygote, tmp_path: Path, *, lost: bool
) -> None:
    run = kickoff(zygote, tmp_path, LOOP)
    run.interrupted_in_writing(3, lost=lost)
    assert run.calls == {"a": 1, "turn1": 1, "turn2": 1}, "the next method waits until it is written"
    assert result(run.attempt()) == [3, 3]
    assert run.calls == {"a": 1, "turn1": 1, "turn2": 2 if lost else 1, "turn3": 1, "end": 1}


def test_a_race_that_was_won_is_not_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    class Race(Base):
        @start()
        def a(self):
            return say("a")

        @listen(a)
        async def quick(self):
            return say("quick")

        @listen(a)
        async def slow(self):
            note("began", "slow")
            await asyncio.sleep(600)

        @listen(or_(quick, slow))
        def first(self, given):
            return say("first")

        @listen(first)
        def last(self, given):
            return [given, say("last")]
    """
    run = kickoff(zygote, tmp_path, code)
    first = run.interrupted("last", journaled=3)
    child = run.attempt()
    assert result(child) == ["first of attempt 1", "last of attempt 2"]
    assert run.calls == dict.fromkeys(["a", "quick", "first", "last"], 1)
    assert restored(child) == ["a", "quick", "first"]
    assert [ended.state for ended in child.talk.of(TaskEnded)] == ["completed", "skipped"]
    assert first.talk.of(TaskStarted)


def test_crews_in_a_method_go_on_where_they_were(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    def kick(*names):
        agent = one()
        return Crew(agents=[agent], tasks=[step(name, agent) for name in names]).kickoff()

    class Crews(Base):
        @start()
        def a(self):
            return kick("x", "y")

        @start()
        def b(self):
            return kick("p", "q")

        @listen(and_(a, b))
        def c(self):
            kick("x2", "y2")
            return kick("x2", "y2")
    """
    run = kickoff(zygote, tmp_path, code)
    run.interrupted("q", journaled=4)  # x, y, a; p
    run.interrupted("y2", journaled=3)  # q, b; x2
    child = run.attempt()
    assert result(child) == "y2 of attempt 3"
    assert run.calls == dict.fromkeys("xypq", 1) | {"x2": 2, "y2": 2}, "that crew is kicked off twice"
    assert [event.payload for event in child.talk.of(Event) if event.type == "journal_restored"] == [
        {"tasks": [], "methods": ["a", "b"]},
        {"tasks": ["x2"], "methods": []},
    ]
    assert not child.talk.of(Warned)
    entries = child.talk.of(JournalAppend)
    assert all((entry.position is None) == entry.key.startswith("task/") for entry in entries), "methods alone have one"


def test_outputs_and_state_come_back_as_what_they_were(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    import dataclasses, datetime, enum

    class Kind(enum.Enum):
        LEFT = "left"

    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int

    class Note(BaseModel):
        text: str
        at: datetime.date

    class Typed(BaseModel):
        note: Note | None = None
        points: set[Point] = set()
        extra: dict[int, Any] = {}

        model_config = {"extra": "allow"}

    class Types(Flow[Typed]):
        _skip_auto_memory = True

        @start()
        def a(self):
            self.state.note = Note(text="é", at=datetime.date(2020, 2, 29))
            self.state.points = {Point(1), Point(2)}
            self.state.extra = {1: b"bytes", 2: (1, 2.5, None)}
            self.state.more = [Kind.LEFT]
            agent = one()
            return Crew(agents=[agent], tasks=[step("a", agent)]).kickoff()

        @router(a)
        def b(self, given):
            return Kind.LEFT

        @listen("left")
        def c(self):
            say("c")
            made = self.method_outputs
            note = self.state.note
            return repr([made[0].raw, type(made[0]).__name__, made[1], note, sorted(p.x for p in self.state.points),
                         self.state.extra, self.state.more, type(self.state.points).__name__])
    """
    whole = result(kickoff(zygote, tmp_path / "whole", code).attempt())
    run = kickoff(zygote, tmp_path / "killed", code)
    run.interrupted("c")
    assert result(run.attempt()) == whole
    assert run.calls == {"a": 1, "c": 1}


def test_what_can_not_be_kept_is_told_and_that_method_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    class Live:
        pass

    class Kept(Base):
        @start()
        def a(self):
            say("a")
            return Live()

        @listen(a)
        def b(self, given):
            assert isinstance(given, Live)
            self.state["b"] = say("b")

        @listen(b)
        def c(self):
            return [self.state["b"], say("c")]
    """
    run = kickoff(zygote, tmp_path, code)
    child = run.interrupted("c")
    (warned,) = child.talk.of(Warned)
    assert (warned.code, warned.message) == (
        "not_journaled",
        "the method a is run again if the kickoff is interrupted after it: a Live has no form in the journal",
    )
    assert result(run.attempt()) == ["b of attempt 1", "c of attempt 2"]
    assert run.calls == {"a": 2, "b": 1, "c": 1}


def test_methods_that_are_no_more_asked_for_are_told(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff(zygote, tmp_path, CHAIN)
    run.interrupted("c")
    main = tmp_path / "project" / "main.py"
    main.write_text(main.read_text().replace("def b(", "def other(").replace("@listen(b)", "@listen(other)"))
    child = run.attempt()
    assert result(child) == ["a of attempt 1", "b of attempt 2", "c of attempt 2"]
    (warned,) = child.talk.of(Warned)
    assert warned.code == "journal_unused"
    assert warned.message.startswith("a finished step of an earlier attempt did not occur in this attempt")


def test_a_thousand_methods_cost_a_thousand_times_what_one_costs(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    class Many(Base):
        max_method_calls: int = 2000

        @start()
        def a(self):
            self.state["said"] = []

        @router(or_(a, "again"))
        def turn(self):
            self.state["said"].append("x" * 100)
            if len(self.state["said"]) == 990:
                say("turn")
            return "again" if len(self.state["said"]) < 1000 else "done"

        @listen("done")
        def end(self):
            return len(self.state["said"])
    """
    run = kickoff(zygote, tmp_path, code)
    child = run.interrupted("turn")
    entries = child.talk.of(JournalAppend)
    assert len(entries) == 990
    assert max(len(entry.record) for entry in entries) < 1000
    assert max(len(json.dumps(event.payload)) for event in child.talk.of(Event)) < 70_000
    child = run.attempt()
    assert result(child) == 1000
    assert len(child.talk.of(JournalAppend)) == 12
