"""A zygote that has a project's own modules imported, in the project's environment."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from projects_for_tests.crews import crew_project, flow_project, one_task
from projects_for_tests.driver import DrivenZygote, until, until_gone, value_of
from projects_for_tests.ends import words_of
from projects_for_tests.making import function_project
from projects_for_tests.wild import wild
from windlass_child.protocol.messages import Inspected, Preload, Project, Ready, Succeeded, Unready

if TYPE_CHECKING:
    from pathlib import Path

    from windlass_child.protocol.messages import Failed

CODE = """
import os, sys

imported_by = os.getpid()
key = os.environ.get("MODEL_KEY")
temporary = os.environ["TMPDIR"]

def run():
    return {
        "in_the_child": imported_by == os.getpid(),
        "key": key,
        "now": os.environ.get("MODEL_KEY"),
        "only_of_the_zygote": os.environ.get("ONLY_OF_THE_ZYGOTE"),
    }
"""


def order_for(folder: Path, code: str = CODE, **environment: str) -> Preload:
    project = Project("function", str(function_project(folder, code)), "work:run")
    return Preload(project, environment)


def run(zygote: DrivenZygote, project: Project, folder: Path, start: str = "fork", **environment: str) -> Any:
    child = zygote.fork(start)
    child.run(project, folder / child.name, environment=environment)
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    return value_of(answer) if answer.structured else answer.output


def test_a_child_finds_its_project_imported_in_its_environment(tmp_path: Path) -> None:
    order = order_for(tmp_path / "project", MODEL_KEY="sk-at-import", ONLY_OF_THE_ZYGOTE="1")
    with DrivenZygote(tmp_path / "zygote", order=order) as zygote:
        assert isinstance(zygote.ready(), Ready)
        found = run(zygote, order.project, tmp_path, MODEL_KEY="sk-of-the-run")
    assert found == {"in_the_child": False, "key": "sk-at-import", "now": "sk-of-the-run", "only_of_the_zygote": None}


def test_a_child_by_exec_imports_it_itself_and_gets_no_environment_of_it(tmp_path: Path) -> None:
    order = order_for(tmp_path / "project", MODEL_KEY="sk-at-import")
    with DrivenZygote(tmp_path / "zygote", order=order) as zygote:
        assert isinstance(zygote.ready(), Ready)
        found = run(zygote, order.project, tmp_path, "exec")
    assert found == {"in_the_child": True, "key": None, "now": None, "only_of_the_zygote": None}


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="it takes Linux, and root to read it")
def test_a_child_by_exec_is_not_started_with_the_environment_of_the_project(tmp_path: Path) -> None:
    order = Preload(wild(tmp_path / "project"), {"MODEL_KEY": "sk-at-import"})
    with DrivenZygote(tmp_path / "zygote", order=order, environment={"OF_THE_MACHINE": "1"}) as zygote:
        assert isinstance(zygote.ready(), Ready)
        child = zygote.fork("exec")
        child.run(order.project, tmp_path / "folder", inputs={"do": "environment_at_start"})
        answer = child.answer()
    found = value_of(answer)
    assert "OF_THE_MACHINE=1" in found
    assert "MODEL_KEY=sk-at-import" not in found


def test_its_environment_is_on_no_command_line_and_not_what_it_was_started_with(tmp_path: Path) -> None:
    order = order_for(tmp_path / "project", MODEL_KEY="sk-at-import")
    with DrivenZygote(tmp_path / "zygote", order=order) as zygote:
        zygote.ready()
        process = psutil.Process(zygote.process.pid)
        assert "sk-at-import" not in words_of(process)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('not today')\n", "RuntimeError: not today (work.py:1)"),
        ("import no_such_package\n", "the package 'no_such_package' is not installed in "),
        ("import sys\nsys.exit(3)\n", "the crew's code ended its process with sys.exit(3) (work.py:2)."),
    ],
    ids=["raises", "lacks", "exits"],
)
def test_a_project_that_can_not_be_imported_is_told_in_words(tmp_path: Path, code: str, words: str) -> None:
    with DrivenZygote(tmp_path / "zygote", order=order_for(tmp_path / "project", code)) as zygote:
        answer = zygote.ready()
    assert isinstance(answer, Unready)
    assert answer.message.startswith(words)


def test_a_secret_in_what_it_raises_at_import_is_not_told(tmp_path: Path) -> None:
    order = order_for(
        tmp_path / "project", "import os\nraise RuntimeError(os.environ['MODEL_KEY'])\n", MODEL_KEY="sk-at-import"
    )
    with DrivenZygote(tmp_path / "zygote", order=order) as zygote:
        answer = zygote.ready()
    assert answer == Unready("RuntimeError: [secret] (work.py:2)")


@pytest.fixture
def below_a_parent() -> list[str]:
    """A command that runs the zygote, and that the zygote is to take for the server."""
    code = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], pass_fds=[int(sys.argv[4])])"
    return [sys.executable, "-c", code]


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process of its parent's end")


@linux_only
def test_a_project_whose_import_does_not_end_dies_with_the_server(tmp_path: Path, below_a_parent: list[str]) -> None:
    code = "import time\nopen('importing', 'w').close()\ntime.sleep(600)\n"
    order = order_for(tmp_path / "project", code)
    with DrivenZygote(tmp_path / "zygote", order=order, command=below_a_parent) as zygote:
        until((tmp_path / "zygote" / "work" / "importing").exists)
        (importing,) = psutil.Process(zygote.process.pid).children()
        try:
            zygote.process.kill()
            until_gone(importing.pid)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                importing.kill()


@linux_only
def test_a_zygote_that_is_ready_hears_of_the_end_from_its_socket_alone(
    tmp_path: Path, below_a_parent: list[str]
) -> None:
    order = order_for(tmp_path / "project")
    with DrivenZygote(tmp_path / "zygote", order=order, command=below_a_parent) as zygote:
        zygote.ready()
        (serving,) = psutil.Process(zygote.process.pid).children()
        zygote.process.kill()
        zygote.process.wait(60)
        assert run(zygote, order.project, tmp_path)["in_the_child"] is False
    until_gone(serving.pid)


@linux_only
@pytest.mark.parametrize(("gone", "printed"), [(False, b"begins\n"), (True, b"")])
def test_a_zygote_whose_server_is_gone_already_does_not_begin(gone: bool, printed: bytes) -> None:
    code = "import sys; from windlass_child.process import hardening; hardening.die_with_parent(int(sys.argv[1]))"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if gone:
            ours.close()
        arguments = [sys.executable, "-c", f"{code}; print('begins')", str(theirs.fileno())]
        assert subprocess.check_output(arguments, pass_fds=[theirs.fileno()], timeout=30) == printed


def test_processes_that_the_project_starts_at_import_live_as_long_as_the_zygote(tmp_path: Path) -> None:
    code = "import subprocess\nhelper = subprocess.Popen(['sleep', '600'])\ndef run():\n    return helper.pid\n"
    order = order_for(tmp_path / "project", code)
    with DrivenZygote(tmp_path / "zygote", order=order) as zygote:
        zygote.ready()
        pid = run(zygote, order.project, tmp_path)
        run(zygote, order.project, tmp_path)
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


def test_a_worker_that_goes_away_before_it_says_what_to_import_ends_it(tmp_path: Path) -> None:
    with DrivenZygote(tmp_path / "zygote", order=order_for(tmp_path / "project")) as zygote:
        zygote.channel.shutdown(2)
        assert zygote.process.wait(60) == 0


@pytest.mark.xdist_group("crewai")
def test_a_crew_is_imported_and_not_built(tmp_path: Path) -> None:
    code = "imported_by = os.getpid()\n" + one_task().replace("    @crew\n", AFTER + "    @crew\n")
    project = Project("crew", str(crew_project(tmp_path / "project", code)), "work.crew")
    with DrivenZygote(tmp_path / "zygote", "crewai", Preload(project, {"HOME": str(tmp_path)})) as zygote:
        answer = zygote.ready()
        assert isinstance(answer, Ready), answer
        assert run(zygote, project, tmp_path) == "imported before"
        assert run(zygote, project, tmp_path) == "imported before"


@pytest.mark.xdist_group("crewai")
def test_a_crew_runs_in_a_child_by_exec(tmp_path: Path) -> None:
    project = Project("crew", str(crew_project(tmp_path / "project", one_task())), "work.crew")
    with DrivenZygote(tmp_path / "zygote") as zygote:
        zygote.ready()
        inspected = zygote.fork("exec")
        inspected.inspect(project, tmp_path / "inspection")
        found: Inspected | Succeeded | Failed = inspected.answer()
        assert isinstance(found, Inspected), found
        assert run(zygote, project, tmp_path, "exec") == "said"


@pytest.mark.xdist_group("crewai")
@pytest.mark.parametrize("after", ["", "\nWork().crew().kickoff()\n"], ids=["a flow", "and a kickoff"])
def test_a_project_that_makes_a_flow_without_memory_at_import_leaves_no_threads(tmp_path: Path, after: str) -> None:
    at_import = """
from crewai.flow.flow import Flow, start

class Early(Flow):
    _skip_auto_memory = True  # its memory, a LanceDB, has a thread

    @start()
    def begin(self):
        return "early"

Early()
"""
    project = Project("crew", str(crew_project(tmp_path / "project", at_import + one_task() + after)), "work.crew")
    with DrivenZygote(tmp_path / "zygote", "crewai", Preload(project, {"HOME": str(tmp_path)})) as zygote:
        answer = zygote.ready()
        assert isinstance(answer, Ready), answer
        assert answer.threads == ""
        assert run(zygote, project, tmp_path) == "said"


def test_a_project_that_starts_a_thread_at_import_runs_in_fresh_interpreters(tmp_path: Path) -> None:
    thread = (
        "import threading\n"
        "threading.Thread(target=threading.Event().wait, name='of the project', daemon=True).start()\n"
    )
    order = order_for(tmp_path / "project", thread + CODE, MODEL_KEY="sk-at-import")
    with DrivenZygote(tmp_path / "zygote", order=order) as zygote:
        answer = zygote.ready()
        assert isinstance(answer, Ready), answer
        assert answer.threads == "of the project"
        assert run(zygote, order.project, tmp_path)["in_the_child"] is True


AFTER = """
    @after_kickoff
    def who(self, result):
        return "imported before" if imported_by == os.getppid() else "imported here"

"""


PERSISTED = """
from crewai.flow.persistence import persist

@persist()
class Counting(Flow):
    _skip_auto_memory = True

    @start()
    def begin(self):
        return sorted(os.listdir(os.environ["CREWAI_STORAGE_DIR"]))
"""


@pytest.mark.xdist_group("crewai")
def test_the_states_of_a_preloaded_flow_are_in_the_storage_of_each_run(tmp_path: Path) -> None:
    project = Project("flow", str(flow_project(tmp_path / "project", f"import os\n{PERSISTED}")), "main")
    order = Preload(project, {"HOME": str(tmp_path / "zygote" / "home")})
    with DrivenZygote(tmp_path / "zygote", "crewai", order=order) as zygote:
        assert isinstance(zygote.ready(), Ready)
        for name in ("one", "two"):
            assert "flow_states.db" in run(zygote, project, tmp_path / name)
