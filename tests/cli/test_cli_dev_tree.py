"""What `windlass dev` shows of a run on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from typing import TYPE_CHECKING

import pytest

from cli.the_command import Command, ForkedCommand, line
from patience import DEADLINE
from projects_for_tests.making import written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROJECT = '[project]\nname = "Steeping"\n[tool.windlass]\nentrypoint = "steep:steep"\n'
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
STEEP = """
def steep(leaf: str) -> str:
    print("the kettle sings")
    return {"green": "tea"}[leaf]
"""


class Terminal:
    """With `windlass dev` on it."""

    def __init__(self, windlass: Command, project: Path) -> None:
        self._ours, theirs = pty.openpty()
        arguments = line("dev", str(project), "--port", "0")
        self.process = subprocess.Popen(
            arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=windlass.environment, start_new_session=True
        )
        os.close(theirs)
        self.raw = b""

    def wait_for(self, words: str) -> str:
        """All that was shown since the last time, without terminal codes."""
        while words not in (shown := CODES.sub("", self.raw.decode(errors="replace"))):
            assert select.select([self._ours], [], [], DEADLINE)[0], f"waited in vain for {words!r}: {shown}"
            self.raw += os.read(self._ours, 65536)
        self.raw = b""
        return shown

    def end(self) -> None:
        self.process.send_signal(2)
        assert self.process.wait(DEADLINE) == 0
        os.close(self._ours)


@pytest.fixture
def windlass(open_folder: Path) -> Command:
    return ForkedCommand(open_folder)


@pytest.fixture
def terminal(windlass: Command, open_folder: Path) -> Iterator[Terminal]:
    project = written(open_folder / "project", {"pyproject.toml": PROJECT, "steep.py": STEEP})
    terminal = Terminal(windlass, project)
    yield terminal
    terminal.end()


def test_a_run_is_shown_as_a_tree_and_ctrl_c_answered_in_words_without_lines_of_the_log(
    windlass: Command, terminal: Terminal
) -> None:
    greeted = terminal.wait_for("Ctrl-C stops it")
    url = re.findall(r"Base URL +(http://\S+)", greeted)[0]
    assert greeted.index("Dashboard: ") < greeted.index("is served.")  # a screen of commands would hide it
    windlass.environment["WINDLASS_TOKEN"] = windlass("tokens", "show", "--kind", "user").out.strip()
    assert windlass("kickoff", url, "-i", "leaf=green", "--watch").out == "tea\n"
    shown = terminal.wait_for("] completed in ")
    assert "[1] \u2502  \u2502  > the kettle sings\n" in shown
    assert windlass("kickoff", url, "-i", "leaf=black", "--watch").code == 1
    shown += terminal.wait_for("] failed in ")
    assert 'steep.py", line 4, in steep' in shown
    assert "windlass_child" not in shown
    assert "kickoff." not in shown

    terminal.process.send_signal(2)
    assert terminal.process.wait(DEADLINE) == 0
    assert " INFO " not in terminal.wait_for("stopping")
