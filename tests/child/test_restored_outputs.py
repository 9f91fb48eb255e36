"""What a finished task gave is in a later attempt what it was, or the task is run again and a warning says so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.interrupted import kickoff_of_crew, kickoff_of_function
from windlass_child.protocol.messages import Succeeded, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote
    from projects_for_tests.interrupted import Kickoff

pytestmark = pytest.mark.xdist_group("crewai")

MODELS = """
import dataclasses
from decimal import Decimal
from typing import Any
from pydantic import BaseModel, Field, PrivateAttr, field_serializer, field_validator

class Ticket(BaseModel):
    ticket_no: int = Field(alias="ticketNo")
    price: Decimal | str = "free"

class Price(BaseModel):
    cents: int
    @field_validator("cents", mode="before")
    @classmethod
    def to_cents(cls, value):
        return int(float(value) * 100)
    @field_serializer("cents")
    def in_words(self, value):
        return "many"

class Hidden(BaseModel):
    user: str
    key: str = Field("none", exclude=True)
    _seen: list = PrivateAttr(default_factory=list)
    def model_post_init(self, context):
        self._seen.append(self.user)

@CrewBase
class Work:
    @after_kickoff
    def end(self, result):
        return [repr(output.pydantic) for output in result.tasks_output[:3]] + [result.tasks_output[2].pydantic._seen]

    @crew
    def crew(self):
        agent, kinds = one(), [Ticket, Price, Hidden]
        tasks = [step(name, agent, output_pydantic=kind) for name, kind in zip("abc", kinds)]
        return Crew(agents=[agent], tasks=[*tasks, step("d", agent)])
"""

ANSWERS = {"a": '{"ticketNo": 7, "price": "1.50"}', "b": '{"cents": "3.5"}', "c": '{"user": "u", "key": "kept"}'}


def value(child: DrivenChild) -> Any:
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    return json.loads(answer.structured or answer.output)


def warned(child: DrivenChild) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in child.talk.of(Warned)]


def test_models_come_back_as_they_were_whatever_their_dump_is(zygote: DrivenZygote, tmp_path: Path) -> None:
    undisturbed = value(kickoff_of_crew(zygote, tmp_path / "other", MODELS).attempt(answers=ANSWERS))
    run = kickoff_of_crew(zygote, tmp_path, MODELS)
    run.interrupted("d", answers=ANSWERS)
    child = run.attempt()
    assert value(child) == undisturbed
    assert undisturbed[1:] == ["Price(cents=350)", "Hidden(user='u', key='kept')", ["u"]]
    assert run.calls == dict.fromkeys("abcd", 1)
    assert warned(child) == []


LOCAL = """
from pydantic import BaseModel

def run():
    class Answer(BaseModel):
        if os.environ["ATTEMPT"] != "3":
            number: int
        other: str = "none"
    agent = one()
    tasks = [step("a", agent, output_pydantic=Answer), step("b", agent)]
    output = Crew(agents=[agent], tasks=tasks).kickoff().tasks_output[0].pydantic
    return [type(output) is Answer, repr(output)]
"""


def kickoff_with_a_local_class(zygote: DrivenZygote, tmp_path: Path) -> Kickoff:
    run = kickoff_of_function(zygote, tmp_path, LOCAL)
    run.interrupted("b", answers={"a": '{"number": 7}'})
    return run


def test_the_class_of_a_model_may_be_anywhere(zygote: DrivenZygote, tmp_path: Path) -> None:
    run = kickoff_with_a_local_class(zygote, tmp_path)
    assert value(run.attempt()) == [True, "Answer(number=7, other='none')"]
    assert run.calls == {"a": 1, "b": 1}


def test_a_model_whose_class_has_got_another_field_is_made_by_its_task_again(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    run = kickoff_of_function(zygote, tmp_path, LOCAL.replace('!= "3"', '== "2"'))
    run.interrupted("b", answers={"a": '{"other": "one"}'})
    child = run.attempt(answers={"a": '{"number": 8}'})
    assert value(child) == [True, "Answer(number=8, other='none')"]
    assert warned(child) == [
        ("journal_unfit", "the task a is run again: its output_pydantic is another Answer than it was")
    ]


def test_json_output_has_the_types_that_it_had(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = """
    from pydantic import BaseModel

    class Answer(BaseModel):
        number: float

    def run():
        agent = one()
        tasks = [step("a", agent, output_json=Answer), step("b", agent)]
        return [repr(Crew(agents=[agent], tasks=tasks).kickoff().tasks_output[0].json_dict)]
    """
    run = kickoff_of_function(zygote, tmp_path, code)
    run.interrupted("b", answers={"a": '{"number": 7}'})
    assert value(run.attempt()) == ["{'number': 7.0}"]
    assert run.calls == {"a": 1, "b": 1}


def test_a_restored_output_has_the_words_of_its_task_with_the_inputs_in_them(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = """
    @CrewBase
    class Work:
        @after_kickoff
        def end(self, result):
            return [[one.name, one.description, one.expected_output, one.summary] for one in result.tasks_output]

        @crew
        def crew(self):
            agent = one()
            texts = {"description": "Look at {topic} [a]", "expected_output": "Words on {topic}"}
            return Crew(agents=[agent], tasks=[step(None, agent, **texts), step("b", agent)])
    """
    run = kickoff_of_crew(zygote, tmp_path, code, inputs={"topic": "parrots"})
    run.interrupted("b")
    first, _ = value(run.attempt())
    words = "Look at parrots [a]"
    assert first == [words, words, "Words on parrots", f"{words}..."]
    assert run.calls == {"a": 1, "b": 1}


ODD = """
import dataclasses
from typing import Any
from pydantic import BaseModel, Field

@dataclasses.dataclass(frozen=True)
class Odd:
    number: int
    def __hash__(self):
        if os.environ["ATTEMPT"] == "2":
            raise RuntimeError("no hash today")
        return 7

@dataclasses.dataclass
class Closed:
    number: int = 1
    def __getattribute__(self, name):
        raise RuntimeError("closed")

class Answer(BaseModel):
    held: Any = Field(None, exclude=True)

def checked(output):
    output.pydantic = Answer(held=THING)
    return True, output

@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        first = step("a", agent, guardrail=checked, output_pydantic=Answer)
        return Crew(agents=[agent], tasks=[first, step("b", agent)])
"""


@pytest.mark.parametrize(
    ("thing", "attempt", "code", "words"),
    [
        ("Closed()", 1, "not_journaled", "the task a is run again if the kickoff is interrupted after it: closed"),
        ("{Odd(1)}", 2, "journal_unfit", "the task a is run again: no hash today"),
    ],
    ids=["kept", "made again"],
)
def test_what_classes_of_the_project_raise_does_not_fail_a_run(
    zygote: DrivenZygote, tmp_path: Path, thing: str, attempt: int, code: str, words: str
) -> None:
    run = kickoff_of_crew(zygote, tmp_path, ODD.replace("THING", f"{thing} if os.environ['ATTEMPT'] == '1' else 5"))
    children = [run.interrupted("b", answers={"a": "{}"}), run.attempt(answers={"a": "{}"})]
    assert children[1].answer() == Succeeded("b of attempt 2")
    assert (code, words) in warned(children[attempt - 1])
    assert run.calls == {"a": 2, "b": 1}
