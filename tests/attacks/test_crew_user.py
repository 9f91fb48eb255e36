"""As root: crews run as another user or not at all, and that user owns nothing of the server's."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attacks.other_user import INTERPRETER, as_root
from faults.dev_server import WINDLASS, DevServer
from projects_for_tests.ends import paths_below
from projects_for_tests.making import function_project
from windlass.accounts import Account
from windlass.runner.crew_account import crew_account
from windlass.runner.prepared_interpreters import prepare

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="what happens as root needs root, on Linux"
)

STRANGER = 54_321
WHO = """
import os, sys

def wait(seconds: float, home: str) -> dict:
    \"\"\"Who runs this, and which files of the interpreter, of Windlass and of its home the user could change.\"\"\"
    import ssl
    places = [sys.executable, os.path.realpath(sys.executable), os.__file__, os.path.dirname(os.__file__), __file__]
    for folder, _, files in [*os.walk(home + "/postgres/data"), (home, [], ["master.key"])]:
        places += [folder, *(os.path.join(folder, file) for file in files)]
    return {"uid": os.getuid(), "writable": [place for place in places if os.access(place, os.W_OK)]}
"""


def who(server: DevServer) -> dict[str, Any]:
    status = server.ended(server.kickoff(0, home=str(server.home)))
    assert status["state"] == "SUCCESS", (status, server.log)
    answer: dict[str, Any] = status["result"]["json"]
    return answer


def refused(server: DevServer, **variables: str) -> str:
    """Returns what `windlass dev` prints when it does not start."""
    if server.starts(**variables):
        pytest.fail(f"it serves a crew: {who(server)}")
    assert server.process is not None
    assert server.process.returncode == 1
    return server.log


def test_on_windlass_own_interpreter_a_crew_of_a_root_server_is_not_root(idle_server: DevServer) -> None:
    idle_server.write_project(WHO)
    idle_server.start()
    assert who(idle_server) == {"uid": crew_uid(), "writable": []}


def test_a_project_in_a_folder_of_root_alone_is_served_and_not_as_root(idle_server: DevServer) -> None:
    closed = idle_server.folder / "closed"
    closed.mkdir(mode=0o700)
    idle_server.write_project(WHO)
    (idle_server.project / ".env").write_text("SECRET=1\n")
    idle_server.project.rename(closed / "slow")
    idle_server.project.symlink_to(closed / "slow")
    idle_server.start()
    assert who(idle_server) == {"uid": crew_uid(), "writable": []}
    assert not [path for path in paths_below(idle_server.home) if path.endswith(".env")]


def test_a_project_that_the_crews_user_can_not_reach_is_refused_with_what_to_do(idle_server: DevServer) -> None:
    closed = idle_server.folder / "closed"
    closed.mkdir(mode=0o700)
    os.chown(closed, STRANGER, STRANGER)
    idle_server.write_project(WHO)
    idle_server.project.rename(closed / "slow")
    idle_server.project.symlink_to(closed / "slow")
    said = refused(idle_server)
    assert f"can't reach {closed}/slow: {closed} is closed to it" in said
    assert f"chmod a+x {closed}" in said
    assert "Only WINDLASS_CREW_USER=root" in said


def test_only_when_it_is_named_do_crews_run_as_root(idle_server: DevServer) -> None:
    idle_server.write_project(WHO)
    for account in ("0", "00"):
        assert "is root" in refused(idle_server, WINDLASS_CREW_USER=account)


@as_root
@pytest.mark.parametrize("named", ["nobody", str(STRANGER)])
def test_a_user_for_crews_that_owns_what_is_the_servers_is_refused(idle_server: DevServer, named: str) -> None:
    if named == "nobody" and "windlass" in {entry.pw_name for entry in pwd.getpwall()}:
        named = "windlass"  # the embedded database runs as it then
    if named == str(STRANGER):
        idle_server.home.mkdir()
        os.chown(idle_server.home, STRANGER, STRANGER)
        idle_server.home.chmod(0o755)
    idle_server.write_project(WHO)
    take_interpreter(idle_server.project)
    said = refused(idle_server, WINDLASS_CREW_USER=named)
    what = "the folder WINDLASS_HOME" if named == str(STRANGER) else "the embedded database"
    assert f"Crews would run as the user {named}, and {what} belongs to that user" in said
    assert "useradd --system windlass-crew" in said


def take_interpreter(project: Path) -> None:
    """One that every user can reach: without it, a crew of this user could not run anyway."""
    binaries = project / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(INTERPRETER)


def check(project: Path, server: DevServer, **variables: str) -> str:
    done = subprocess.run(
        [*WINDLASS, "check", "--json", str(project)],
        env={**server.environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return " ".join(found["message"] for found in json.loads(done.stdout))


def test_a_check_runs_the_code_of_a_project_as_the_crews_user(idle_server: DevServer) -> None:
    code = "import os\nraise ValueError(f'loaded by user number {os.getuid()}')\n"
    said = check(function_project(idle_server.folder / "project", code), idle_server)
    assert f"loaded by user number {crew_uid()}" in said


def test_a_check_holds_the_code_of_a_project_to_the_limits_of_a_run(idle_server: DevServer) -> None:
    code = "import os, time\nheld = os.urandom(1 << 20) * 400\ntime.sleep(30)\ndef run() -> str: ...\n"
    project = function_project(idle_server.folder / "project", code)
    assert "memory_limit" in check(project, idle_server, WINDLASS_MEMORY_LIMIT="200 MB")


def test_an_interpreter_is_prepared_once_and_removed_when_no_process_uses_it(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, first_closed = Path(sys.base_prefix).resolve(), Account.first_closed
    monkeypatch.setattr(
        Account, "first_closed", lambda self, path: first_closed(self, path) or (base if base in path.parents else None)
    )  # also where this interpreter is open to every user
    account = crew_account(None)
    assert account is not None
    said: list[str] = []
    first = prepare(account, open_folder / "interpreters", said.append)
    assert first.folder is not None
    left = open_folder / "interpreters" / "of another state"
    left.mkdir()
    os.utime(left, (0, 0))
    assert len(said) == 2
    again = prepare(account, open_folder / "interpreters", said.append)
    assert (again, len(said)) == (first, 2)
    assert not left.exists()
    assert first.folder.is_dir()


def crew_uid() -> int:
    account = crew_account(None)
    assert account is not None
    return account.uid
