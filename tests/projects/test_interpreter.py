from __future__ import annotations

import sys
from pathlib import Path

import pytest

from windlass.errors import ProjectError
from windlass.projects import interpreter_of


def test_a_project_with_an_environment_runs_on_its_own_python(tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert interpreter_of(tmp_path) == python, "the link, not what it leads to: the environment is beside it"


def test_a_project_without_one_runs_on_the_servers(tmp_path: Path) -> None:
    assert interpreter_of(tmp_path) == Path(sys.executable)


def test_a_broken_environment_is_told(tmp_path: Path) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "gone")
    with pytest.raises(ProjectError, match="has no Python that can be started"):
        interpreter_of(tmp_path)
