from __future__ import annotations

import signal
import socket

import pytest

from faults.dev_server import CODE, DevServer, until

SLOW_TO_LOAD = "import time\nprint('loading began', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def server(idle_server: DevServer) -> DevServer:
    idle_server.forked = True
    return idle_server


def begin(server: DevServer) -> None:
    """Starts it, and does not wait until it is ready."""
    server.forked = False
    server.process = server.begun()


def runs(server: DevServer, program: str) -> bool:
    return any(program in " ".join(process.cmdline()) for process in server.processes())


@pytest.mark.parametrize("stage", ["making the database", "loading the project"])
def test_a_server_that_is_told_to_stop_while_it_starts_stops_and_leaves_nothing(server: DevServer, stage: str) -> None:
    server.write_project(SLOW_TO_LOAD + CODE)
    begin(server)
    until(lambda: stage in server.log, f"it is {stage}", lambda: server.log)
    assert server.end(signal.SIGTERM) == 0, server.log
    assert server.processes() == []
    assert "Traceback" not in server.log


def test_to_be_told_again_and_again_to_stop_changes_nothing(server: DevServer) -> None:
    server.start()
    kickoff = server.kickoff(60)
    until(lambda: server.status(kickoff)["state"] == "STARTED", "it runs")
    assert server.process is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        server.process.send_signal(number)
    assert server.end(signal.SIGTERM) == 0, server.log
    assert server.processes() == []
    assert server.log.count("server.stopping") == 1
    assert "kickoff.released" in server.log
    assert "Traceback" not in server.log


def test_a_port_that_is_taken_is_told_and_nothing_is_left_running(server: DevServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = server.command("dev", str(server.project), "--port", str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert "can't listen on 127.0.0.1" in ended.stderr
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert server.processes() == []


def test_a_master_key_that_is_not_the_databases_is_told(server: DevServer) -> None:
    server.start()
    server.end(signal.SIGTERM)
    (server.home / "master.key").unlink()
    ended = server.command("dev", str(server.project), "--port", "0")
    assert ended.returncode == 1
    assert "needs the master key" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert server.processes() == []


def test_a_project_that_cannot_be_loaded_any_more_is_served_and_warned_of(server: DevServer) -> None:
    broken = server.folder / "broken"
    server.write_project(f"import os\nassert not os.path.exists({str(broken)!r}), 'it is broken'\n{CODE}")
    server.start()
    server.end(signal.SIGTERM)
    broken.touch()
    server.start()
    until(lambda: "warning: the project can't be loaded any more" in server.log, "it is warned of", lambda: server.log)
    assert "it is broken" in server.log
    status = server.ended(server.kickoff(0))
    assert (status["state"], status["reason"]) == ("FAILED", "error")
    assert "it is broken" in status["error"]


def test_a_home_that_is_a_file_is_told(server: DevServer) -> None:
    server.home.write_text("not a folder")
    ended = server.command("dev", str(server.project), "--port", "0")
    assert ended.returncode == 1
    assert str(server.home) in ended.stderr
    assert "Traceback" not in ended.stderr
