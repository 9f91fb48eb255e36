"""`windlass dev` as a process of its own, on a home of its own, serving a function that takes a while."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil

import windlass
from cli.command_forks import ForkedProcess, run, start_with_log
from patience import DEADLINE
from projects_for_tests.ends import PROGRAM, words_of
from projects_for_tests.homes import give_database

if TYPE_CHECKING:
    from collections.abc import Callable

WINDLASS = [sys.executable, "-m", "windlass"]
PYPROJECT = '[project]\nname = "slow"\nversion = "1"\n\n[tool.windlass]\nentrypoint = "slow:wait"\n'
CODE = """
import time

def wait(seconds: float, word: str = "done") -> str:
    time.sleep(seconds)
    return word
"""


@dataclass(slots=True)
class DevServer:
    folder: Path
    forked: bool = False
    """Whether it is a fork of a process that has imported Windlass, and so without an environment for /proc to show."""
    variables: dict[str, str] = field(default_factory=dict)
    """Further variables of the server and of commands."""
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60, trust_env=False))

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "slow"

    @property
    def environment(self) -> dict[str, str]:
        source = str(Path(windlass.__file__).parents[1])
        own = {"HOME": str(self.folder), "WINDLASS_HOME": str(self.home), "PYTHONPATH": source, "WINDLASS_SLOTS": "4"}
        return {"PATH": os.defpath, "LANG": "C.UTF-8", "OPENAI_API_KEY": "none-is-asked", **own, **self.variables}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def write_project(self, code: str = CODE) -> None:
        self.project.mkdir(exist_ok=True)
        (self.project / "pyproject.toml").write_text(PYPROJECT)
        (self.project / "slow.py").write_text(code)

    def command(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        code, out, err = run(arguments, self.environment | variables, None, b"", DEADLINE)
        return subprocess.CompletedProcess(arguments, code, out.decode(), err.decode())

    def start(self) -> None:
        """Returns when it is ready."""
        assert self.starts(), self.log

    def starts(self, **variables: str) -> bool:
        """Returns whether it is ready with these variables, False when it ended instead."""
        give_database(self.home)
        address = self.home / "address"
        address.unlink(missing_ok=True)  # of one that was killed
        process = self.process = self.begun(**variables)

        def is_ready() -> bool:
            return address.exists() and answers(address.read_text().split()[0])

        until(lambda: process.poll() is not None or is_ready(), "the server is ready", lambda: self.log)
        if process.poll() is not None:
            return False
        token = self.command("tokens", "show", "--kind", "organization").stdout.strip()
        self.client.headers["Authorization"] = f"Bearer {token}"
        self.client.base_url = httpx.URL(address.read_text().split()[0])
        return True

    def begun(self, **variables: str) -> subprocess.Popen[bytes] | ForkedProcess:
        """Starts it, and does not wait until it is ready."""
        order, environment, log = (
            ["dev", str(self.project), "--port", "0"],
            self.environment | variables,
            self.folder / "log",
        )
        if self.forked:
            return start_with_log(order, environment, self.folder, log)
        with log.open("ab") as opened:
            return subprocess.Popen([*WINDLASS, *order], env=environment, stdout=opened, stderr=opened)

    def end(self, number: signal.Signals) -> int:
        """Sends the signal and waits for the end; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)

    def kickoff(self, seconds: float, **inputs: Any) -> str:
        answer = self.client.post("/kickoff", json={"inputs": {"seconds": seconds, **inputs}})
        assert answer.status_code == 200, answer.text
        kickoff_id: str = answer.json()["kickoff_id"]
        return kickoff_id

    def status(self, kickoff_id: str, wait: float = 0) -> dict[str, Any]:
        status: dict[str, Any] = self.client.get(f"/status/{kickoff_id}", params={"wait": wait}).json()
        return status

    def ended(self, kickoff_id: str) -> dict[str, Any]:
        until(lambda: self.status(kickoff_id, wait=5).get("status") in {"completed", "error"}, "the kickoff ended")
        return self.status(kickoff_id)

    def processes(self) -> list[psutil.Process]:
        """All that belong to this home: server, keeper, PostgreSQL, zygotes and children."""
        mark = re.compile(re.escape(str(self.folder)))
        everyone = list(psutil.process_iter())
        own = self.process.pid if self.process is not None and self.process.poll() is None else None
        ours = [process for process in everyone if process.pid == own or mark.search(words_of(process))]
        return ours + [process for process in everyone if process not in ours and is_below(process, ours)]

    def clean_up(self) -> None:
        self.client.close()
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGKILL)
        until(lambda: not self.processes(), "nothing of the server is left")


def is_below(process: psutil.Process, ours: list[psutil.Process]) -> bool:
    """For who is not root: of a process that runs crews little can be read. One that has lost its server counts too."""
    try:
        if process.uids().real != os.getuid():
            return False
        process.cwd()
    except psutil.AccessDenied:
        with suppress(psutil.Error):
            return PROGRAM in words_of(process) and any(one in ours or one.pid == 1 for one in process.parents()[:2])
        return False
    except (psutil.Error, OSError):
        return False
    return False


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def until(holds: Callable[[], bool], what: str, more: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {DEADLINE:.0f} s: {what}. {more()}")
