"""A process that runs several kickoffs of its crew: what each run finds, and what ends the process."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from child.conftest import CREWAI
from projects_for_tests.making import Bench, Heard, function_project, written
from windlass.kickoffs.states import State
from windlass_child.process.inbox import Inbox
from windlass_child.protocol.messages import Abort, JournalCommitted, JournalReplay, Lease, NextRun, Quit, Warned

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.kickoffs.outcome import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

REUSED: dict[str, Any] = {"reuse": 20, "version": "of the test"}

STATE = """
import contextvars, os, random, signal, sys, tempfile, time

os.environ["SET_AT_IMPORT"] = os.path.basename(os.getcwd())
os.environ.pop("REMOVED_AT_IMPORT", None)
signal.signal(signal.SIGUSR1, lambda *_: None)
variable = contextvars.ContextVar("variable", default="unset")
runs = 0


def state():
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "argv": [*sys.argv],
        "path": [*sys.path],
        "files": sorted(os.listdir()),
        "temporary": tempfile.gettempdir(),
        "signals": [str(type(signal.getsignal(one))) for one in (signal.SIGINT, signal.SIGUSR1, signal.SIGALRM)],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "variable": variable.get(),
        "zone": time.tzname,
    }


def change():
    os.environ["SET_BY_RUN"] = "1"
    os.environ["SET_AT_IMPORT"] = "changed"
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    del os.environ["PATH"]
    open("left.txt", "w").write("a file")
    tempfile.tempdir = "/nowhere"
    os.chdir("/")
    sys.argv[:] = ["changed", "all"]
    sys.path.insert(0, "/nowhere")
    for one in (signal.SIGINT, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(one, signal.SIG_IGN)
    signal.alarm(600)
    variable.set("set")


def run(changes: bool = False):
    global runs
    runs += 1
    found = {"pid": os.getpid(), "runs": runs, "random": random.random(), "state": state()}
    if changes:
        change()
    return found
"""


async def reused(bench: Bench, project: Path, inputs: dict[str, Any] | None = None, **more: Any) -> Outcome:
    outcome = await bench.run(project, inputs, **{**REUSED, **more})
    assert outcome.state is State.SUCCESS, outcome.error
    return outcome


async def why_not_reused(bench: Bench, project: Path, inputs: dict[str, Any] | None = None) -> str:
    """Returns the reason that a run gives for the end of its process, after it was made sure that the next run gets
    another one.
    """
    heard = Heard()
    await reused(bench, project, inputs, heard=heard)
    (warning,) = [one for one in heard.of(Warned) if one.code == "not_reused"]
    return str(warning.message).removeprefix("The next kickoff gets another process, because ")


async def test_a_run_finds_its_process_as_the_first_one_did(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path / "p", STATE)
    (project / "data.csv").write_text("1\n")
    environment = {"REMOVED_AT_IMPORT": "1", "OTHER": "2"}
    found = [
        (await reused(bench, project, {"changes": changes}, environment=environment)).json
        for changes in (False, True, True, False)
    ]
    assert [one["runs"] for one in found] == [1, 2, 3, 4], "the globals of modules stay"
    assert len({one["pid"] for one in found}) == 1
    assert len({one["random"] for one in found}) == len(found)
    first = found[0]["state"]
    assert (first["environment"]["SET_AT_IMPORT"], "REMOVED_AT_IMPORT" in first["environment"]) == ("work", False)
    assert first["files"] == ["data.csv", "pyproject.toml", "work.py"]
    for one in found[1:]:
        assert one["state"] == first


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        ("threading.Thread(target=time.sleep, args=(600,), name='of the crew').start()", "the run left threads: of"),
        ("subprocess.Popen(['sleep', '600'])", "the run left 1 processes that it had started"),
        ("held.append(open('log.txt', 'w'))", "the run left files or connections open: "),
        ("held.append(socket.socket())", "the run left files or connections open: socket:"),
        ("os.dup2(os.open(os.devnull, os.O_WRONLY), 2)", "the run left files or connections open: /dev/null"),
        ("os.close(0)", "the run left files or connections open: 0 was closed"),
    ],
)
async def test_what_a_run_leaves_ends_its_process(bench: Bench, tmp_path: Path, left: str, reason: str) -> None:
    modules = "import os, socket, subprocess, threading, time"
    body = f"def run(leaves: bool = False):\n    if leaves:\n        {left}\n    return os.getpid()\n"
    code = f"{modules}\nheld = []\n{body}"
    project = function_project(tmp_path / "p", code)
    first = (await reused(bench, project)).json
    assert (await why_not_reused(bench, project, {"leaves": True})).startswith(reason)
    assert (await reused(bench, project)).json != first


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("log = open('import.log', 'w')", "the import of its modules writes files in the working folder"),
        ("log = open('../tmp/import.log', 'w')", "the run left files or connections open: "),
    ],
)
async def test_an_import_that_writes_in_the_folder_of_the_first_run(
    bench: Bench, tmp_path: Path, line: str, reason: str
) -> None:
    project = function_project(tmp_path / "p", f"{line}\ndef run():\n    pass\n")
    assert (await why_not_reused(bench, project)).startswith(reason)


@CREWAI
async def test_a_framework_that_a_run_imports(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path / "p", "def run():\n    import crewai\n")
    heard = Heard()
    await reused(bench, project, heard=heard, preload=None)
    assert "import it at the top of the module" in heard.of(Warned)[-1].message


async def test_what_ends_soon_and_what_waits_for_the_garbage_collector_is_not_left(
    bench: Bench, tmp_path: Path
) -> None:
    code = """
        import os, threading, time

        class Loop:
            def __init__(self):
                self.me, self.file = self, open("log.txt", "w")

        def run():
            Loop()
            threading.Thread(target=time.sleep, args=(0.05,)).start()
            return os.getpid()
        """
    project = function_project(tmp_path / "p", "")
    written(project, {"work.py": code})
    assert (await reused(bench, project)).json == (await reused(bench, project)).json


async def test_lines_belong_to_their_run(bench: Bench, tmp_path: Path) -> None:
    body = "    for one in range(3):\n        print(name, one)\n    print('end', end='')\n"
    code = f"def run(name: str = ''):\n{body}"
    project = function_project(tmp_path / "p", code)
    for name in "abc":
        heard = Heard()
        await reused(bench, project, {"name": name}, heard=heard)
        assert heard.lines("stdout") == [f"{name} 0", f"{name} 1", f"{name} 2", "end"]


async def test_a_run_that_fails_ends_its_process(bench: Bench, tmp_path: Path) -> None:
    code = "import os\ndef run(fails: bool = False):\n    assert not fails, os.getpid()\n    return os.getpid()\n"
    project = function_project(tmp_path / "p", code)
    first = (await reused(bench, project)).json
    failed = await bench.run(project, {"fails": True}, **REUSED)
    assert str(first) in str(failed.error)
    assert (await reused(bench, project)).json != first


async def test_two_runs_at_once_have_two_processes(bench: Bench, tmp_path: Path) -> None:
    code = "import os, time\ndef run():\n    time.sleep(0.2)\n    return os.getpid()\n"
    project = function_project(tmp_path / "p", code)
    for _ in range(2):
        both = await asyncio.gather(reused(bench, project), reused(bench, project))
        assert len({one.json for one in both}) == 2


async def test_late_messages_of_the_last_run_do_not_reach_the_next_one() -> None:
    inbox = Inbox(None)  # type: ignore[arg-type]  # nothing is sent
    last = inbox.stopping, inbox.journal
    for message in (Lease(5.0), Abort("stop"), JournalReplay(1, "old", "{}"), JournalCommitted(1)):
        inbox.put(message)
    assert (last[0].asked, last[0].lease, last[1].left()) == ("stop", 5.0, 1)
    inbox.put(NextRun())
    inbox.put(JournalReplay(2, "new", "{}"))
    assert (inbox.stopping.asked, inbox.stopping.lease, inbox.journal.left()) == (None, None, 1)
    inbox.put(Quit())
    assert inbox.orders.get() is None


CREW = """
import os
from crewai import Agent, BaseLLM, Crew, Task
from crewai.events import CrewKickoffStartedEvent, crewai_event_bus
from crewai.events.base_event_listener import BaseEventListener
from crewai.hooks import register_before_llm_call_hook
from crewai.project import CrewBase, agent, crew, task

seen = []

class Model(BaseLLM):
    def call(self, messages, *_, **__):
        return "Thought: done\\nFinal Answer: " + str([os.getpid(), len(seen), len(calls)])

class Listener(BaseEventListener):
    def __init__(self, place):
        self.place = place
        super().__init__()

    def setup_listeners(self, bus):
        @bus.on(CrewKickoffStartedEvent)
        def started(source, event):
            seen.append(self.place)

calls = []
at_import = Listener("import")

@CrewBase
class Made:
    agents_config = {}
    tasks_config = {}

    @agent
    def writer(self) -> Agent:
        return Agent(role="Writer", goal="Write", backstory="Writes.", llm=Model(model="made"))

    @task
    def write(self) -> Task:
        return Task(description="Write about {topic}", expected_output="A text", agent=self.writer())

    @crew
    def crew(self) -> Crew:
        Listener("run")
        register_before_llm_call_hook(lambda context: calls.append(1))
        return Crew(agents=self.agents, tasks=self.tasks)
"""


@CREWAI
async def test_crews_of_one_process_share_no_agents_listeners_or_hooks(bench: Bench, tmp_path: Path) -> None:
    files = {"pyproject.toml": '[tool.windlass]\ncrew = "made:Made"\n', "made.py": CREW}
    project = written(tmp_path / "p", files)
    found = []
    for _ in range(3):
        heard = Heard()
        outcome = await reused(bench, project, {"topic": "ducks"}, heard=heard)
        assert [one for one in heard.of(Warned) if one.code == "not_reused"] == []
        found.append(json.loads(str(outcome.output)))
    pids, listened, hooked = zip(*found, strict=True)
    assert len(set(pids)) == 1
    assert listened == (2, 4, 6), "each run has the listener of the import and its own, once"
    assert hooked == (1, 2, 3), "and one hook"


FLOW = """
import os, socket
from crewai.flow.flow import Flow, start

held = []

class Made(Flow):
    @start()
    def begin(self):
        if self.state.get("listens"):
            held.append(socket.create_server(("127.0.0.1", 0)))
        return str([os.getpid(), len(self.state.keys())])
"""


@CREWAI
async def test_the_threads_of_a_flows_memory_stay_and_nothing_else(bench: Bench, tmp_path: Path) -> None:
    project = written(tmp_path / "p", {"pyproject.toml": '[tool.windlass]\nflow = "made:Made"\n', "made.py": FLOW})
    found = [(await reused(bench, project)).output for _ in range(3)]
    assert len(set(found)) == 1, "one process, and a new state for each run"
    reason = await why_not_reused(bench, project, {"listens": True})
    assert reason.startswith("the run left files or connections open: socket:")


@CREWAI
async def test_an_object_that_a_module_makes_is_not_shared_by_runs(bench: Bench, tmp_path: Path) -> None:
    code = CREW + "\nmade = Made().crew()\n"
    files = {"pyproject.toml": '[tool.windlass]\ncrew = "made:made"\n', "made.py": code}
    project = written(tmp_path / "p", files)
    reason = await why_not_reused(bench, project, {"topic": "ducks"})
    assert reason.startswith("made:made is an object that its module makes, and runs would share it")


async def test_another_environment_has_another_process(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path / "p", "import os\ndef run():\n    return [os.getpid(), os.environ.get('A')]\n")
    orders: list[dict[str, Any]] = [
        {"environment": {"A": "1"}},
        {"environment": {"A": "2"}},
        {"environment": {}},
        {"environment": {"A": "1"}, "secrets": frozenset({"A"})},
        {"environment": {"A": "1"}, "version": "another crew"},
        {"environment": {"A": "1"}, "digest": "other files"},
        {"environment": {"A": "1"}, "preload_project": True},
        {"environment": {"A": "1"}, "start": "exec"},
        {"environment": {"A": "1"}, "isolated": True},
        {"environment": {"A": "1"}, "reuse": 1},
    ]
    first = [(await reused(bench, project, **order)).json for order in orders]
    second = [(await reused(bench, project, **order)).json for order in orders]
    assert len({pid for pid, _ in first}) == len(orders)
    shared = [one == other for one, other in zip(first, second, strict=True)]
    assert shared == [True] * 8 + [False] * 2
    assert [value for _, value in second] == [order["environment"].get("A") for order in orders]
    assert os.getpid() not in {pid for pid, _ in first}
