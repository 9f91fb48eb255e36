"""`windlass admin keys rotate` beside a server whose kickoff has a journal, killed in the middle and run again."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import psycopg

from faults.dev_server import WINDLASS, DevServer, until
from windlass.secrets.key_file import keys_of_file

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import os, time
from pathlib import Path

def first(word):
    return f"{word} by {os.getpid()}"

def second(gate):
    while not Path(gate).exists():
        time.sleep(0.05)
    return f"then {os.getpid()}"

def wait(seconds: float, gate: str, steps, word: str = "done") -> str:
    found = steps.run("first", first, word)
    return found + " " + steps.run("second", second, gate)
"""


def keys(server: DevServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(server.command("admin", "keys", "status", "--json").stdout)
    return found


def finished_steps(server: DevServer, kickoff: str) -> list[str]:
    return [task["name"] for task in server.status(kickoff)["tasks"] if task["state"] == "completed"]


def test_a_rotation_that_is_killed_goes_on_and_a_run_goes_on_from_its_journal(
    idle_server: DevServer, open_folder: Path
) -> None:
    server, gate = idle_server, open_folder / "gate"
    server.write_project(CODE)
    server.forked = True
    server.start()
    (old,) = [key.id for key in keys_of_file(server.home / "master.key")]
    kickoff = server.kickoff(0, gate=str(gate))
    until(lambda: "first" in finished_steps(server, kickoff), "the first step is in the journal")
    url = server.command("admin", "db", "--url").stdout.strip()
    with psycopg.connect(url) as holding, psycopg.connect(url, autocommit=True) as looking:
        holding.execute("SELECT FROM journal FOR UPDATE")
        command = [*WINDLASS, "admin", "keys", "rotate"]
        rotation = subprocess.Popen(command, env=server.environment, stderr=subprocess.DEVNULL)

        def tokens_are_rotated() -> bool:
            rows = looking.execute("SELECT shown_copy FROM tokens WHERE shown_copy IS NOT NULL").fetchall()
            return not any(f"v1.{old}." in copy for (copy,) in rows)

        until(tokens_are_rotated, "the rotation waits for the journal")
        rotation.send_signal(signal.SIGKILL)
        rotation.wait()
    assert {one["id"]: one["values"].get("journal.record") for one in keys(server)}[old] == 1
    status = server.status(kickoff)
    assert status["state"] == "STARTED", ("the server reads values of both keys", status)
    assert server.command("admin", "keys", "drop", old).returncode == 1
    again = server.command("admin", "keys", "rotate")
    assert (again.returncode, f"windlass admin keys drop {old}" in again.stderr) == (0, True), again.stderr
    gate.touch()
    other = server.kickoff(0, gate=str(gate))
    assert server.ended(other)["state"] == "SUCCESS"
    assert [(one["current"], bool(one["total"])) for one in keys(server)] == [(True, True), (False, False)]
    assert server.ended(kickoff)["attempt"] == 1
    gate.unlink()
    kickoff = server.kickoff(0, gate=str(gate))
    until(lambda: "first" in finished_steps(server, kickoff), "the first step is in the journal")
    assert server.command("admin", "keys", "rotate").returncode == 0
    assert server.command("admin", "keys", "drop", *[one["id"] for one in keys(server)[1:]]).returncode == 0
    server.end(signal.SIGKILL)
    until(lambda: not server.processes(), "nothing of the killed server lives on")
    gate.touch()
    server.start()
    status = server.ended(kickoff)
    assert (status["state"], status["attempt"]) == ("SUCCESS", 2)
    words = str(status["result"]["output"]).split()
    assert words[2] != words[4], "the first step was not run again"
