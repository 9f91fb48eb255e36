"""A crew that asks a person ends its attempt, and goes on with the answer in another process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.asking import MODES, kickoff_in
from projects_for_tests.crews import started
from projects_for_tests.interrupted import kickoff_of_crew, kickoff_of_function, restored_tasks
from windlass_child.protocol.messages import (
    Event,
    Failed,
    ModelCalled,
    Succeeded,
    TaskEnded,
    TaskStarted,
    Warned,
)

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild, DrivenZygote

pytestmark = pytest.mark.xdist_group("crewai")

REVIEWED = """
def keep(output):
    note("callback", output.raw)


@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        tasks = [step("a", agent), step("b", agent, human_input=True, callback=keep), step("c", agent)]
        return Crew(agents=[agent], tasks=tasks)
"""


def types(child: DrivenChild) -> list[str]:
    return [event.type for event in child.talk.of(Event)]


def test_approval_costs_no_model_call(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_crew(zygote, tmp_path, REVIEWED)
    first = kickoff.attempt()
    asked = kickoff.asked(first)
    assert (asked.draft, asked.position, asked.method, asked.choices) == ("b of attempt 1", 1, None, [])
    assert asked.question == "Approve the result of the task b, or describe what to change."
    assert not {"task_failed", "crew_kickoff_failed", "traceback"} & set(types(first))
    assert [one.state for one in first.talk.of(TaskEnded)] == ["completed"]
    assert first.talk.of(Failed) == []
    assert not first.printed
    assert not first.errors.data
    assert first.talk.of(Warned) == []
    assert kickoff.noted("callback") == []

    kickoff.answer(asked)
    second = kickoff.attempt()
    assert second.answer() == Succeeded("c of attempt 2")
    assert kickoff.calls == {"a": 1, "b": 1, "c": 1}
    assert restored_tasks(second) == ["a"]
    assert kickoff.noted("callback") == ["b of attempt 1"]
    (received,) = [event for event in second.talk.of(Event) if event.type == "human_input_received"]
    assert (received.payload["task"], received.payload["approved"]) == ("b", True)
    assert [(one.position, one.output) for one in second.talk.of(TaskEnded)] == [
        (1, "b of attempt 1"),
        (2, "c of attempt 2"),
    ]
    assert second.talk.of(Warned) == []


def test_words_of_a_person_cost_one_call_with_the_draft_and_a_new_question(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    kickoff = kickoff_of_crew(zygote, tmp_path, TALKING)
    first = kickoff.paused()
    kickoff.answer(first, "shorter, please [b]")
    child = kickoff.attempt()
    second = kickoff.asked(child)
    assert (first.draft, second.draft) == ("b of attempt 1", "b of attempt 2")
    assert second.number == first.number + 1
    assert second.key != first.key
    assert kickoff.calls == {"a": 1, "b": 2}
    assert len(child.talk.of(ModelCalled)) == 1
    system, prompt, draft, feedback = kickoff.noted("roles")[-1].split(" | ")
    assert (system.partition(":")[0], prompt.partition(":")[0]) == ("system", "user")
    assert draft == "assistant: b of attempt 1"
    assert feedback.startswith("user: ")
    assert "shorter, please" in feedback

    kickoff.answer(second, "longer [b]")
    third = kickoff.paused()
    assert third.draft == "b of attempt 3"
    assert len(kickoff.noted("roles")[-1].split(" | ")) == 6, "the whole conversation goes on"
    kickoff.answer(third)
    assert kickoff.attempt().answer() == Succeeded("b of attempt 3")
    assert kickoff.calls == {"a": 1, "b": 3}


TALKING = """
class Talking(Counted):
    def call(self, messages, *arguments, **named):
        note("roles", " | ".join(f"{one['role']}: {one['content']}".replace("\\n", " ") for one in messages))
        return super().call(messages, *arguments, **named)


@CrewBase
class Work:
    @crew
    def crew(self):
        agent = worker(llm=Talking(model="talking"))
        return Crew(agents=[agent], tasks=[step("a", agent), step("b", agent, human_input=True)])
"""

IN_ORDER = "a, b, c"


@pytest.mark.parametrize("mode", MODES)
def test_each_way_to_run_a_crew_pauses_once(zygote: DrivenZygote, tmp_path: Path, mode: str) -> None:
    kickoff = kickoff_in(zygote, tmp_path, mode)
    asked = kickoff.paused()
    assert asked.draft == "b of attempt 1"
    kickoff.answer(asked, "again [b]")
    asked = kickoff.paused()
    assert asked.draft == "b of attempt 2"
    kickoff.answer(asked)
    last = kickoff.attempt()
    assert last.answer() == Succeeded("b of attempt 2" if mode == "async task last" else "c of attempt 3")
    assert {name: kickoff.calls[name] for name in "ab"} == {"a": 1, "b": 2}
    assert kickoff.calls["c"] <= 1
    assert [one.code for one in last.talk.of(Warned)] == []
    starts = [(one.name, one.position) for child in kickoff.attempts for one in child.talk.of(TaskStarted)]
    assert len({position for name, position in starts if name == "b"}) == 1, "it keeps its task record"


PARALLEL = """
from concurrent.futures import ThreadPoolExecutor


def slow(output):
    time.sleep(1)
    note("finished", output.raw)


def crew(*names):
    asking = {"a": {"human_input": True}, "b": {"callback": slow}, "c": {"human_input": True}, "d": {}}
    beside = {"async_execution": True} if len(names) > 1 else {}
    agents = {name: one() for name in names}
    tasks = [step(name, agents[name], **asking[name], **({} if name == "d" else beside)) for name in names]
    return Crew(agents=list(agents.values()), tasks=tasks)


async def both():
    found = await asyncio.gather(*(crew(name).akickoff() for name in "abc"))
    return ", ".join(map(str, found))
"""


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("str(crew(*'abcd').kickoff())", "d"),
        ("str(asyncio.run(crew(*'abcd').akickoff()))", "d"),
        ("', '.join(map(str, ThreadPoolExecutor(3).map(lambda name: crew(name).kickoff(), 'abc')))", IN_ORDER),
        ("asyncio.run(both())", IN_ORDER),
    ],
    ids=["async tasks", "async tasks of akickoff", "crews in threads", "crews in a loop"],
)
def test_a_question_waits_for_tasks_beside_it_and_other_questions_follow(
    zygote: DrivenZygote, tmp_path: Path, code: str, output: str
) -> None:
    kickoff = kickoff_of_function(zygote, tmp_path, f"{PARALLEL}\n\ndef run():\n    return {code}\n")
    drafts = []
    for _ in range(2):
        asked = kickoff.paused()
        drafts.append(asked.draft)
        kickoff.answer(asked)
    last = kickoff.attempt()
    answer = last.answer()
    assert isinstance(answer, Succeeded), answer
    assert re.sub(r" of attempt \d", "", answer.output) == output  # a task may begin only after a pause
    assert sorted(draft[0] for draft in drafts) == ["a", "c"]
    assert len(kickoff.noted("finished")) == 1
    assert {name: kickoff.calls[name] for name in "abc"} == {"a": 1, "b": 1, "c": 1}
    assert last.talk.of(Warned) == []


def test_the_wait_for_a_task_beside_a_question_is_not_in_the_time_of_the_agent(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    code = PARALLEL.replace("time.sleep(1)", "time.sleep(5)")
    code = code.replace("name: one() for", "name: one(max_execution_time=None if name == 'b' else 3) for")
    run = "\n\ndef run():\n    return str(crew(*'abd').kickoff())\n"
    kickoff = kickoff_of_function(zygote, tmp_path, code + run)
    kickoff.answer(kickoff.paused())
    assert isinstance(kickoff.attempt().answer(), Succeeded)
    assert kickoff.calls == {"a": 1, "b": 1, "d": 1}


@pytest.mark.parametrize("run", ["crew.kickoff()", "asyncio.run(crew.akickoff())"])
def test_an_agent_that_takes_too_long_fails_before_it_asks(zygote: DrivenZygote, tmp_path: Path, run: str) -> None:
    kickoff = kickoff_of_function(zygote, tmp_path, SLOW + f"    return str({run})\n")
    failure = kickoff.attempt().failure()
    assert "Task 'Do [b]' execution timed out after 1 seconds. Consider increasing" in failure.message


SLOW = """
class Slow(Counted):
    def call(self, messages, *arguments, **named):
        time.sleep(3)
        return super().call(messages)

    async def acall(self, messages, *arguments, **named):
        await asyncio.sleep(3)
        return await super().acall(messages)


def run():
    agent = worker(llm=Slow(model="slow"), max_execution_time=1)
    crew = Crew(agents=[agent], tasks=[step("b", agent, human_input=True)])
"""


def test_a_question_without_an_answer_is_asked_again_without_a_model_call(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_crew(zygote, tmp_path, REVIEWED)
    first, second = kickoff.paused(), kickoff.paused()
    assert (second.draft, second.key) == (first.draft, first.key)
    assert second.number == first.number + 1
    kickoff.answer(second)
    assert isinstance(kickoff.attempt().answer(), Succeeded)
    assert kickoff.calls == {"a": 1, "b": 1, "c": 1}


def test_a_task_whose_guardrail_refuses_an_approved_result_asks_anew(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_crew(zygote, tmp_path, GUARDED)
    first = kickoff.paused()
    kickoff.answer(first)
    second = kickoff.paused()
    assert (first.draft, second.draft) == ("b of attempt 1", "b of attempt 2")
    kickoff.answer(second)
    assert kickoff.attempt().answer() == Succeeded("b of attempt 2")
    assert kickoff.calls == {"b": 2}


GUARDED = """
def again(output):
    return (True, output.raw) if "attempt 2" in output.raw else (False, "do [b] again")


@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        return Crew(agents=[agent], tasks=[step("b", agent, human_input=True, guardrail=again)])
"""


def test_an_approved_result_is_structured_and_written_as_another(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_crew(zygote, tmp_path, STRUCTURED)
    asked = kickoff.paused(answers={"b": '{"name": "parrot", "legs": 2}'})
    assert asked.draft == '{"name": "parrot", "legs": 2}'
    kickoff.answer(asked)
    answer = kickoff.attempt().answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.structured == '{"name":"parrot","legs":2}'
    assert kickoff.noted("file") == ['{"name":"parrot","legs":2}']
    assert kickoff.calls == {"b": 1}


STRUCTURED = """
from pydantic import BaseModel


class Bird(BaseModel):
    name: str
    legs: int


@CrewBase
class Work:
    @after_kickoff
    def look(self, output):
        note("file", open("bird.json").read())
        return output

    @crew
    def crew(self):
        agent = one()
        task = step("b", agent, human_input=True, output_pydantic=Bird, output_file="bird.json")
        return Crew(agents=[agent], tasks=[task])
"""


def test_no_secret_is_in_a_question(zygote: DrivenZygote, tmp_path: Path) -> None:
    secret = {"TOKEN": "hunter2-Zk81"}
    kickoff = kickoff_of_crew(zygote, tmp_path, REVIEWED)
    asked = kickoff.paused(answers={"b": "it is hunter2-Zk81"}, secrets=secret)
    assert asked.draft == "it is [secret]"
    assert "hunter2" not in repr(asked)
    kickoff.answer(asked)
    assert isinstance(kickoff.attempt(secrets=secret).answer(), Succeeded)
    assert kickoff.noted("callback") == ["it is hunter2-Zk81"], "the task goes on with the value"


def test_nothing_runs_and_nothing_is_sent_after_the_question(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_function(zygote, tmp_path, CATCHING)
    asked = kickoff.paused()
    assert asked.draft == "b of attempt 1"
    assert kickoff.calls == {"b": 1}
    kickoff.answer(asked)
    assert kickoff.attempt().answer() == Succeeded("b of attempt 1")


CATCHING = """
def run():
    agent = one()
    try:
        return str(Crew(agents=[agent], tasks=[step("b", agent, human_input=True)]).kickoff())
    except Exception:
        pass
    try:
        return str(Crew(agents=[agent], tasks=[step("c", agent)]).kickoff())
    finally:
        time.sleep(600)
"""


def test_a_project_that_asks_persons_in_a_way_of_its_own_may(zygote: DrivenZygote, tmp_path: Path) -> None:
    assert started(zygote, tmp_path, OWN_WAY + REVIEWING).answer() == Succeeded("approved by its own way")


REVIEWING = """
@CrewBase
class Work:
    @crew
    def crew(self):
        agent = worker()
        return Crew(agents=[agent], tasks=[Task(description="W", expected_output="W", agent=agent, human_input=True)])
"""

OWN_WAY = """
from crewai.core.providers.human_input import set_provider

class Own:
    def setup_messages(self, context):
        return False

    def post_setup_messages(self, context):
        pass

    def handle_feedback(self, answer, context):
        answer.output = "approved by its own way"
        return answer

set_provider(Own())
"""


@pytest.mark.parametrize("where", ["at import", "in the run"])
def test_a_project_that_replaces_input_keeps_it(zygote: DrivenZygote, tmp_path: Path, where: str) -> None:
    at_import, in_run = (OWN_INPUT, "") if where == "at import" else ("", OWN_INPUT.replace("\n", "\n    "))
    crew = "Crew(agents=[agent], tasks=[step('b', agent, human_input=True)])"
    code = f"{at_import}\ndef run():{in_run}\n    agent = one()\n    return str({crew}.kickoff())\n"
    kickoff = kickoff_of_function(zygote, tmp_path, code)
    assert kickoff.attempt().answer() == Succeeded("b of attempt 1")
    assert kickoff.calls == {"b": 2}


OWN_INPUT = """
import builtins
words = ["do [b] again", ""]
builtins.input = lambda *_: words.pop(0)
"""


def test_a_task_of_no_crew_waits_for_its_answer(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = "def run():\n    return one().execute_task(Task(description='[b]', expected_output='x', human_input=True))\n"
    kickoff = kickoff_of_function(zygote, tmp_path, code)
    child = kickoff.attempt()
    asked = kickoff.asked_alive(child)
    assert (asked.draft, asked.question) == (
        "b of attempt 1",
        "Approve the result of a task, or describe what to change.",
    )
    kickoff.answer(asked, "again [c]")
    asked = kickoff.asked_alive(child, 2)
    assert asked.draft == "c of attempt 1"
    kickoff.answer(asked)
    assert child.answer() == Succeeded("c of attempt 1")


def test_a_killed_attempt_after_an_answer_does_the_work_of_the_answer_alone(
    zygote: DrivenZygote, tmp_path: Path
) -> None:
    kickoff = kickoff_of_crew(zygote, tmp_path, REVIEWED)
    kickoff.answer(kickoff.paused(), "again [b]")
    kickoff.interrupted("b")
    asked = kickoff.paused()
    assert asked.draft == "b of attempt 3"
    kickoff.answer(asked)
    kickoff.interrupted("c", journaled=1)
    assert kickoff.attempt().answer() == Succeeded("c of attempt 5")
    assert kickoff.calls == {"a": 1, "b": 2, "c": 1}


def test_a_crew_in_a_reused_process_pauses(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_crew(zygote, tmp_path, REVIEWED, more={"reuse": True})
    kickoff.answer(kickoff.paused())
    assert kickoff.attempt().answer() == Succeeded("c of attempt 2")
