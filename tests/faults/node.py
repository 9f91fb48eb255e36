"""A process of ours, as an operator starts, stops and kills it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

import windlass
from cli.command_forks import ForkedProcess, start_with_log
from projects_for_tests.ends import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WINDLASS = [sys.executable, "-m", "windlass"]
STOPS_WITHIN = 60.0


class Node:
    """`order` is what follows `windlass` on the command line. Each start writes to the same log, in its home. With
    `forked` the process is a fork of one that has imported Windlass, and so without a command line of its own.
    """

    def __init__(self, home: Path, order: Sequence[str], settings: Mapping[str, str], *, forked: bool = False) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        home.chmod(0o755)
        self._order = order
        self.source = Path(windlass.__file__).parents[1]
        """The folder that the next start imports Windlass from."""
        self._forked = forked
        own = {"HOME": str(home), "WINDLASS_HOME": str(home), "PYTHONUNBUFFERED": "1"}
        own["WINDLASS_EGRESS"] = "open,127.0.0.1"  # the crews use servers of the test
        self._environment = {"PATH": os.defpath, "LANG": "C.UTF-8", **own, **settings}
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def name(self) -> str:
        return self.home.name

    @property
    def log(self) -> str:
        return (self.home / "log").read_text("utf-8", "replace")

    @property
    def environment(self) -> dict[str, str]:
        return {**self._environment, "PYTHONPATH": str(self.source)}

    def run(self, *order: str) -> str:
        """Runs another command with the settings of this node. Returns what it printed."""
        given = {"env": self.environment, "capture_output": True, "text": True, "timeout": STOPS_WITHIN}
        done = subprocess.run([*WINDLASS, *order], check=False, **given)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        log = self.home / "log"
        if self._forked:
            self._process = start_with_log(self._order, self.environment, None, log)
            return
        with log.open("ab") as opened:
            order = [*WINDLASS, *self._order]
            self._process = subprocess.Popen(order, env=self.environment, stdout=opened, stderr=opened)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self.lives:
            self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOPS_WITHIN)

    def stop(self) -> int:
        """As for an update: told to stop, and waited for; its exit status."""
        assert self._process is not None
        self.signal(signal.SIGTERM)
        return self._process.wait(STOPS_WITHIN)

    def zygotes(self) -> list[psutil.Process]:
        try:
            below = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []
        return [process for process in below if is_zygote(process)]


def is_zygote(process: psutil.Process) -> bool:
    try:
        return any(PROGRAM in word for word in process.cmdline())
    except psutil.Error:
        return False
