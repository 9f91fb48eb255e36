"""A crew tries what it can against another crew's running process, and against its server. Each attempt fails."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from attacks.other_user import INTERPRETER, as_root
from projects_for_tests.another_user import config_of
from projects_for_tests.making import Bench, Heard, function_project, running_bench
from projects_for_tests.namespaces import need_namespaces
from windlass.kickoffs.states import State
from windlass.runner import Output, RunnerConfig, Terminator
from windlass.runner.crew_account import crew_account
from windlass.runner.run_spec import Boundary
from windlass_child.process.hardening import SCOPES_SIGNALS, landlock_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.skipif(landlock_version() < SCOPES_SIGNALS, reason="needs Landlock of Linux 6.12")

PYTHON = INTERPRETER if os.geteuid() == 0 else Path(sys.executable)
VICTIM_USER, ATTACKER_USER = 60_001, 60_002
SECRET = "sk-of-the-victim"

VICTIM = """
import json, os, pathlib, socket, sys, tempfile, time

def run():
    here = pathlib.Path.cwd()
    for place in (here, here.parent / "home", here.parent / "storage", pathlib.Path(tempfile.gettempdir())):
        (place / "secret").write_text("sk-of-the-victim")
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    sockets[0].bind(f"\\0victim-{os.getpid()}")
    sockets[1].bind(f"{tempfile.gettempdir()}/s")
    for one in sockets:
        one.listen()
    print(json.dumps({"pid": os.getpid(), "zygote": os.getppid(), "folder": str(here.parent),
                      "library": os.path.dirname(os.__file__), "project": os.path.dirname(__file__)}), flush=True)
    time.sleep(600)
"""

ATTACKER = '''
import os, shutil, signal, socket, sys

def read(path):
    with open(path, "rb") as file:
        return file.read(64)

def write(path):
    with open(path, "ab") as file:
        file.write(b"planted")
    return "written"

def connect(address):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
    return "connected"

def send(pid, number):
    os.kill(pid, number)
    return "sent"

def attempts(victim, server):
    """Yields the name of each attempt, and the call that makes it."""
    folder, pid, home = victim["folder"], victim["pid"], server["home"]
    for place in ("work", "home", "storage", "tmp"):
        yield f"read {place}", lambda: read(f"{folder}/{place}/secret")
        yield f"list {place}", lambda: os.listdir(f"{folder}/{place}")
        yield f"write {place}", lambda: write(f"{folder}/{place}/secret")
        yield f"remove {place}", lambda: os.unlink(f"{folder}/{place}/secret")
        yield f"link {place}", lambda: os.link(f"{folder}/{place}/secret", "stolen")
        yield f"move {place}", lambda: os.rename(f"{folder}/{place}", "stolen folder")
    yield "list the folders of runs", lambda: os.listdir(os.path.dirname(folder))
    for process in ("pid", "zygote"):
        for file in ("environ", "mem", "maps", "fd", "root/etc/passwd", "cwd/secret"):
            look = os.listdir if file == "fd" else read
            yield f"{process} {file}", lambda: look(f"/proc/{victim[process]}/{file}")
        for number in (0, signal.SIGSTOP, signal.SIGKILL):
            yield f"signal {number} to {process}", lambda: send(victim[process], number)
        yield f"score of {process}", lambda: write(f"/proc/{victim[process]}/oom_score_adj")
    yield "signal to the server", lambda: send(server["pid"], signal.SIGCONT)
    yield "environment of the server", lambda: read(f"/proc/{server['pid']}/environ")
    yield "abstract socket", lambda: connect(f"\\0victim-{pid}")
    if server["separates_users"]:
        yield "socket", lambda: connect(f"{folder}/tmp/s")
    for name in server["files"]:
        yield f"read {name}", lambda: read(f"{home}/{name}")
        yield f"write {name}", lambda: write(f"{home}/{name}")
    yield "list shared memory", lambda: os.listdir("/dev/shm")
    yield "list the home", lambda: os.listdir(home)
    for place in (victim["library"], os.path.dirname(os.__file__), victim["project"]):
        yield f"write into {place}", lambda: write(f"{place}/planted.py")
        yield f"poison {place}", lambda: write(f"{place}/__pycache__/os.cpython-311.pyc")
        yield f"replace {place}", lambda: os.rename(place, "taken")
    yield "read the project", lambda: read(f"{victim['project']}/work.py")
    for place in ("/tmp", "/var/tmp", "/root", "/home", "/run/user"):
        yield f"write into {place}", lambda: write(f"{place}/planted-by-a-crew")
        yield f"list {place}", lambda: os.listdir(place)

def run(victim, server):
    """Returns the attempts that worked, and how many there were."""
    had, count = [], 0
    for name, attempt in attempts(victim, server):
        count += 1
        try:
            had.append(f"{name}: {attempt()!r}")
        except OSError:
            pass
    return {"had": had, "count": count, "tried at import": getattr(sys, "tried", [])}
'''

FILES_OF_THE_SERVER = (
    "master.key",
    "postgres/password",
    "environments/other/lib/python3.11/site-packages/package.py",
    "environments/other/lib/python3.11/site-packages/__pycache__/package.cpython-311.pyc",
    f"sources/{'b' * 64}/crew.py",
    "uv-cache/wheels/package.whl",
)

PACKAGE_THAT_TRIES = """
import os, sys

sys.tried = []
for path in PATHS:
    for mode in ("rb", "ab"):
        try:
            open(path, mode).close()
            sys.tried.append(f"{mode} {path}")
        except OSError:
            pass
"""


@pytest.fixture
def home(open_folder: Path) -> Path:
    """The home of a server, whose files every user of the machine could read and write."""
    home = open_folder / "server"
    for name in FILES_OF_THE_SERVER:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
        (home / name).chmod(0o666)
    return home


@pytest.fixture(params=[pytest.param(True, marks=as_root, id="users"), pytest.param(False, id="one user")])
def separates_users(request: pytest.FixtureRequest) -> bool:
    """Whether each deployment has a user, as on a server that is root. Else all crews run as one user without rights,
    as on a server of an ordinary user.
    """
    return bool(request.param)


@pytest.fixture
async def bench(separates_users: bool, open_folder: Path, home: Path) -> AsyncIterator[Bench]:
    if os.geteuid() == 0:
        if separates_users:
            need_namespaces()
        config = config_of(crew_account(None), namespaces=separates_users, closed=(home,))
    else:
        config = RunnerConfig(closed=(home,))
    async with running_bench(open_folder / "scratch", config, PYTHON) as bench:
        yield bench


def of(user: int, separates_users: bool, **more: Any) -> dict[str, Any]:
    return {"boundary": Boundary(user if separates_users else None, files=()), **more}


def server_of(home: Path, separates_users: bool) -> dict[str, Any]:
    return {"pid": os.getpid(), "home": str(home), "files": FILES_OF_THE_SERVER, "separates_users": separates_users}


@pytest.mark.parametrize("how", [{}, {"start": "exec"}, {"preload_project": True}], ids=["fork", "exec", "preload"])
async def test_a_crew_reaches_nothing_of_another_one(
    bench: Bench, open_folder: Path, home: Path, separates_users: bool, how: dict[str, Any]
) -> None:
    heard, terminator = Heard(), Terminator()
    project = function_project(open_folder / "victim", VICTIM)
    victim = asyncio.create_task(
        bench.run(
            project,
            heard=heard,
            terminator=terminator,
            environment={"MODEL_KEY": SECRET},
            **of(VICTIM_USER, separates_users),
        )
    )
    line = await heard.until(lambda one: isinstance(one, Output) and one.line.startswith("{"))
    attacker = function_project(open_folder / "attacker", ATTACKER)
    inputs = {"victim": json.loads(line.line), "server": server_of(home, separates_users)}
    outcome = await bench.run(attacker, inputs, **of(ATTACKER_USER, separates_users, **how))
    assert outcome.state is State.SUCCESS, outcome
    assert not outcome.json["had"], "\n".join(one[:100] for one in outcome.json["had"])
    assert outcome.json["count"] > 70
    assert not victim.done()
    victim.cancel()
    await asyncio.wait([victim])
    assert {(home / name).read_text() for name in FILES_OF_THE_SERVER} == {SECRET}


async def test_a_package_of_a_deployment_reaches_nothing_of_the_server_when_its_zygote_imports_it(
    bench: Bench, open_folder: Path, home: Path, separates_users: bool
) -> None:
    environment = home / "environments" / "own"
    command = [str(PYTHON), "-m", "venv", "--without-pip", str(environment)]
    await asyncio.to_thread(lambda: subprocess.run(command, check=True))
    (packages,) = environment.glob("lib/python*/site-packages")
    others = [name for name in FILES_OF_THE_SERVER if not name.startswith("sources")]
    paths = [*(str(home / name) for name in others), "/root/.bashrc", "/tmp/planted-by-a-package"]
    (packages / "tries.py").write_text(f"PATHS = {paths!r}\n{PACKAGE_THAT_TRIES}")
    (packages / "tries.pth").write_text(f"import tries\n/\n{home}\n")  # lines that are paths open nothing
    project = function_project(home / "sources" / ("a" * 64), ATTACKER)
    victim = {
        "pid": 1,
        "zygote": 1,
        "folder": str(home),
        "library": str(home / "environments/other"),
        "project": str(home),
    }
    inputs = {"victim": victim, "server": server_of(home, separates_users)}
    interpreter = environment / "bin" / "python"
    outcome = await bench.run(project, inputs, interpreter=interpreter, **of(ATTACKER_USER, separates_users))
    assert outcome.state is State.SUCCESS, outcome
    assert outcome.json["tried at import"] == []
    assert not outcome.json["had"], "\n".join(one[:100] for one in outcome.json["had"])
