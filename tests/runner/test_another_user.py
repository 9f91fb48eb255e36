"""As root, crews run as another user, and what is the server's stays the server's."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from projects_for_tests.able import able
from projects_for_tests.another_user import config_of
from projects_for_tests.driver import until
from projects_for_tests.making import Bench, Heard, function_project, running_bench
from windlass.accounts import Account
from windlass.errors import ProjectError, SettingsError
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner.crew_account import UNNAMED, check_reach, crew_account
from windlass.runner.run_spec import TaskBounds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OPEN_INTERPRETER = Path("/usr/bin/python3.11")

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux" or not OPEN_INTERPRETER.exists(),
    reason="needs root, and an interpreter that every user can reach",
)


@pytest.fixture
async def bench(open_folder: Path) -> AsyncIterator[Bench]:
    async with running_bench(open_folder / "scratch", config_of(crew_account(None)), OPEN_INTERPRETER) as bench:
        yield bench


@as_root
async def test_a_crew_runs_as_a_user_that_is_not_the_server(bench: Bench, open_folder: Path) -> None:
    outcome = await bench.run(able(open_folder / "project"), {"do": "look", "paths": {}})
    assert outcome.json["uid"] not in {0, os.geteuid()}
    assert outcome.json["home"].startswith(str(open_folder / "scratch"))


@as_root
async def test_a_project_that_is_imported_before_its_runs_looks_for_its_things_at_that_users(
    bench: Bench, open_folder: Path
) -> None:
    code = "import os\nHOME = os.environ['HOME']\ndef run():\n    return HOME"
    project = function_project(open_folder / "project", code)
    outcome = await bench.run(project, preload_project=True)
    assert isinstance(outcome.output, str)
    assert outcome.output.startswith(str(open_folder / "scratch"))


@as_root
async def test_a_crew_can_read_nothing_of_the_servers(bench: Bench, open_folder: Path) -> None:
    key = open_folder / "master.key"
    key.write_text("a key")
    key.chmod(0o600)
    ours = os.getpid()
    paths = {
        "environment": f"/proc/{ours}/environ",
        "memory": f"/proc/{ours}/mem",
        "key": str(key),
        "other folders": str(open_folder / "scratch" / ".lock"),
    }
    outcome = await bench.run(able(open_folder / "project"), {"do": "look", "paths": paths})
    assert outcome.json["found"] == dict.fromkeys(paths, "Permission denied")


@as_root
async def test_what_a_crew_starts_as_another_user_ends_with_it(bench: Bench, open_folder: Path) -> None:
    project = able(open_folder / "project")
    outcome = await bench.run(project, {"do": "bomb"}, limits=Limits(process_limit=20))
    assert outcome.reason is Reason.LIMIT
    # those of other tests that run as this user come and go meanwhile
    until(lambda: all("__main__.py" in command_of(pid) for pid in processes_of(outcome_uid())))


@as_root
async def test_a_project_in_a_folder_of_root_alone_is_copied_and_again_when_it_changes(
    bench: Bench, tmp_path: Path
) -> None:
    project = function_project(tmp_path / "project", "import os\ndef run():\n    return [os.getuid(), __file__]\n")
    (project / "secret").write_text("for root and the crew")
    (project / "secret").chmod(0o600)
    first = (await bench.run(project)).json
    assert (await bench.run(project)).json == first
    assert first[0] == outcome_uid()
    (project / "work.py").write_text("def run():\n    return open(__file__.replace('work.py', 'secret')).read()\n")
    assert (await bench.run(project)).output == "for root and the crew"


@as_root
async def test_a_project_behind_a_closed_folder_of_a_user_is_refused(bench: Bench, open_folder: Path) -> None:
    """Root would copy what its links name."""
    project = able(open_folder / "closed" / "project")
    os.chown(open_folder / "closed", 54_321, 54_321)
    (open_folder / "closed").chmod(0o700)
    outcome = await bench.run(project)
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert "crews run as the user windlass-crew, which can't reach" in str(outcome.error)
    assert "chmod a+x" in str(outcome.error)


@as_root
async def test_an_interpreter_that_everyone_can_replace_is_not_started(bench: Bench, open_folder: Path) -> None:
    project = able(open_folder / "project")
    binaries = open_folder / "binaries"
    binaries.mkdir()
    (binaries / "python").symlink_to(OPEN_INTERPRETER)
    binaries.chmod(0o777)
    bench.interpreter = binaries / "python"
    outcome = await bench.run(project)
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert f"{binaries} can be written by everyone" in str(outcome.error)


@as_root
async def test_an_interpreter_is_checked_for_each_run(bench: Bench, open_folder: Path) -> None:
    project, binaries = able(open_folder / "project"), open_folder / "binaries"
    binaries.mkdir()
    bench.interpreter = binaries / "python"
    bench.interpreter.symlink_to(OPEN_INTERPRETER)
    look = {"do": "look", "paths": {}}
    for start in ("fork", "exec"):
        assert (await bench.run(project, look, start=start)).state is State.SUCCESS
    binaries.chmod(0o777)
    for another in ({}, {"isolated": True}, {"start": "exec"}):
        refused = await bench.run(project, look, **another)
        assert f"{binaries} can be written by everyone" in str(refused.error)


@as_root
def test_a_user_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingsError, match="There is no user nosuchuser"):
        crew_account("nosuchuser")


@as_root
def test_root_can_be_wanted() -> None:
    assert crew_account("root") is None


@as_root
def test_a_place_behind_a_closed_folder_is_out_of_reach(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    found = crew_account(None)
    assert found is not None
    check_reach(found, [Path("/usr/bin")])
    with pytest.raises(ProjectError, match="is closed to it"):
        check_reach(found, [closed])
    with pytest.raises(ProjectError, match="can't be reached: No such file or directory"):
        check_reach(found, [Path("/usr/not-there")])


def outcome_uid() -> int:
    found = crew_account(None)
    assert found is not None
    return found.uid


def processes_of(uid: int) -> list[int]:
    found = [(one.pid, one.info) for one in psutil.process_iter(["uids", "status"])]
    return [pid for pid, info in found if uid in (info["uids"] or ()) and info["status"] != psutil.STATUS_ZOMBIE]


def command_of(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return ""


@as_root
async def test_what_the_other_user_may_start_is_bounded(open_folder: Path) -> None:
    own = UNNAMED - 1  # not the one of the tests that run beside it: a user's processes are counted together
    account = Account(own, own, "bounded", is_ours=False)
    config = config_of(account, tasks=TaskBounds(20))
    project = able(open_folder / "project")
    async with running_bench(open_folder / "scratch", config, OPEN_INTERPRETER) as bench:
        outcome = await bench.run(project, {"do": "start_processes", "count": 100})
    assert "Resource temporarily unavailable" in str(outcome.error)


@as_root
async def test_a_crew_that_is_closed_to_the_other_user_later_on_does_not_become_root(
    bench: Bench, open_folder: Path
) -> None:
    project = able(open_folder / "project")
    assert (await bench.run(project, {"do": "look", "paths": {}})).json["uid"] != 0
    project.chmod(0o700)
    assert (await bench.run(project, {"do": "look", "paths": {}})).json["uid"] == outcome_uid(), "a copy of it"
    os.chown(project, 54_321, 54_321)
    outcome = await bench.run(project, {"do": "look", "paths": {}})
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert "is closed to it" in str(outcome.error)


@as_root
async def test_a_project_that_is_gone_is_told_of(bench: Bench, open_folder: Path) -> None:
    project = able(open_folder / "project")
    found = recognise(project)
    assert (await bench.run(project, {"do": "look", "paths": {}})).state is State.SUCCESS
    shutil.rmtree(project)
    outcome = await bench.runner.run(bench.order(found, {}, {}), Heard().report)
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert "Check that the project exists" in str(outcome.error)
