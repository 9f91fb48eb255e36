"""Which log records of a run are printed, and which become events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import crew_project
from projects_for_tests.making import Bench, Heard, function_project, written
from projects_for_tests.model_server import ModelServer
from windlass_child.process.library_logs import EVENT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

LIBRARY = """
import logging

def brew():
    logging.info("sets up nothing")
    for _ in range(3):
        logging.getLogger("tealib").warning("%s is %s", "tea", "hot")
    logging.getLogger("tealib").error("no tea left")
"""
WORK = """
import logging, os, sys
sys.path.append(os.path.join(os.path.dirname(__file__), ".venv/lib/site-packages"))
import tealib

def run(set_up: bool = False):
    if set_up:
        logging.basicConfig(format="mine: %(message)s")
    logging.getLogger("work").warning("the crew's own")
    tealib.brew()
"""
MODEL_OF_ONE_TASK = """
@CrewBase
class Work:
    @crew
    def crew(self):
        llm = LLM(model="openai/gpt-4o-mini")
        agent = worker(role="worker", llm=llm)
        return Crew(agents=[agent], tasks=[Task(description="Work", expected_output="Work", agent=agent)])
"""


def project(folder: Path) -> Path:
    written(folder, {".venv/lib/site-packages/tealib.py": LIBRARY})
    return function_project(folder, WORK)


async def test_a_warning_of_a_library_is_an_event_and_all_else_is_printed(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    await bench.run(project(tmp_path), {}, {}, heard)
    assert heard.events(EVENT) == [{"logger": "tealib", "level": "WARNING", "message": "tea is hot"}]
    assert heard.lines("stderr") == ["WARNING:work:the crew's own", "ERROR:tealib:no tea left"]


async def test_a_crew_that_sets_up_logging_gets_every_record(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    await bench.run(project(tmp_path), {"set_up": True}, {}, heard)
    assert heard.events(EVENT) == []
    assert heard.lines("stderr") == ["mine: the crew's own", *["mine: tea is hot"] * 3, "mine: no tea left"]


async def test_a_crew_prints_no_warnings_of_its_framework(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    with ModelServer() as model:
        outcome = await bench.run(crew_project(tmp_path, MODEL_OF_ONE_TASK), {}, model.environment, heard)
    assert outcome.output == "the model's answer"
    assert heard.lines("stderr") == []
    assert not [one for one in heard.events(EVENT) if one["logger"].startswith("crewai.")], "no line on token counts"
