from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.the_command import Command, ForkedCommand, line
from patience import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = re.compile(r"\bwl[ou]_[0-9A-Za-z]{36}\b")
PROJECT = '[project]\nname = "Steeping"\n\n[tool.windlass]\nentrypoint = "steep:steep"\n'
STEEP = """def steep(leaf: str, minutes: int = 3) -> str:
    print("the water boils")
    return f"{leaf} tea, {minutes} minutes"
"""
SLOW_STEEP = "import time\n\n\ndef steep(leaf: str) -> str:\n    time.sleep(600)\n    return leaf\n"


@pytest.fixture
def folder(open_folder: Path) -> Path:
    (open_folder / "project").mkdir()
    (open_folder / "project" / "pyproject.toml").write_text(PROJECT)
    (open_folder / "project" / "steep.py").write_text(STEEP)
    return open_folder


def test_a_project_is_served_followed_and_stopped_and_tokens_are_for_terminals_only(folder: Path) -> None:
    windlass = ForkedCommand(folder)
    with windlass.started("dev", str(folder / "project"), "--port", "0") as server:
        url = server.wait_for("Base URL").split()[-1]
        windlass.environment["WINDLASS_TOKEN"] = windlass("tokens", "show", "--kind", "user").out.strip()
        followed = windlass("kickoff", url, "-i", "leaf=green", "--watch")
        assert (followed.code, followed.out) == (0, "green tea, 3 minutes\n"), followed
        assert windlass("inputs", f"{url}/crews/steeping").out.startswith("leaf ")
        (past,) = json.loads(windlass("kickoffs", "--json").out)["kickoffs"]
        assert (past["state"], past["user"]) == ("SUCCESS", "owner")
        assert windlass("logs", past["kickoff_id"], "--follow").out.endswith("> the water boils\n")
        server.interrupt()
        assert server.end() == 0
        assert not TOKEN.search(server.out + server.err)
    assert len(set(TOKEN.findall(shown_on_a_terminal(windlass, folder / "project")))) == 2


def test_commands_without_an_address_and_a_token_mean_the_server_of_this_home(folder: Path) -> None:
    windlass = ForkedCommand(folder)
    (folder / "project" / "steep.py").write_text(SLOW_STEEP)
    windlass.folder = folder / "project"
    with windlass.started("dev", "--port", "0") as server:
        server.wait_for("Base URL")
        assert windlass("inputs").err.endswith("Start it with: windlass kickoff -i leaf=... --watch\n")
        token = windlass("tokens", "show", "--kind", "organization").out.strip()
        assert windlass("inputs", WINDLASS_TOKEN=token).out.startswith("leaf ")
        assert windlass("inputs", WINDLASS_TOKEN="wlo_wrong").code == 3
        kickoff = windlass("kickoff", "-i", "leaf=green").out.strip()
        with windlass.started("status", kickoff, "--watch") as watching:
            watching.wait_for("running")
            assert "It runs the task " in windlass("status", kickoff).err
            stopped = windlass("stop", kickoff, "--wait")
            assert stopped.code == 0, stopped
            assert "failed (cancelled)" in stopped.err.splitlines()[-1]
            assert watching.end() == 1
        assert "(cancelled)" in windlass("status", kickoff).err
        assert "  1. Started " in windlass("status", kickoff, "--full").out
        assert windlass("stop", kickoff).err == "It had ended before: nothing is left to stop.\n"
        assert windlass("status", kickoff, WINDLASS_TOKEN="wlo_wrong").code == 3
        for name in ("stop", "status"):
            unknown = windlass(name, "0199aaaa-0000-7000-8000-000000000001")
            assert unknown.code == 3
            assert "There is no kickoff with this id" in unknown.err
        server.interrupt()
        assert server.end() == 0
    assert windlass("status", kickoff).code == windlass("kickoff").code == windlass("inputs").code == 4


def shown_on_a_terminal(windlass: Command, project: Path) -> str:
    """What a start shows to a person, who then presses Ctrl-C."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        line("dev", str(project), "--port", "0"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=windlass.environment,
        start_new_session=True,
    )
    os.close(theirs)
    shown = ""
    try:
        while "Ctrl-C stops it" not in shown:
            shown += os.read(ours, 65536).decode()
    finally:
        process.send_signal(2)
        assert process.wait(DEADLINE) == 0
        os.close(ours)
    return shown


def test_a_port_that_is_taken_is_reported_before_the_database_starts(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = ForkedCommand(folder)("dev", str(folder / "project"), "--port", str(port))
    assert ended.code == 1
    assert f"can't listen on 127.0.0.1:{port}: Address already in use." in ended.err
    assert f"The process {os.getpid()} (" in ended.err or sys.platform != "linux"
    assert f"choose another port: `--port {port + 1}`" in ended.err
    assert not (folder / "windlass").exists(), "no database was made"


def test_a_project_that_is_none_is_told_at_once(folder: Path) -> None:
    ended = ForkedCommand(folder)("dev", str(folder))
    assert ended.code == 1
    assert ended.err.startswith(f"error: no crew, flow or function found in {folder}")
    assert not (folder / "windlass").exists()
