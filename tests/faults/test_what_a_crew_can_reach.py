"""As root: what is the server's is closed to crew code, which runs as another user."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.dev_server import DevServer, until

if TYPE_CHECKING:
    from typing import Any

OPEN_INTERPRETER = Path("/usr/bin/python3.11")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux" or not OPEN_INTERPRETER.exists(),
    reason="needs root, and an interpreter that every user can reach",
)

CODE = '''
import os, signal, socket, subprocess

def wait(server: int, home: str, sockets: list[str]) -> dict:
    """What could be had, by name; for all else, why not."""
    found = {"uid": os.getuid(), "project": open(__file__).readable()}
    files = {"environment": f"/proc/{server}/environ", "memory": f"/proc/{server}/mem", "key": f"{home}/master.key",
             "password": f"{home}/postgres/password", "zygote": f"/proc/{os.getppid()}/environ"}
    for name, path in files.items():
        try:
            found[name] = open(path, "rb").read(1)
        except OSError as error:
            found[name] = error.strerror
    for path in sockets:
        try:
            socket.socket(socket.AF_UNIX).connect(path)
            found["database"] = "connected"
        except OSError as error:
            found["database"] = error.strerror
    try:
        os.kill(server, signal.SIGCONT)
        found["signal"] = "sent"
    except OSError as error:
        found["signal"] = error.strerror
    found["more rights"] = subprocess.run(["su", "-c", "id -u"], capture_output=True, text=True).stdout.strip()
    return found
'''


@pytest.fixture
def found(idle_server: DevServer) -> dict[str, Any]:
    idle_server.write_project(CODE)
    take_open_interpreter(idle_server.project)
    idle_server.start()
    assert idle_server.process is not None
    places = (idle_server.home / "postgres" / "socket-folder").read_text().split()
    sockets = [str(path) for place in places for path in Path(place).glob(".s.PGSQL.*[0-9]")]
    assert sockets
    inputs = {"server": idle_server.process.pid, "home": str(idle_server.home), "sockets": sockets}
    kickoff = idle_server.client.post("/kickoff", json={"inputs": inputs}).json()["kickoff_id"]
    status = idle_server.ended(kickoff)
    assert status["state"] == "SUCCESS", status
    answer: dict[str, Any] = status["result"]["json"]
    return answer


def take_open_interpreter(project: Path) -> None:
    binaries = project / ".venv" / "bin"
    binaries.mkdir(parents=True)
    binaries.joinpath("python").symlink_to(OPEN_INTERPRETER)


def test_a_crew_reaches_its_project_and_nothing_of_the_servers(found: dict[str, Any]) -> None:
    denied = "Permission denied"
    assert found.pop("uid") != 0
    assert found == {
        "project": True,
        "environment": denied,
        "memory": denied,
        "key": denied,
        "password": denied,
        "zygote": denied,
        "database": denied,
        "signal": "Operation not permitted",
        "more rights": "",
    }


def test_nothing_of_a_crew_that_runs_as_another_user_is_left(idle_server: DevServer) -> None:
    code = "import subprocess, time\ndef wait(seconds: float) -> None:\n"
    code += "    subprocess.Popen(['sleep', '600'], start_new_session=True)\n    time.sleep(seconds)\n"
    idle_server.write_project(code)
    take_open_interpreter(idle_server.project)
    idle_server.start()
    kickoff = idle_server.kickoff(600)
    until(lambda: idle_server.status(kickoff)["state"] == "STARTED", "it runs")
    idle_server.end(signal.SIGKILL)
    until(lambda: not idle_server.processes(), "nothing is left")
    idle_server.start()
    assert idle_server.client.post(f"/stop/{kickoff}").status_code == 200
    assert idle_server.ended(kickoff)["reason"] == "cancelled"
