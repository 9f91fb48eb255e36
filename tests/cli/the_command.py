"""Runs the real command, as a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

import click
import pytest

import windlass
from cli.command_forks import ForkedProcess, run, start
from patience import DEADLINE
from projects_for_tests.homes import give_database
from windlass.cli.commands import windlass as root
from windlass.cli.exit_codes import exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = [str(Path(package.__file__ or "").parents[1]) for package in (windlass, click)]
"""Where ours and all others are, however this very interpreter found them."""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


class Command:
    """`windlass ARGUMENTS` with nothing of the developer's own environment."""

    def __init__(self, home: Path, variables: Mapping[str, str] | None = None) -> None:
        machine = {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(PACKAGES)}
        self.program: tuple[str, ...] = (sys.executable, "-m", "windlass")
        self.gives_database = True
        """Whether servers find a database in their home at their first start."""
        self.deadline = DEADLINE
        self.folder: Path | None = None
        """The working folder of the commands, None for that of the tests."""
        self.environment = {**machine, "WINDLASS_HOME": str(home / "windlass"), **(variables or {})}

    def __call__(self, *arguments: str, typed: str = "", **variables: str) -> Ended:
        done = subprocess.run(
            [*self.program, *arguments],
            check=False,
            input=typed,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**self.environment, **variables},
            cwd=self.folder,
            timeout=self.deadline,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def started(self, *arguments: str, **variables: str) -> Started:
        environment = {**self.environment, **variables}
        if self.gives_database and arguments[0] in {"dev", "serve"} and "WINDLASS_DATABASE_URL" not in environment:
            give_database(Path(environment["WINDLASS_HOME"]))
        return Started(self._process(arguments, environment))

    def _process(
        self, arguments: tuple[str, ...], environment: dict[str, str]
    ) -> subprocess.Popen[str] | ForkedProcess:
        return subprocess.Popen(
            [*self.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
            cwd=self.folder,
        )


class ForkedCommand(Command):
    """Forks commands and servers from a process that has imported them."""

    def __call__(self, *arguments: str, typed: str = "", **variables: str) -> Ended:
        if any(name.startswith("PYTHON") for name in variables):  # the interpreter reads them at its start
            return super().__call__(*arguments, typed=typed, **variables)
        environment = {**self.environment, **variables}
        code, out, err = run(arguments, environment, self.folder, typed.encode(), DEADLINE)
        return Ended(code, as_text(out), as_text(err))

    def _process(
        self, arguments: tuple[str, ...], environment: dict[str, str]
    ) -> subprocess.Popen[str] | ForkedProcess:
        if any(name.startswith("PYTHON") and name != "PYTHONPATH" for name in environment):
            return super()._process(arguments, environment)
        return start(arguments, environment, self.folder)


def as_text(printed: bytes) -> str:
    return printed.decode().replace("\r\n", "\n")


class CommandHere(Command):
    """Runs the command in this process, which is quicker: for commands that only send requests."""

    def __call__(self, *arguments: str, typed: str = "", **variables: str) -> Ended:
        out, err = StringIO(), StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            for name in os.environ:  # noqa: TID251 - the command gets none of them
                patch.delenv(name)
            for name, value in {**self.environment, **variables}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", StringIO(typed))
            code = exit_code(root, arguments)
        return Ended(code, out.getvalue(), err.getvalue())


class Started:
    """One that runs; its lines are awaited, not polled for. `out` and `err` hold all that came so far."""

    def __init__(self, process: subprocess.Popen[str] | ForkedProcess) -> None:
        self.process = process
        self.out = self.err = ""
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._readers = [threading.Thread(target=self._read_out), threading.Thread(target=self._read_err)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.end()

    def wait_for(self, words: str) -> str:
        """The next line that holds the words, on whichever stream it comes."""
        seen: list[str] = []
        while not seen or words not in seen[-1]:
            try:
                seen.append(self._lines.get(timeout=DEADLINE))
            except Empty:
                raise AssertionError(f"waited in vain for {words!r}; came: {seen}") from None
        return seen[-1]

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Waits for its end; the exit code."""
        code = self.process.wait(DEADLINE)
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        return code

    def _read_out(self) -> None:
        for text in self.process.stdout or ():
            self.out += text
            self._lines.put(text)

    def _read_err(self) -> None:
        for text in self.process.stderr or ():
            self.err += text
            self._lines.put(text)


def line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "windlass", *arguments]


def read_to_end(descriptor: int) -> str:
    """All that a terminal shows, of which this is our end."""
    parts = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:  # how Linux says that nobody holds the other end any more
        pass
    finally:
        os.close(descriptor)
    return b"".join(parts).decode()
