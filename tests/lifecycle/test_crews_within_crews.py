from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import World
from projects_for_tests.crews import crew_project
from windlass.kickoffs.states import State
from windlass.lifecycle.worker_config import CrewEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from windlass.store.claiming import Claimed

pytestmark = pytest.mark.xdist_group("crewai")

SECONDS = 90.0
"""crewai is imported first."""

CODE = """
import signal

class Mortal(Parrot):
    def call(self, messages, *arguments, **named):
        if "[b]" in str(messages[-1]) and os.environ["ATTEMPT"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return "Final Answer: of attempt " + os.environ["ATTEMPT"]

def inner(output):
    agent = worker(role="inner", llm=Mortal(model="mortal"))
    tasks = [Task(name="within " + output.name, description="Look", expected_output="Words", agent=agent)]
    Crew(agents=[agent], tasks=tasks).kickoff()

@CrewBase
class Work:
    @crew
    def crew(self):
        agent = worker(llm=Mortal(model="mortal"))
        tasks = [Task(name=name, description=f"Do [{name}]", expected_output="Words", agent=agent, callback=inner)
                 for name in "ab"]
        return Crew(agents=[agent], tasks=tasks)
"""

RETRIES = """
[tool.windlass.retries]
attempts = 2
backoff = 0.01
"""


@pytest.fixture
async def crews(emptied_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """A world whose project is a crew with crews in its callbacks."""
    made = World(emptied_url, tmp_path, AsyncExitStack())
    made.project = crew_project(tmp_path / "crew", CODE)
    with made.project.joinpath("pyproject.toml").open("a") as declared:
        declared.write(RETRIES)
    async with made as world:
        yield world


async def attempt_of(claimed: Claimed) -> CrewEnvironment:
    return CrewEnvironment({"ATTEMPT": str(claimed.attempt)})


async def test_crews_that_a_crew_kicked_off_keep_their_task_records_over_an_interruption(crews: World) -> None:
    await crews.worker(attempt_of)
    kickoff = await crews.accept()
    async with asyncio.timeout(SECONDS):
        while (found := await crews.statuses.get_ended(kickoff, SECONDS)) is None or not found.state.ended:
            pass
    assert (found.state, found.attempt) == (State.SUCCESS, 2)
    rows = await crews.database.rows(
        "SELECT position, name, state, output, attempt FROM task_records ORDER BY position", {}
    )
    assert [tuple(row.values()) for row in rows] == [
        (0, "a", "completed", "of attempt 1", 1),
        (1, "b", "completed", "of attempt 2", 2),
        (2, "within a", "completed", "of attempt 1", 1),
        (3, "within b", "completed", "of attempt 2", 2),
    ]
