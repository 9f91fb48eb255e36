from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import written
from windlass.projects import digest
from windlass.projects.digest import WHOLE

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"pyproject.toml": "", "src/a/crew.py": "one", "src/a/config/agents.yaml": "two"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return written(tmp_path / "project", FILES)


def test_the_same_files_have_the_same_digest_wherever_they_are(project: Path, tmp_path: Path) -> None:
    assert digest(shutil.copytree(project, tmp_path / "copy")) == digest(project)


@pytest.mark.parametrize(
    "change",
    [{"src/a/crew.py": "One"}, {"src/a/crew.txt": ""}, {"src/b.py": ""}],
    ids=["contents", "a new file", "a new module"],
)
def test_a_change_of_the_code_changes_it(project: Path, change: dict[str, str]) -> None:
    before = digest(project)
    assert digest(written(project, change)) != before


def test_a_file_that_is_gone_changes_it(project: Path) -> None:
    before = digest(project)
    (project / "src" / "a" / "crew.py").unlink()
    assert digest(project) != before


def test_where_one_name_ends_and_contents_begin_makes_a_difference(tmp_path: Path) -> None:
    assert digest(written(tmp_path / "a", {"ab": "c"})) != digest(written(tmp_path / "b", {"a": "bc"}))


@pytest.mark.parametrize(
    "left",
    [".git/HEAD", ".venv/bin/python", "src/a/__pycache__/crew.pyc", "a.pyc", "node_modules/a.js", "run.log", ".env"],
)
def test_what_tools_and_runs_leave_behind_does_not_change_it(project: Path, left: str) -> None:
    before = digest(project)
    assert digest(written(project, {left: "anything"})) == before


def test_a_link_counts_by_where_it_leads_even_to_nothing_or_to_itself(project: Path) -> None:
    link = project / "link"
    link.symlink_to("nowhere")
    before = digest(project)
    link.unlink()
    link.symlink_to(project)
    assert digest(project) != before


def test_a_large_file_counts_by_size_and_time(project: Path) -> None:
    large = project / "large.bin"
    with large.open("wb") as file:
        file.truncate(WHOLE + 1)
    before = digest(project)
    os.utime(large, (1, 1))
    assert digest(project) != before


def test_a_pipe_is_not_waited_for(project: Path) -> None:
    before = digest(project)
    os.mkfifo(project / "pipe")
    assert digest(project) == before
