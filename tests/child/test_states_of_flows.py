"""What the methods of a flow have made of it is there again in the next attempt, or they are run again and say so."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.crews import flow_project
from projects_for_tests.interrupted import MODEL, Kickoff
from windlass_child.protocol.messages import JournalAppend, Project, Succeeded, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

HEAD = '''
import collections, dataclasses
from pydantic import BaseModel, PrivateAttr


def say(step):
    """One call of the model."""
    return Counted(model="counted").call(f"[{step}]").partition("Final Answer: ")[2]


def first():
    return os.environ["ATTEMPT"] == "1"


class Live:
    pass


class Base(Flow):
    _skip_auto_memory = True
'''


def kickoff(zygote: DrivenZygote, folder: Path, code: str) -> Kickoff:
    project = flow_project(folder / "project", MODEL + HEAD + textwrap.dedent(code))
    return Kickoff(zygote, Project("flow", str(project), "main"), folder)


def change(folder: Path, before: str, after: str) -> None:
    """The project gets other code between two attempts."""
    main = folder / "project" / "main.py"
    main.write_text(main.read_text("utf-8").replace(before, after), "utf-8")


def result(child: DrivenChild) -> Any:
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    return answer.output if answer.structured is None else json.loads(answer.structured)


def warned(child: DrivenChild) -> list[tuple[str, str]]:
    return [(warning.code, warning.message) for warning in child.talk.of(Warned)]


KINDS_OF_STATE = {
    "a dictionary with keys of any kind": """
        class Kinds(Base):
            @start()
            def a(self):
                self.state[1], self.state["1"], self.state[(2, 3)] = "one", "text one", "pair"
                self.state["gone"] = 1

            @listen(a)
            def b(self):
                del self.state["gone"]
                return say("b")

            @listen(b)
            def c(self):
                say("c")
                return repr({name: value for name, value in self.state.items() if name != "id"})
    """,
    "a model with private fields": """
        class State(BaseModel):
            model_config = {"extra": "allow"}
            n: int = 0
            words: list = []
            _hidden: list = PrivateAttr(default_factory=list)

        class Kinds(Flow[State]):
            _skip_auto_memory = True

            @start()
            def a(self):
                self.state.n = 1
                self.state.words.append("in place")
                self.state._hidden.append("h")
                self.state.more = {1}

            @listen(a)
            def c(self):
                say("c")
                kept = sorted(self.state.model_fields_set - {"id"})
                return repr([self.state.n, self.state.words, self.state._hidden, self.state.more, kept])
    """,
    "attributes of the flow": """
        class Kinds(Base):
            declared: list = []
            _private: int = 0

            def __init__(self, **given):
                super().__init__(**given)
                self.made = {"in": "init"}
                self.live = Live()

            @start()
            def a(self):
                self.notes = ["x"]
                self.declared.append(1)
                self._private = 2
                self.made["in"] = "a"

            @listen(a)
            def c(self):
                say("c")
                return repr([self.notes, self.declared, self._private, self.made, type(self.live).__name__])
    """,
    "containers of the standard library": """
        class Kinds(Base):
            @start()
            def a(self):
                self.state["by"] = collections.defaultdict(list, {"a": [1]})
                self.state["last"] = collections.deque([1, 2], 2)

            @listen(a)
            def c(self):
                say("c")
                self.state["by"]["b"].append(2)
                self.state["last"].append(3)
                return repr([self.state["by"], self.state["last"]])
    """,
    "a dataclass with a field that was never set": """
        @dataclasses.dataclass
        class Unset:
            x: int = 1
            y: int = dataclasses.field(init=False)

        class Kinds(Base):
            @start()
            def a(self):
                self.state["unset"] = Unset(5)

            @listen(a)
            def c(self):
                say("c")
                return repr(vars(self.state["unset"]))
    """,
    "a part of the state that is returned": """
        class Kinds(Base):
            @start()
            def a(self):
                self.state["items"] = [{"v": 1}]
                return self.state["items"]

            @listen(a)
            def b(self, items):
                items.append({"v": 2})
                return items

            @listen(b)
            def c(self, items):
                say("c")
                items.append({"v": 3})
                return repr(self.state["items"])
    """,
    "the state that is returned": """
        class State(BaseModel):
            words: list = []

        class Kinds(Flow[State]):
            _skip_auto_memory = True

            @start()
            def a(self):
                self.state.words.append(1)
                return self.state

            @listen(a)
            def c(self, state):
                say("c")
                state.words.append(2)
                return repr(self.state.words)
    """,
}


@pytest.mark.parametrize("name", KINDS_OF_STATE)
def test_a_flow_finds_what_its_finished_methods_made(zygote: DrivenZygote, tmp_path: Path, name: str) -> None:
    code = KINDS_OF_STATE[name]
    whole = result(kickoff(zygote, tmp_path / "whole", code).attempt())
    run = kickoff(zygote, tmp_path / "killed", code)
    run.interrupted("c")
    child = run.attempt()
    assert result(child) == whole
    assert {code for code, _ in warned(child)} <= {"event_not_told"}
    assert len(child.talk.of(JournalAppend)) == 1, "no other method is run again"


def test_attributes_that_can_not_be_kept_are_told(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    class Lost(Base):
        @start()
        def a(self):
            self.client, self.notes = Live(), ["x"]
            return say("a")

        @listen(a)
        def b(self):
            self.client = Live()
            return [self.notes, hasattr(self, "client"), say("b")]
    """
    run = kickoff(zygote, tmp_path, code)
    ((code, message),) = warned(run.interrupted("b"))
    assert code == "flow_attributes_not_kept"
    assert message.startswith(
        "the attribute client of the flow will not be there if the kickoff is interrupted now: a Live"
    )
    assert result(run.attempt()) == [["x"], True, "b of attempt 2"]
    assert run.calls == {"a": 1, "b": 1}


BESIDE = """
class Beside(Base):
    @start()
    def s(self):
        self.state["x"] = [say("s")[0]]

    @listen(s)
    async def b(self):
        await asyncio.sleep(0.2)
        self.state["x"].append(say("b")[0])
        return Live()

    @listen(b)
    def c(self):
        self.state["x"].append(say("c")[0])

    @listen(s)
    def d(self):
        self.state["x"].append(say("d")[0])

    @listen(and_(c, d))
    def e(self):
        return self.state["x"] + [say("e")[0]]
"""


def test_a_method_is_run_again_where_the_state_is_not_the_one_that_it_changed(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    run = kickoff(zygote, tmp_path, BESIDE)
    run.interrupted("d", journaled=3)
    run.interrupted("e")
    child = run.attempt()
    assert result(child) == ["s", "d", "b", "c", "e"]
    assert run.calls == {"s": 1, "b": 3, "c": 2, "d": 1, "e": 1}, "b can't be kept"


def test_what_follows_a_method_that_can_not_be_kept_is_not_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    class Follows(Base):
        @start()
        def a(self):
            self.state["x"] = [say("a")[0]]
            return Live()

        @listen(a)
        def b(self):
            self.state["x"].append(say("b")[0])

        @listen(b)
        def c(self):
            return self.state["x"] + [say("c")]
    """
    run = kickoff(zygote, tmp_path, code)
    child = run.interrupted("c")
    assert not any("attribute" in entry.record for entry in child.talk.of(JournalAppend)), "none is the project's"
    run.interrupted("c")
    assert result(run.attempt()) == ["a", "b", "c of attempt 3"]
    assert run.calls == {"a": 3, "b": 1, "c": 1}


CHANGED = """
@dataclasses.dataclass
class Thing:
    v: int

class Changed(Base):
    @start()
    def a(self):
        say("a")
        self.state["n"] = 100 if first() else 2000
        OUTPUT

    @listen(a)
    def b(self):
        self.state["n"] += 5
        say("b")

    @listen(b)
    def c(self):
        say("c")
        return self.state["n"]
"""


@pytest.mark.parametrize("output", ["return Thing(5)", "self.state['thing'] = Thing(5)", "self.thing = Thing(5)"])
def test_all_that_followed_what_can_not_be_read_is_run_again(zygote: DrivenZygote, tmp_path: Path, output: str) -> None:
    run = kickoff(zygote, tmp_path, CHANGED.replace("OUTPUT", output))
    run.interrupted("c")
    change(tmp_path, "Thing", "Renamed")
    child = run.interrupted("b")
    assert warned(child) == [
        (
            "journal_unfit",
            "the method a is run again, and so are 1 that came after it: there is no class main:Thing",
        )
    ]
    child = run.attempt()
    assert result(child) == 2005
    assert warned(child) == []
    assert run.calls == {"a": 2, "b": 1 + 1, "c": 1}


def test_a_state_that_has_another_form_now_is_made_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    class State(BaseModel):
        old: int = 0

    class Formed(Flow[State]):
        _skip_auto_memory = True

        @start()
        def a(self):
            self.state.old = 7
            say("a")

        @listen(a)
        def b(self):
            say("b")
            return self.state.old
    """
    run = kickoff(zygote, tmp_path, code)
    run.interrupted("b")
    change(tmp_path, "old", "newer")
    child = run.attempt()
    assert result(child) == 7
    assert warned(child) == [("journal_unfit", "the method a is run again: the field old is not there any more")]
    assert run.calls == {"a": 2, "b": 1}


def test_code_of_the_project_that_fails_while_it_is_kept_or_made_again_fails_no_run(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = """
    class Hashed(BaseModel):
        x: int
        def __hash__(self):
            if not first():
                raise ZeroDivisionError("no hash")
            return 1

    @dataclasses.dataclass
    class Unsaid:
        x: int = dataclasses.field(init=False)

        def __getattr__(self, name):
            if name == "x":
                raise ZeroDivisionError("not said")
            raise AttributeError(name)

    class Failing(Base):
        @start()
        def a(self):
            say("a")
            return {Hashed(x=1)} if first() else None

        @listen(a)
        def b(self):
            say("b")
            return Unsaid() if first() else "b"

        @listen(b)
        def c(self):
            return say("c")
    """
    run = kickoff(zygote, tmp_path, code)
    assert "not_journaled" in [code for code, _ in warned(run.interrupted("c"))]
    child = run.attempt()
    assert result(child) == "c of attempt 2"
    assert warned(child) == [("journal_unfit", "the method a is run again: no hash")]
    assert run.calls == {"a": 2, "b": 2, "c": 1}
