from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.the_command import DEADLINE, Command, line

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = re.compile(r"\bwl[ou]_[0-9A-Za-z]{36}\b")
PROJECT = '[project]\nname = "Steeping"\n\n[tool.windlass]\nentrypoint = "steep:steep"\n'
STEEP = 'def steep(leaf: str, minutes: int = 3) -> str:\n    return f"{leaf} tea, {minutes} minutes"\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    """A home that PostgreSQL's user can reach, and a project beside it."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
    folder.chmod(0o755)
    (folder / "project").mkdir()
    (folder / "project" / "pyproject.toml").write_text(PROJECT)
    (folder / "project" / "steep.py").write_text(STEEP)
    yield folder
    shutil.rmtree(folder)


def test_a_project_is_served_followed_and_stopped_and_tokens_are_for_terminals_only(folder: Path) -> None:
    windlass = Command(folder)
    with windlass.started("dev", str(folder / "project"), "--port", "0") as server:
        url = server.wait_for("Base URL").split()[-1]
        windlass.environment["WINDLASS_TOKEN"] = windlass("tokens", "show", "--kind", "user").out.strip()
        followed = windlass("kickoff", url, "-i", "leaf=green", "--watch")
        assert (followed.code, followed.out) == (0, "green tea, 3 minutes\n"), followed
        assert windlass("inputs", f"{url}/crews/steeping").out.startswith("leaf ")
        server.interrupt()
        assert server.end() == 0
        assert not TOKEN.search(server.out + server.err)
    assert len(set(TOKEN.findall(shown_on_a_terminal(windlass, folder / "project")))) == 2


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


def test_a_project_that_is_none_is_told_at_once(folder: Path) -> None:
    ended = Command(folder)("dev", str(folder))
    assert ended.code == 1
    assert ended.err.startswith(f"error: there is no pyproject.toml in {folder}")
    assert not (folder / "windlass").exists()
