"""A flow that asks a person goes on with the answer: in another process, or in the same one if work would be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.asking import ASKS, BASE, BOTH, NESTED, REVIEW, ROUNDS, kickoff_of_flow
from projects_for_tests.interrupted import Kickoff, kickoff_of_function
from projects_for_tests.making import written
from projects_for_tests.model_server import ModelServer
from windlass_child.protocol.messages import Abort, Asked, Event, ModelCalled, Project, Succeeded, Tokens, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")


def types(child: DrivenChild) -> list[str]:
    return [event.type for event in child.talk.of(Event)]


def warned(child: DrivenChild) -> list[str]:
    return [one.code for one in child.talk.of(Warned)]


@pytest.mark.parametrize(
    ("words", "approved", "expected"),
    [
        ("approved", True, '["published", "draft of attempt 1", 2026, ["plan", "draft"], "approved"]'),
        ("not_approved", False, '["discarded", "not_approved"]'),
        ("", True, '["published", "draft of attempt 1", 2026, ["plan", "draft"], "approved"]'),
    ],
)
def test_an_exact_choice_costs_no_model_call(
    zygote: DrivenZygote, tmp_path: Path, words: str, approved: bool, expected: str
) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, REVIEW)
    first = kickoff.attempt()
    asked = kickoff.asked(first)
    assert (asked.question, asked.method, asked.position) == ("Publish this?", "draft", 1)
    assert asked.choices == ["approved", "not_approved"]
    assert asked.draft == '{"text": "draft of attempt 1", "at": "2026-01-02T00:00:00"}'
    assert not {"method_execution_failed", "flow_failed"} & set(types(first))
    (paused,) = [event.payload for event in first.talk.of(Event) if event.type == "flow_paused"]
    assert (paused["method_name"], paused["state"]["seen"]) == ("draft", ["plan", "draft"])
    kickoff.answer(asked, words, approved=approved)
    second = kickoff.attempt()
    answer = second.answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.output == expected
    assert kickoff.calls == {"plan": 1, "draft": 1}
    assert warned(second) == []


TYPED = """
class State(BaseModel):
    topic: str = "tides"
    at: datetime | None = None


class Typed(Flow[State]):
    _skip_auto_memory = True

    @start()
    @human_feedback(message="Good?")
    def draft(self):
        self.state.at = datetime(2026, 1, 2)
        return "a draft"
"""


def test_the_state_with_which_a_flow_asks_is_an_event(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, TYPED)
    child = kickoff.attempt()
    kickoff.asked(child)
    (paused,) = [event.payload for event in child.talk.of(Event) if event.type == "flow_paused"]
    assert paused["method_name"] == "draft"
    assert (paused["state"]["topic"], paused["state"]["at"]) == ("tides", "2026-01-02T00:00:00")


def test_free_words_cost_one_call_of_the_flows_own_model_and_no_second_one_later(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, REVIEW.replace("def publish(self, result):", TWICE))
    asked = kickoff.paused()
    kickoff.answer(asked, "it is fine [map]", approved=False)
    child = kickoff.attempt(answers={"map": "approved"})
    second = kickoff.asked(child)
    assert (second.method, second.draft) == ("publish", "draft of attempt 1")
    assert kickoff.calls == {"plan": 1, "draft": 1, "map": 1}
    kickoff.answer(second, "good", approved=True)
    last = kickoff.attempt(answers={"map": "not_approved"})
    answer = last.answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.output == '["draft of attempt 1", "good", ["it is fine [map]", "good"]]'
    assert kickoff.calls == {"plan": 1, "draft": 1, "map": 1}
    assert warned(last) == []


TWICE = """
    @human_feedback(message="Really?")
    def publish(self, result):
        return result.output["text"]

    @listen("publish")
    def end(self, result):
        return [result.output, result.feedback, [one.feedback for one in self.human_feedback_history]]

    @listen("never")
    def other(self, result):"""


def test_three_rounds_take_only_the_chosen_branch(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, ROUNDS)
    for number, words in enumerate(["again", "again", "done"], 1):
        asked = kickoff.paused()
        assert asked.draft == f"round{number} of attempt {number}"
        kickoff.answer(asked, words)
    last = kickoff.attempt()
    answer = last.answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.output == '[3, "round3 of attempt 3"]'
    assert kickoff.calls == {"begin": 1, "round1": 1, "round2": 1, "round3": 1}
    assert warned(last) == []


def test_joins_fire_after_a_pause_and_methods_beside_it_are_not_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, JOINED)
    asked = kickoff.paused()
    assert asked.method == "left"
    assert kickoff.noted("done") == ["right"], "the question waits for the method beside it"
    kickoff.answer(asked, "good", approved=True)
    last = kickoff.attempt()
    answer = last.answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.output == '["left of attempt 1", "good", "right of attempt 1", ["left", "right"]]'
    assert kickoff.calls == {"left": 1, "right": 1}
    assert warned(last) == []


JOINED = """
class Joined(Base):
    @start()
    @human_feedback(message="Left?")
    def left(self):
        self.state["seen"] = ["left"]
        return run_step("left")

    @start()
    def right(self):
        time.sleep(1)
        self.state["right"] = run_step("right")
        self.state["seen"].append("right")
        note("done", "right")

    @listen(and_(left, right))
    def join(self):
        feedback = self.last_human_feedback
        return [feedback.output, feedback.feedback, self.state["right"], self.state["seen"]]
"""


@pytest.mark.parametrize("stream", ["", "    stream = True\n"], ids=["", "stream"])
def test_methods_side_by_side_ask_one_after_the_other(zygote: DrivenZygote, tmp_path: Path, stream: str) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, BOTH.replace("(Base):\n", f"(Base):\n{stream}"))
    asked = [kickoff.paused()]
    kickoff.answer(asked[0], f"to {asked[0].method}")
    asked.append(kickoff.paused())
    kickoff.answer(asked[1], f"to {asked[1].method}")
    last = kickoff.attempt()
    answer = last.answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.output == '{"left": "to left", "right": "to right"}'
    assert sorted(str(one.method) for one in asked) == ["left", "right"]
    assert kickoff.calls == {"left": 1, "right": 1}
    assert warned(last) == []


def test_a_killed_attempt_after_an_answer_does_not_ask_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(
        zygote, tmp_path, REVIEW.replace('return ["published"', 'run_step("slow"); return ["published"')
    )
    kickoff.answer(kickoff.paused(), "approved")
    kickoff.interrupted("slow", journaled=1)
    answer = kickoff.attempt().answer()
    assert isinstance(answer, Succeeded), answer
    assert kickoff.calls == {"plan": 1, "draft": 1, "slow": 1}


def test_a_declared_flow_pauses(zygote: DrivenZygote, tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[project]\nname = "work"\n[tool.crewai]\ntype = "flow"\ndefinition = "flow.yaml"\n',
        "work.py": DECLARED_CODE,
        "flow.yaml": DECLARED,
    }
    project = Project("declarative_flow", str(written(tmp_path / "project", files)), "flow.yaml")
    kickoff = Kickoff(zygote, project, tmp_path)
    asked = kickoff.paused()
    assert (asked.question, asked.draft, asked.choices) == ("Publish?", "a draft", ["yes", "no"])
    kickoff.answer(asked, "yes")
    last = kickoff.attempt()
    assert last.answer() == Succeeded("published")
    assert "drafted" not in last.printed


DECLARED_CODE = """
def draft(*_):
    print("drafted", flush=True)
    return "a draft"

def publish(*_):
    return "published"
"""

DECLARED = """
schema: crewai.flow/v1
name: Declared
methods:
  draft:
    start: true
    do:
      call: code
      ref: work:draft
    human_feedback:
      message: Publish?
      emit: ["yes", "no"]
      llm: openai/gpt-4o-mini
  publish:
    listen: "yes"
    do:
      call: code
      ref: work:publish
"""


def test_flow_ask_waits_for_its_answer(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, ASKS)
    child = kickoff.attempt()
    asked = kickoff.asked_alive(child)
    assert (asked.question, asked.draft, asked.method) == ("Which harbour?", "", "begin")
    kickoff.answer(asked, "Rye")
    second = kickoff.asked_alive(child, 2)
    assert second.question == "When at Rye?"
    kickoff.kill(child)
    again = kickoff.attempt()
    third = kickoff.asked_alive(again)
    assert third.question == "When at Rye?", "the first answer is not asked for again"
    kickoff.answer(third, "noon")
    assert again.answer() == Succeeded("Rye at noon")


def test_a_run_that_waits_for_a_person_is_stopped(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, ASKS)
    child = kickoff.attempt()
    kickoff.asked_alive(child)
    child.talk.send(Abort("enough"))
    assert child.failure().message == "enough"


def test_a_question_with_a_time_limit_is_left_behind(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, ASKS.replace('"Which harbour?"', '"Which harbour?", timeout=0.5'))
    child = kickoff.attempt()
    asked = kickoff.asked_alive(child, 2)
    assert asked.question == "When at None?"
    kickoff.answer(asked, "noon")
    assert child.answer() == Succeeded("None at noon")


def test_a_crew_in_a_method_pauses_the_flow(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, NESTED)
    asked = kickoff.paused()
    assert (asked.draft, asked.position, asked.method) == ("b of attempt 1", 1, None)
    kickoff.answer(asked)
    last = kickoff.attempt()
    assert last.answer() == Succeeded("b of attempt 1")
    assert kickoff.calls == {"plan": 1, "a": 1, "b": 1}
    assert warned(last) == []


def test_a_flow_in_a_function_waits_for_its_answer(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = (
        "from crewai.flow import Flow, listen, start\n"
        + BASE
        + REVIEW
        + "\ndef run():\n    return Review().kickoff()\n"
    )
    kickoff = kickoff_of_function(zygote, tmp_path, code)
    child = kickoff.attempt()
    asked = kickoff.asked_alive(child)
    assert asked.choices == ["approved", "not_approved"]
    kickoff.answer(asked, "approved")
    assert isinstance(child.answer(), Succeeded)


def test_an_output_that_can_not_be_journaled_is_judged_in_the_same_process(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, UNKEPT)
    child = kickoff.attempt()
    kickoff.answer(kickoff.asked_alive(child), "fine", approved=True)
    assert child.answer() == Succeeded("fine")
    assert kickoff.noted("runs") == ["draft"]


UNKEPT = """
import threading


class Unkept(Base):
    @start()
    @human_feedback(message="Fine?")
    def draft(self):
        note("runs", "draft")
        return threading.Lock()

    @listen(draft)
    def end(self, result):
        return result.feedback
"""


def test_a_flow_with_a_provider_of_its_own_keeps_it(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_flow(zygote, tmp_path, OWN)
    child = kickoff.attempt()
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.output == "its own way"
    assert child.talk.of(Asked) == []


OWN = """
class Own:
    def request_feedback(self, context, flow):
        return "its own way"


class Asks(Base):
    @start()
    @human_feedback(message="Fine?", provider=Own())
    def draft(self):
        return 1

    @listen(draft)
    def end(self, result):
        return result.feedback
"""


def test_free_words_are_mapped_by_the_model_that_the_flow_configures(zygote: DrivenZygote, tmp_path: Path) -> None:
    with ModelServer("not_approved") as model:
        own = f"llm=LLM(model='openai/own', api_key='sk-own', base_url={model.url!r})"
        kickoff = kickoff_of_flow(zygote, tmp_path, REVIEW.replace('llm=Counted(model="counted")', own))
        kickoff.answer(kickoff.paused(), "throw it away")
        assert model.requests == []
        child = kickoff.attempt()
        answer = child.answer()
        assert isinstance(answer, Succeeded), answer
        assert answer.output == '["discarded", "throw it away"]'
        assert {request["model"] for request in model.requests} == {"own"}
    assert len(child.talk.of(ModelCalled)) == len(model.requests)
    assert child.talk.of(Tokens) != []
