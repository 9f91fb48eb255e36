"""With a real worker and its database: a crew and a flow that ask a person pause, and go on with the answer."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import World
from lifecycle.test_paused_runs import answered, question_of
from projects_for_tests.crews import crew_project, flow_project
from projects_for_tests.interrupted import MODEL
from windlass.kickoffs.questions import Answer
from windlass.kickoffs.states import State
from windlass.lifecycle.worker_config import CrewEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from uuid import UUID

    from windlass.kickoffs.questions import QuestionRow
    from windlass.store.claiming import Claimed

pytestmark = pytest.mark.xdist_group("crewai")

SECONDS = 120.0
"""crewai is imported first."""

CREW = """
@CrewBase
class Work:
    @crew
    def crew(self):
        agent = one()
        tasks = [step("a", agent), step("b", agent, human_input=True, output_file="b.md"), step("c", agent)]
        return Crew(agents=[agent], tasks=tasks)
"""

FLOW = """
from crewai.flow.human_feedback import human_feedback


class Review(Flow):
    _skip_auto_memory = True

    @start()
    @human_feedback(message="Publish?", emit=["yes", "no"], llm=Counted(model="counted"))
    def draft(self):
        with open("draft.txt", "w") as file:
            file.write("a draft")
        note("calls", "draft")
        return "a draft"

    @start()
    def beside(self):
        time.sleep(0.5)
        note("calls", "beside")

    @listen("yes")
    def publish(self, result):
        with open("draft.txt") as file:
            return [result.output, file.read(), self.ask("Where?")]
"""


@asynccontextmanager
async def world_of(project: Path, url: str, folder: Path) -> AsyncIterator[World]:
    world = World(url, folder, AsyncExitStack())
    world.project = project

    async def environment(claimed: Claimed) -> CrewEnvironment:
        return CrewEnvironment({"NOTES": str(folder / "notes"), "ATTEMPT": str(claimed.attempt), "ANSWERS": "{}"})

    async with world:
        await world.worker(environment)
        yield world


async def asked(world: World, kickoff: UUID) -> QuestionRow:
    async with asyncio.timeout(SECONDS):
        while not [one for one in await world.store.open_questions() if one.kickoff_id == kickoff]:  # noqa: ASYNC110 - as below
            await asyncio.sleep(0.02)
    return await question_of(world, kickoff)


def calls(folder: Path) -> list[str]:
    return sorted(line.removeprefix("calls ") for line in (folder / "notes").read_text("utf-8").splitlines())


async def test_a_crew_goes_on_with_the_words_and_the_approval_of_a_person(emptied_url: str, tmp_path: Path) -> None:
    async with world_of(crew_project(tmp_path / "crew", MODEL + CREW), emptied_url, tmp_path) as world:
        kickoff = await world.accept()
        assert (await asked(world, kickoff)).task == "b"
        tasks = await world.database.rows("SELECT name, state FROM task_records ORDER BY position", {})
        assert [tuple(one.values()) for one in tasks] == [
            ("a", "completed"),
            ("b", "pending_human_input"),
            ("c", "pending_run"),
        ]
        await answered(world, kickoff, Answer(approved=False, feedback="again [b]"))
        async with asyncio.timeout(SECONDS):
            while (await world.status(kickoff)).attempt == 1:  # noqa: ASYNC110 - polls the database
                await asyncio.sleep(0.02)
        await asked(world, kickoff)
        await answered(world, kickoff)
        done = await world.ended(kickoff)
        assert (done.state, done.output, done.attempt) == (State.SUCCESS, '"c of attempt 3"', 3), done.error
        assert calls(tmp_path) == ["a", "b", "b", "c"]
        types = [row["type"] for row in await world.events(kickoff)]
        assert not {"task_failed", "crew_kickoff_failed", "traceback"} & set(types)
        assert (types.count("human_input_requested"), types.count("human_input_received")) == (2, 2)
        assert [one.ended_as for one in await world.store.attempts(kickoff)] == ["paused", "paused", "SUCCESS"]
        assert not any("rror" in line or "mismatch" in line for line in await world.lines(kickoff))


async def test_a_flow_goes_on_with_its_files_and_waits_alive_where_it_must(emptied_url: str, tmp_path: Path) -> None:
    async with world_of(flow_project(tmp_path / "flow", MODEL + FLOW), emptied_url, tmp_path) as world:
        kickoff = await world.accept()
        question = await asked(world, kickoff)
        assert (question.method, question.choices, question.waits) == ("draft", ["yes", "no"], False)
        await answered(world, kickoff, Answer(approved=True, feedback="yes"))
        async with asyncio.timeout(SECONDS):
            while (await world.status(kickoff)).attempt == 1:  # noqa: ASYNC110 - polls the database
                await asyncio.sleep(0.02)
        question = await asked(world, kickoff)
        assert (question.question, question.waits) == ("Where?", True)
        await answered(world, kickoff, Answer(approved=True, feedback="here"))
        done = await world.ended(kickoff)
        assert (done.state, done.attempt) == (State.SUCCESS, 2), done.error
        assert done.output == '"[\\"a draft\\", \\"a draft\\", \\"here\\"]"'
        assert calls(tmp_path) == ["beside", "draft"]
