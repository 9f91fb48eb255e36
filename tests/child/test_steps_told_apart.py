"""No step is given what another one gave, in whatever order an attempt begins them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.interrupted import Kickoff, kickoff_of_function
from windlass_child.protocol.messages import Succeeded, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

BACKWARDS = """
import dataclasses, datetime, enum, pathlib, threading
from pydantic import BaseModel

class Model(BaseModel):
    name: str

@dataclasses.dataclass
class Record:
    name: str

class Letter(enum.Enum):
    A, B, C = "abc"

class Plain:
    def __init__(self, name):
        self.name = name

def name_of(item):
    if isinstance(item, dict):
        return next(iter(item.values()))
    return getattr(item, "name", str(item)).lower()

def paid(item):
    name = name_of(item)
    if os.environ["STOP_AT"] == name:
        os.write(1, b"stopped\\n")
        time.sleep(600)
    note("calls", name)
    return f"{name} of attempt {os.environ['ATTEMPT']}"

def backwards(items):
    \"\"\"In another order in each attempt.\"\"\"
    return items if os.environ["ATTEMPT"] == "1" else items[::-1]
"""

ITEMS = {
    "models": "[Model(name=name) for name in 'abc']",
    "dataclasses": "[Record(name) for name in 'abc']",
    "enums": "list(Letter)",
    "paths": "[pathlib.Path(name) for name in 'abc']",
    "keys that are no text": "[{(1, 2): name} for name in 'abc']",
    "beside an object": "[{'plain': name, 'object': Plain('x')} for name in 'abc']",
}
IN_ORDER = """
def run(steps):
    return {name_of(item): steps.run("s", paid, item) for item in backwards(ITEMS)}
"""


def of_code(zygote: DrivenZygote, folder: Path, code: str) -> Kickoff:
    return kickoff_of_function(zygote, folder, BACKWARDS + code, inputs={})


def given(child: DrivenChild) -> Any:
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    return json.loads(answer.structured or "null")


def warnings(child: DrivenChild) -> list[str]:
    return [f"{one.code}: {one.message}" for one in child.talk.of(Warned)]


@pytest.mark.parametrize("items", ITEMS.values(), ids=ITEMS)
def test_a_step_is_known_by_the_values_that_it_is_given(zygote: DrivenZygote, tmp_path: Path, items: str) -> None:
    run = of_code(zygote, tmp_path, IN_ORDER.replace("ITEMS", items))
    run.interrupted("c")
    child = run.attempt()
    assert given(child) == {"c": "c of attempt 2", "b": "b of attempt 1", "a": "a of attempt 1"}
    assert run.calls == dict.fromkeys("abc", 1)
    assert warnings(child) == []


def test_steps_of_objects_that_cannot_be_told_apart_are_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = of_code(zygote, tmp_path, IN_ORDER.replace("ITEMS", "[Plain(name) for name in 'abc']"))
    first = run.interrupted("c")
    (told,) = warnings(first)
    assert told.startswith(
        "not_journaled: the step s is run again if the kickoff is interrupted after it: another attempt"
    )
    child = run.attempt()
    assert given(child) == {"c": "c of attempt 2", "b": "b of attempt 2", "a": "a of attempt 2"}
    third = run.attempt()
    assert set(given(third).values()) == {f"{name} of attempt 3" for name in "abc"}


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        ("paid, Plain('a')", False),
        ("lambda plain, name: paid(plain), Plain('a'), 'a'", True),
        ("lambda: paid(plain)", True),
        ("Paying('a').pay", True),
    ],
    ids=["an object alone", "beside a text", "from around", "a method"],
)
def test_a_single_step_with_an_object_is_kept_where_something_else_is_given_or_nothing(
    zygote: DrivenZygote, tmp_path: Path, call: str, kept: bool
) -> None:
    code = f"""
class Paying(Plain):
    def pay(self):
        return paid(self)

def run(steps):
    plain = Plain("a")
    return [steps.run("s", {call}), steps.run("last", paid, "b")]
"""
    run = of_code(zygote, tmp_path, code)
    run.interrupted("b")
    assert given(run.attempt()) == [f"a of attempt {1 if kept else 2}", "b of attempt 2"]


OTHERS = {
    "several threads": """
def run(steps):
    found = {}
    def one(item):
        found[item] = steps.run("s", lambda: paid(item))
    for item in backwards(["a", "b", "c"]):
        thread = threading.Thread(target=one, args=[item])
        thread.start()
        thread.join()
    return found
""",
    "several tasks": """
async def run(steps):
    async def one(item):
        return item, await steps.arun("s", lambda: paid(item))
    return dict(await asyncio.gather(*map(one, backwards(["a", "b", "c"]))))
""",
    "a default": """
def run(steps):
    return {item: steps.run("s", lambda item=item: paid(item)) for item in backwards(["a", "b", "c"])}
""",
    "a function for each": """
def a(): return paid("a")
def b(): return paid("b")
def c(): return paid("c")

def run(steps):
    return {work.__name__: steps.run("s", work) for work in backwards([a, b, c])}
""",
    "a partial for each": """
import functools

def run(steps):
    return {item: steps.run("s", functools.partial(paid, item)) for item in backwards(["a", "b", "c"])}
""",
    "a lambda for each": """
def run(steps):
    works = backwards([("a", lambda: paid("a")), ("b", lambda: paid("b")), ("c", lambda: paid("c"))])
    return {name: steps.run("s", work) for name, work in works}
""",
    "a failure before": """
def shaky(item):
    mark = os.environ["NOTES"] + ".failed"
    if item == "a" and not os.path.exists(mark):
        open(mark, "w").close()
        raise OSError("not now")
    return paid(item)

def run(steps):
    found, failed = {}, []
    def one(item):
        found[item] = steps.run("s", lambda: shaky(item))
    for item in backwards("abc"):
        try:
            one(item)
        except OSError:
            failed.append(item)
        if item == "b" and failed:
            one("a")
    return found
""",
    "equal as numbers": """
class Letter(enum.IntEnum):
    ONE = 1

def named(item):
    return paid({bool: "a", int: "b", Letter: "c"}[type(item)])

def run(steps):
    return {name: steps.run("s", named, item) for item, name in backwards([(True, "a"), (1, "b"), (Letter.ONE, "c")])}
""",
}


@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS)
def test_a_step_is_known_by_what_it_does_too(zygote: DrivenZygote, tmp_path: Path, code: str) -> None:
    run = of_code(zygote, tmp_path, code)
    run.interrupted("c", journaled=2)
    child = run.attempt()
    assert given(child) == {"c": "c of attempt 2", "b": "b of attempt 1", "a": "a of attempt 1"}
    assert run.calls == dict.fromkeys("abc", 1)
    assert warnings(child) == []


OF_OBJECTS = """
class Paying(Plain):
    def pay(self):
        return paid(self)

async def run(steps):
    async def one(item):
        return item.name, await steps.arun("s", item.pay)
    return dict(await asyncio.gather(*map(one, backwards([Paying(name) for name in "abc"]))))
"""


def test_methods_of_objects_that_several_tasks_begin_are_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = of_code(zygote, tmp_path, OF_OBJECTS)
    run.interrupted("c")
    assert given(run.attempt()) == {name: f"{name} of attempt 2" for name in "abc"}


ODD = ["deep(5000)", "itself()", "10**5000", "Strange()", "{1: 'x', 'y': 2}", "object()"]


@pytest.mark.parametrize("value", ODD)
def test_no_argument_is_too_odd_for_a_step(zygote: DrivenZygote, tmp_path: Path, value: str) -> None:
    code = f"""
def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value

def itself():
    value = []
    value.append(value)
    return value

class Strange:
    @property
    def __class__(self):
        raise RuntimeError("ask no more")

def run(steps):
    return steps.run("s", lambda value: "done", {value})
"""
    assert of_code(zygote, tmp_path, code).attempt().answer() == Succeeded("done")


def test_a_step_that_failed_and_is_tried_behind_another_one_has_its_own_value(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = """
def shaky(item):
    if item.name == "a" and os.environ["ATTEMPT"] == "1" and not os.path.exists(os.environ["NOTES"] + ".failed"):
        open(os.environ["NOTES"] + ".failed", "w").close()
        raise OSError("not now")
    return paid(item)

def run(steps):
    queue, found = [Model(name=name) for name in "abc"], {}
    while queue:
        item = queue.pop(0)
        try:
            found[item.name] = steps.run("s", shaky, item)
        except OSError:
            queue.insert(1, item)
    return found
"""
    run = of_code(zygote, tmp_path, code)
    run.interrupted("c")
    assert given(run.attempt()) == {"a": "a of attempt 1", "b": "b of attempt 1", "c": "c of attempt 2"}


def test_a_step_in_another_process_is_refused(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
def run(steps):
    if not os.fork():
        try:
            steps.run("s", paid, "a")
        except Exception as error:
            note("refused", str(error))
        os._exit(0)
    os.wait()
    return "done"
"""
    run = of_code(zygote, tmp_path, code)
    assert run.attempt().answer() == Succeeded("done")
    assert run.calls == {}
    assert "begun in another process" in (tmp_path / "notes").read_text()
