"""The value of a secret variable leaves no run: in nothing that its process sends, and in no line that it prints.

What the journal holds has the value again in the next attempt, or the value that the variable has then.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.crews import flow_project
from projects_for_tests.interrupted import MODEL, Kickoff, kickoff_of_crew, kickoff_of_function, restored_tasks
from projects_for_tests.making import Bench, Heard, function_project
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import State
from windlass.runner.io import CUT, LONGEST_LINE
from windlass_child.masking.secret_values import MASK
from windlass_child.protocol.messages import JournalAppend, Project, Succeeded, TaskEnded, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote
    from windlass.kickoffs.outcome import Outcome

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

SECRET, ROTATED = "Xk29vQ7mT4zR8bLw", "rotated\"to'this\\é9"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----"
FORMS = (SECRET, SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode()[:20], KEY.splitlines()[1])


async def run(bench: Bench, folder: Path, code: str, heard: Heard, **more: Any) -> Outcome:
    project = function_project(folder, "import base64, os, sys, time\nTOKEN = os.environ['TOKEN']\n" + code)
    environment = {"TOKEN": SECRET, "KEY": KEY}
    return await bench.run(project, environment=environment, secrets=frozenset(environment), heard=heard, **more)


def without_secret(*found: object) -> str:
    """All of it as text, in which no form of a secret is."""
    text = " ".join(map(repr, found))
    for form in FORMS:
        assert form not in text
    return text


LEAKING = """
import logging

def run(steps):
    print(f"the token is {TOKEN}")
    print(base64.b64encode(f"user:{TOKEN}".encode()).decode(), TOKEN.encode().hex())
    print(os.environ["KEY"])
    logging.getLogger("of a library").error("refused: %s", TOKEN)
    for part in (TOKEN[:7], TOKEN[7:], "\\n"):
        os.write(1, part.encode())
        time.sleep(0.05)  # so that the server reads each part on its own
    os.write(2, b"x" * (8 * 1024 - 5) + TOKEN.encode() + b"\\n")
    os.write(1, b"the last line: " + TOKEN.encode())
    steps.run(f"log in with {TOKEN}", lambda: TOKEN)
    return {"token": TOKEN, TOKEN: [TOKEN.encode().hex()]}
"""


async def test_a_run_that_leaks_its_secret_on_all_ways(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await run(bench, tmp_path, LEAKING, heard)
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.json == {"token": MASK, MASK: [MASK]}
    without_secret(outcome, *heard.all)
    lines = heard.lines("stdout")
    assert lines[0] == f"the token is {MASK}"
    assert lines[1].endswith(f" {MASK}")
    assert lines[2:] == [MASK, MASK, f"the last line: {MASK}"]
    assert f"refused: {MASK}" in " ".join(heard.lines("stderr"))
    assert f"{'x' * (LONGEST_LINE - 5)}{MASK[:5]}{CUT}" in heard.lines("stderr")
    steps = [one for one in heard.of(TaskEnded) if one.position == 1]
    assert [one.output for one in steps] == [MASK]


STREAMED = """
def run():
    from crewai.events.event_bus import crewai_event_bus
    from crewai.events.types.llm_events import LLMCallCompletedEvent, LLMCallType, LLMStreamChunkEvent
    for chunk in ("it is ", TOKEN[:3], TOKEN[3:9], TOKEN[9:] + " and", " more Xk"):
        crewai_event_bus.emit(run, LLMStreamChunkEvent(chunk=chunk, call_id="1"))
    ended = LLMCallCompletedEvent(response=TOKEN, call_type=LLMCallType.LLM_CALL, call_id="1")
    crewai_event_bus.emit(run, ended)
"""


async def test_a_secret_in_a_streamed_answer_of_a_model_is_masked(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await run(bench, tmp_path, STREAMED, heard)
    assert outcome.state is State.SUCCESS, outcome.error
    without_secret(*heard.all)
    assert "".join(one["chunk"] for one in heard.events("llm_stream_chunk")) == f"it is {MASK} and more Xk"
    assert [one["response"] for one in heard.events("llm_call_completed")] == [MASK]


@pytest.mark.parametrize(
    "code",
    [
        "def run():\n    raise ValueError('x' * 590 + ' ' + TOKEN)",
        "def run():\n    raise ValueError('it begins\\n  ' + os.environ['KEY'])",
        "def run():\n    raise ValueError(base64.b64encode(f'user:{TOKEN}'.encode()).decode())",
        "def run():\n    print(TOKEN[:10], end='', flush=True)\n    os._exit(3)",
        "raise RuntimeError('no import with ' + TOKEN)",
        "def run():\n    return object.__new__(type('X', (), {'__str__': lambda _: f'a {TOKEN}'}))",
    ],
    ids=["cut", "lines", "base64", "half", "load", "text"],
)
async def test_no_end_of_a_run_tells_its_secret(bench: Bench, tmp_path: Path, code: str) -> None:
    heard = Heard()
    without_secret(await run(bench, tmp_path, code, heard), *heard.all)


async def test_a_zygote_that_imports_the_project_tells_no_secret(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    code = "raise ValueError('of the token: ' + TOKEN.encode().hex())"
    outcome = await run(bench, tmp_path, code, heard, preload_project=True)
    assert f"of the token: {MASK}" in without_secret(outcome, *heard.all)


async def test_the_limit_of_the_output_cuts_no_secret_in_two(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    code = "def run():\n    print('x' * 90 + TOKEN + 'y' * 90)"
    await run(bench, tmp_path, code, heard, limits=Limits(output_limit=94))
    assert heard.lines("stdout") == ["x" * 90 + MASK[:4]]


STEPS = """
import base64, hashlib, os, time
from collections import namedtuple

Session = namedtuple("Session", "token header data")

def opened():
    note("calls", "opened")
    token = os.environ["TOKEN"]
    return Session(token, {token: [f"Bearer {token}!"]}, b"x" + token.encode() if os.environ.get("BYTES") else b"")

def paid(session):
    if os.environ["STOP_AT"] == "paid":
        os.write(1, b"stopped\\n")
        time.sleep(600)

def run(steps):
    session = steps.run("open", opened)
    steps.run("pay", paid, "once")
    token = os.environ["TOKEN"]
    return session == Session(token, {token: [f"Bearer {token}!"]}, session.data)
"""


@pytest.mark.parametrize("now", [SECRET, ROTATED])
async def test_a_step_that_returned_a_secret_has_the_value_of_the_next_attempt(
    zygote: DrivenZygote, tmp_path: Path, now: str
) -> None:
    kickoff = kickoff_of_function(zygote, tmp_path, STEPS)
    before = kickoff.interrupted("paid", journaled=1, secrets={"TOKEN": SECRET})
    without_secret(*before.talk.messages)
    child = kickoff.attempt(secrets={"TOKEN": now})
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    assert (answer.output, kickoff.calls) == ("true", {"opened": 1})
    assert now not in repr(child.talk.messages)
    assert child.talk.of(Warned) == []


async def test_a_step_whose_result_encodes_a_rotated_secret_is_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_function(zygote, tmp_path, STEPS)
    kickoff.interrupted("paid", journaled=1, secrets={"TOKEN": SECRET[:-1], "BYTES": "yes, bytes"})
    child = kickoff.attempt(secrets={"TOKEN": SECRET[1:], "BYTES": "yes, bytes"})
    assert isinstance(child.answer(), Succeeded)
    assert kickoff.calls == {"opened": 2}
    assert [one.code for one in child.talk.of(Warned)] == ["journal_unfit"]


async def test_a_marker_in_the_output_of_a_crew_is_text(zygote: DrivenZygote, tmp_path: Path) -> None:
    """Nobody outside of the process knows the nonce of its markers."""
    forged = f"[entry {'0' * 32} TOKEN - text {'0' * 16}]"
    code = STEPS.replace('return Session(token, {token: [f"Bearer {token}!"]},', f"return Session(token, {forged!r},")
    code = code.replace("return session ==", f"return session[1] == {forged!r} or")
    kickoff = kickoff_of_function(zygote, tmp_path, code)
    kickoff.interrupted("paid", journaled=1, secrets={"TOKEN": SECRET})
    answer = kickoff.attempt(secrets={"TOKEN": SECRET}).answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.output == "true"


FLOW = """
class Kept(Flow):
    _skip_auto_memory = True

    @start()
    def a(self):
        note("calls", "a")
        self.state["tokens"] = ["Xk29", os.environ["TOKEN"]]
        self.client = {"auth": "Basic " + os.environ["TOKEN"]}

    @listen(a)
    def b(self):
        note("calls", "b")
        self.state["tokens"].append(os.environ["TOKEN"] + "!")
        return self.state["tokens"]

    @listen(b)
    def c(self, tokens):
        Counted(model="counted").call("[c]")
        token = os.environ["TOKEN"]
        same = tokens is self.state["tokens"] and self.client == {"auth": "Basic " + token}
        return str(same and tokens == ["Xk29", token, token + "!"])
"""


@pytest.mark.parametrize("now", [SECRET, ROTATED])
async def test_a_flow_whose_state_holds_a_secret_goes_on(zygote: DrivenZygote, tmp_path: Path, now: str) -> None:
    project = flow_project(tmp_path / "project", MODEL + FLOW)
    kickoff = Kickoff(zygote, Project("flow", str(project), "main"), tmp_path)
    before = kickoff.interrupted("c", journaled=2, secrets={"TOKEN": SECRET})
    without_secret(*before.talk.messages)
    assert len(before.talk.of(JournalAppend)) == 2
    child = kickoff.attempt(secrets={"TOKEN": now})
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    assert answer.output == "True"
    assert kickoff.calls == {"a": 1, "b": 1, "c": 1}
    assert now not in repr(child.talk.messages)


CREW = """
agent = one()
crew = Crew(agents=[agent], tasks=[step("a", agent), step("b", agent, context=[])])
"""


async def test_a_task_that_returned_a_secret_is_not_run_again(zygote: DrivenZygote, tmp_path: Path) -> None:
    kickoff = kickoff_of_crew(zygote, tmp_path, CREW)
    before = kickoff.interrupted("b", journaled=1, answers={"a": f"it is {SECRET}"}, secrets={"TOKEN": SECRET})
    without_secret(*before.talk.messages)
    (ended,) = before.talk.of(TaskEnded)
    assert ended.output == f"it is {MASK}"
    child = kickoff.attempt(secrets={"TOKEN": SECRET})
    assert isinstance(child.answer(), Succeeded)
    assert kickoff.calls == {"a": 1, "b": 1}
    assert restored_tasks(child) == ["a"]
    without_secret(*child.talk.messages)
