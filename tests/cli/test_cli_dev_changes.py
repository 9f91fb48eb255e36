"""What `windlass dev` takes for a change of its project, and what it says of it."""

from __future__ import annotations

import os
import select
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cli.the_command import Command, ForkedCommand
from patience import DEADLINE
from projects_for_tests.making import written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.the_command import Started

PROJECT = '[project]\nname = "Steeping"\n[tool.windlass]\nentrypoint = "steep:steep"\n'
OLD = "def steep(leaf: str) -> str:\n    return f'{leaf} tea'\n"
NEW = "def steep(leaf: str, sugar: int = 2) -> str:\n    return f'{leaf} tea, {sugar} lumps'\n"
NEEDY = "import os\nKETTLE = os.environ['KETTLE']\n"
BLOCKED = """
import os, time
os.write(os.open({told!r}, os.O_WRONLY), str(os.getpid()).encode())
time.sleep(600)
"""
WRITES_AT_IMPORT = """
import time
from pathlib import Path
Path(__file__).with_name("seen.txt").write_text(str(time.time_ns()))
"""
CHANGED = "have changed"
SERVED = "is served from now on"


@pytest.fixture
def project(open_folder: Path) -> Path:
    return written(open_folder / "project", {"pyproject.toml": PROJECT, "steep.py": OLD})


@contextmanager
def served(windlass: Command, project: Path, opened: Path | None = None) -> Iterator[Started]:
    """`opened` is a place outside of its own folder that the crew writes to."""
    files = {"WINDLASS_CREW_FILES": f"{opened}:rw"} if opened else {}
    with windlass.started("dev", str(project), "--port", "0", **files) as server:
        server.wait_for("Base URL")
        yield server
        server.interrupt()
        assert server.end() == 0


def pid_told_by(pipe: Path) -> int:
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([reading], [], [], DEADLINE)[0], "nobody wrote to it"
        return int(os.read(reading, 100))
    finally:
        os.close(reading)


def test_a_variable_that_is_added_to_the_env_file_mends_the_project(open_folder: Path, project: Path) -> None:
    with served(ForkedCommand(open_folder), project) as server:
        (project / "steep.py").write_text(NEEDY + OLD)
        assert "Set KETTLE" in server.wait_for(
            "until it can, version 1, the last one that could be loaded, is served: "
        )
        (project / ".env").write_text("KETTLE=copper-of-grandmother\n")
        assert "(.env)" in server.wait_for(CHANGED)
        assert server.wait_for(SERVED).startswith("the project can be loaded again: version 2 ")
        (project / ".env").unlink()
        server.wait_for("Set KETTLE among the crew's variables")
        assert "grandmother" not in server.out + server.err


def test_what_was_broken_when_it_was_started_again_is_told_of_when_it_is_mended(
    open_folder: Path, project: Path
) -> None:
    windlass = ForkedCommand(open_folder)
    written(project, {"steep.py": NEEDY + OLD, ".env": "KETTLE=copper\n"})
    with served(windlass, project):
        pass
    (project / ".env").unlink()
    with served(windlass, project) as server:
        server.wait_for("can't be loaded any more")
        (project / ".env").write_text("KETTLE=copper\n")
        assert server.wait_for(SERVED).startswith("the project can be loaded again: version 1 ")


def test_code_that_is_mended_to_what_it_was_is_told_of(open_folder: Path, project: Path) -> None:
    with served(ForkedCommand(open_folder), project) as server:
        (project / "steep.py").write_text("def steep(leaf\n")
        server.wait_for("can't be loaded any more")
        (project / "steep.py").write_text(OLD)
        assert server.wait_for(SERVED).startswith("the project can be loaded again: version 1 ")


def test_code_that_blocks_while_it_is_loaded_does_not_keep_out_what_is_saved_after_it(
    open_folder: Path, project: Path
) -> None:
    os.mkfifo(told := open_folder / "told")
    told.chmod(0o666)  # crews may run as another user
    with served(ForkedCommand(open_folder), project, told) as server:
        (project / "steep.py").write_text(BLOCKED.format(told=str(told)) + OLD)
        blocked = pid_told_by(told)
        (project / "steep.py").write_text(NEW)
        assert server.wait_for(SERVED).startswith("version 2 ")
        with pytest.raises(ProcessLookupError):
            os.kill(blocked, 0)


def test_what_the_project_writes_while_it_is_loaded_has_it_loaded_no_more_than_once(
    open_folder: Path, project: Path
) -> None:
    (project / "steep.py").write_text(WRITES_AT_IMPORT + OLD)
    project.chmod(0o777)  # crews may run as another user
    with served(ForkedCommand(open_folder), project, project) as server:
        told = server.wait_for("warning: seen.txt changed each time that the project was loaded")
        assert 'ignore = ["seen.txt"] under [tool.windlass]' in told
        (project / "steep.py").write_text(WRITES_AT_IMPORT + NEW)
        assert "(steep.py)" in server.wait_for(CHANGED)
        server.wait_for(SERVED)
    assert server.out.count(CHANGED) == 2


def test_what_is_to_be_ignored_is_no_change(open_folder: Path, project: Path) -> None:
    with served(ForkedCommand(open_folder), project) as server:
        written(project, {"cups/one.txt": "1", "two.db": "2"})
        assert "(cups/one.txt)" in server.wait_for(CHANGED)
        assert 'ignore = ["cups/one.txt"] under [tool.windlass]' in server.wait_for("if a run writes cups/one.txt: ")
        (project / "pyproject.toml").write_text(PROJECT + 'ignore = ["cups/*"]\n')
        assert "(pyproject.toml)" in server.wait_for(CHANGED)
        server.wait_for(SERVED)
        (project / "cups" / "one.txt").write_text("another")
        (project / "steep.py").write_text(NEW)
        assert "(steep.py)" in server.wait_for(CHANGED)
