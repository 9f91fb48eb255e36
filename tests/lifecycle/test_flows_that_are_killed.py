"""With a real worker and its journal in PostgreSQL: what a flow has finished is not run again when it is killed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import World
from lifecycle.test_retried_runs import with_retries
from projects_for_tests.crews import flow_project
from projects_for_tests.interrupted import MODEL
from windlass.kickoffs.states import State
from windlass.lifecycle.worker_config import CrewEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from windlass.store.claiming import Claimed

pytestmark = pytest.mark.xdist_group("crewai")

CODE = """
import signal


def dies_in(attempt):
    if os.environ["ATTEMPT"] == attempt:
        os.kill(os.getpid(), signal.SIGKILL)


class Killed(Flow):
    _skip_auto_memory = True

    @start()
    def a(self):
        note("calls", "a")
        with open("facts.txt", "w") as file:
            file.write("facts")
        self.state[1], self.notes = ["a"], {"set in": "a"}
        return self.state[1]

    @listen(a)
    def b(self, words):
        agent = one()
        said = Crew(agents=[agent], tasks=[step("p", agent, output_file="p.md"), step("q", agent)]).kickoff()
        dies_in("1")
        words.append(said.raw)
        return said

    @listen(b)
    def c(self, said):
        dies_in("2")
        with open("facts.txt") as facts, open("p.md") as written:
            note("files", facts.read() + ", " + written.read())
        note("found", repr([self.state[1], self.notes, said.raw]))
"""


@pytest.fixture
async def flows(emptied_url: str, tmp_path: Path) -> AsyncIterator[World]:
    world = World(emptied_url, tmp_path, AsyncExitStack())
    world.project = flow_project(tmp_path / "flow", MODEL + CODE)
    async with world:
        yield world


async def test_a_flow_and_the_crew_in_it_go_on_from_the_database(flows: World, tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    async def environment(claimed: Claimed) -> CrewEnvironment:
        return CrewEnvironment({"NOTES": str(notes), "ATTEMPT": str(claimed.attempt), "ANSWERS": "{}"})

    await with_retries(flows, attempts=3, backoff=0.01, reasons=["crashed"])
    await flows.worker(environment)
    kickoff = await flows.accept()
    status = await flows.ended(kickoff)
    assert (status.state, status.attempt) == (State.SUCCESS, 3), status.error
    assert notes.read_text("utf-8").splitlines() == [
        "calls a",
        "calls p",
        "calls q",
        "files facts, p of attempt 1",
        "found [['a', 'q of attempt 1'], {'set in': 'a'}, 'q of attempt 1']",
    ]
    assert [file.path for file in await flows.store.files.of(kickoff)] == ["facts.txt", "p.md"]
    attempts = await flows.database.rows("SELECT ended_as, restored FROM attempts ORDER BY attempt")
    assert [tuple(row.values()) for row in attempts] == [("retried", 0), ("retried", 3), ("SUCCESS", 4)]
