"""What a crew does not do as its author meant is a warning: it is neither an error nor silent."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import crew_project
from projects_for_tests.making import Bench, Heard, function_project
from windlass.kickoffs.states import State
from windlass_child.process.child import is_unfinished
from windlass_child.protocol.messages import Warned

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

TEXTS = """
@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker(backstory="Lives in { city } and {city}")
        plan = Task(
            description='Read {items}, {items[0].a}, {n\u00famero}, {} and {0}; answer {"a": 1} or { "b": [2] }',
            expected_output="{a.b}",
            agent=one,
            name="plan",
        )
        return Crew(agents=[one], tasks=[plan])
"""


async def test_a_text_that_looks_like_a_placeholder_is_named(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    manifest = await bench.inspect(crew_project(tmp_path, TEXTS), heard=heard)
    assert manifest.required_inputs == ["items", "city"]
    warned = [(one.message.partition(" is plain text")[0], one.task) for one in heard.of(Warned)]
    assert warned == [
        ("{items[0].a} in the description of the task plan", 0),
        ("{n\u00famero} in the description of the task plan", 0),
        ("{a.b} in the expected_output of the task plan", 0),
        ("{ city } in the backstory of the agent worker", None),
    ]


SHARED = """
@CrewBase
class Work:
    @crew
    def crew(self):
        one, two = worker(), worker(role="Second")
        names = {"a": one, "b": two, "c": one, "d": one}
        tasks = [
            Task(description=name, expected_output="x", name=name, agent=agent, async_execution=name != "d")
            for name, agent in names.items()
        ]
        return Crew(agents=[one, two], tasks=tasks)
"""


async def test_two_tasks_of_one_agent_at_the_same_time_are_named(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    await bench.inspect(crew_project(tmp_path, SHARED), heard=heard)
    (warned,) = heard.of(Warned)
    assert (warned.code, warned.task) == ("shared_agent", 2)
    assert warned.message.startswith("the tasks a and c run at the same time (async_execution) with the agent worker.")


KNOWING = """
from crewai.knowledge.source.string_knowledge_source import StringKnowledgeSource

@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker()
        task = Task(description="Work", expected_output="x", agent=one)
        return Crew(agents=[one], tasks=[task], knowledge_sources=[StringKnowledgeSource(content="Tea is hot.")])
"""


async def test_knowledge_that_could_not_be_read_is_named(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await bench.run(crew_project(tmp_path, KNOWING), heard=heard)
    assert outcome.state is State.SUCCESS, outcome
    (warned,) = heard.of(Warned)
    assert warned.code == "knowledge_not_read"
    assert "OPENAI_API_KEY" in warned.message


THREADS = """
import threading
from concurrent.futures import ThreadPoolExecutor

pool = None

def run(does):
    global pool
    if does == "thread":
        threading.Thread(target=threading.Event().wait, name="sender").start()
    if does == "daemon":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if does in ("pool", "busy"):
        pool = ThreadPoolExecutor(1, "mailer")
        pool.submit(str).result()
    if does == "busy":
        begun = threading.Event()
        pool.submit(lambda: (begun.set(), threading.Event().wait()))
        begun.wait()
    return does
"""


@pytest.mark.parametrize(
    ("does", "named"), [("nothing", None), ("daemon", None), ("pool", None), ("busy", "mailer_0"), ("thread", "sender")]
)
async def test_threads_that_the_end_of_a_run_ends_are_named(
    bench: Bench, tmp_path: Path, does: str, named: str | None
) -> None:
    heard = Heard()
    outcome = await bench.run(function_project(tmp_path, THREADS), {"does": does}, heard=heard)
    assert (outcome.state, outcome.output) == (State.SUCCESS, does)
    warned = [one.message for one in heard.of(Warned)]
    assert len(warned) == (named is not None)
    assert all(f"worked: {named}." in one for one in warned)


async def test_only_threads_of_the_crews_code_are_reported() -> None:
    over = threading.Event()
    named = [threading.Thread(target=over.wait, name=name) for name in ("windlass-journal_0", "of a crew")]
    for one in named:
        one.start()
    try:
        assert [is_unfinished(one) for one in named] == [False, True]
    finally:
        over.set()
