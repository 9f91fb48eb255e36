"""What libraries and frameworks keep in a process that runs several kickoffs of its crew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from child.conftest import CREWAI
from projects_for_tests.making import Bench, Heard, function_project, written
from projects_for_tests.model_server import ModelServer
from windlass.kickoffs.states import State
from windlass_child.protocol.messages import Warned

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def three_runs(bench: Bench, project: Path, environment: dict[str, str] | None = None) -> list[Any]:
    """Returns the results of three runs in one process, each of which begins with the id of the process."""
    found = []
    for _ in range(3):
        heard = Heard()
        outcome = await bench.run(project, {}, environment, heard, reuse=20, version="of the test")
        assert outcome.state is State.SUCCESS, outcome.error
        assert [one.message for one in heard.of(Warned) if one.code == "not_reused"] == []
        found.append(outcome.json)
    assert len({pid for pid, *_ in found}) == 1
    return [tuple(rest) for _, *rest in found]


PLACES = """
import functools, os, tempfile
from pathlib import Path

OUT = Path.cwd() / "out"
os.environ["OUT"] = str(OUT)


class Places:
    all = {"out": [os.path.abspath("out")], "temporary": (tempfile.gettempdir(), Path.home())}


def run(place=os.getcwd(), write=functools.partial(Path.write_text, OUT)):
    write("text")
    here = [place, str(OUT.parent), os.path.dirname(os.environ["OUT"]), os.path.dirname(Places.all["out"][0])]
    temporary = [str(one) for one in Places.all["temporary"]]
    same = temporary == [tempfile.gettempdir(), os.environ["HOME"]] and set(here) == {os.getcwd()}
    return [os.getpid(), same, sorted(os.listdir())]
"""


async def test_the_paths_that_modules_keep_are_those_of_each_run(bench: Bench, tmp_path: Path) -> None:
    found = await three_runs(bench, function_project(tmp_path / "p", PLACES))
    assert found == [(True, ["out", "pyproject.toml", "work.py"])] * 3


STANDARD = """
import os, random, sys

sys.path.append(os.getcwd())


def run():
    import later
    variables = [os.environ.get(name) for name in ("SET_LATER", "SET_BY_RUN")]
    found = [os.getpid(), random.random(), *variables, os.getcwd() in sys.path]
    random.seed(1)
    os.environ["SET_BY_RUN"] = "1"
    return found
"""


async def test_the_standard_library(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path / "p", "")
    written(project, {"work.py": STANDARD, "later.py": "import os\nos.environ['SET_LATER'] = 'yes'\n"})
    found = await three_runs(bench, project)
    assert len({number for number, *_ in found}) == 3, "the seed of a run is its own"
    assert {tuple(rest) for _, *rest in found} == {("yes", None, True)}


HTTP = """
import os
import httpx, openai, requests

clients = [requests.Session(), httpx.Client()]
model = openai.OpenAI()


def run():
    for client in clients:
        asked = {"model": "gpt-4o", "messages": [{"role": "user", "content": "x"}]}
        client.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=asked).raise_for_status()
    answer = model.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "x"}])
    return [os.getpid(), answer.choices[0].message.content]
"""


@CREWAI
async def test_connections_of_clients_of_modules(bench: Bench, tmp_path: Path) -> None:
    with ModelServer("answer") as server:
        found = await three_runs(bench, function_project(tmp_path / "p", HTTP), server.environment)
    assert found == [("answer",)] * 3


FLOW = """
import os
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from crewai.flow.persistence import factory

runs = []
own = SQLiteFlowPersistence()


@persist()
class Counting(Flow):
    _skip_auto_memory = True

    @start()
    def begin(self):
        runs.append(1)
        self.state["runs"] = len(runs)
        own.save_state(self.state["id"], "begin", dict(self.state))

    @listen(begin)
    def end(self):
        kept, factory._factory = factory._factory, dict
        saved = own.load_state(self.state["id"])["runs"]
        return [os.getpid(), saved, sorted(os.listdir(os.environ["CREWAI_STORAGE_DIR"])), kept]
"""


@CREWAI
async def test_flows_that_keep_their_state(bench: Bench, tmp_path: Path) -> None:
    files = {"pyproject.toml": '[tool.windlass]\nflow = "counting:Counting"\n', "counting.py": FLOW}
    found = await three_runs(bench, written(tmp_path / "p", files))
    assert [saved for saved, *_ in found] == [1, 2, 3]
    assert all("flow_states.db" in files for _, files, _ in found)
    assert [factory for *_, factory in found] == [None] * 3


CHECKPOINTS = """
import os
from crewai import Agent, BaseLLM, Crew, Task


class Model(BaseLLM):
    def call(self, messages, *_, **__):
        return "Thought: done\\nFinal Answer: done"


def count(output):
    found = [name for _, _, names in os.walk(".checkpoints") for name in names]
    output.json_dict = None
    output.raw = f"[{os.getpid()}, {len(found)}]"
    return output


def build():
    agent = Agent(role="Writer", goal="Write", backstory="Writes.", llm=Model(model="made"))
    task = Task(description="Write", expected_output="A text", agent=agent)
    return Crew(agents=[agent], tasks=[task], checkpoint=True, after_kickoff_callbacks=[count])
"""


@CREWAI
async def test_checkpoints_of_crews(bench: Bench, tmp_path: Path) -> None:
    files = {"pyproject.toml": '[tool.windlass]\ncrew = "made:build"\n', "made.py": CHECKPOINTS}
    project = written(tmp_path / "p", files)
    outcomes = [await bench.run(project, reuse=20, version="of the test") for _ in range(3)]
    (found,) = {str(one.output) for one in outcomes}
    assert found.startswith("[")
    assert not found.endswith(", 0]")
