"""`windlass setup` as a command, and which user runs the code of packages when the command runs as root."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil
import pytest

from cli.the_command import Command, ForkedCommand
from projects_for_tests.another_user import as_another_user
from projects_for_tests.making import written
from projects_for_tests.wheels import index, source, wheel

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = '[tool.windlass]\nentrypoint = "steep:steep"\n'
STEEP = "import tiny\n\n\ndef steep() -> str:\n    return tiny.version\n"
OWNER = 12_345
BUILD = """    from subprocess import DEVNULL, Popen
    left = Popen(["sleep", "600"], start_new_session=True, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    noted = f"user, left = {os.getuid()}, {left.pid}\\n"
"""


@pytest.fixture
def project(open_folder: Path) -> Path:
    files = {"pyproject.toml": PROJECT, "steep.py": STEEP, "requirements.txt": "tiny\n"}
    wheel(open_folder / "wheels", "tiny")
    return written(open_folder / "project", files)


def command(folder: Path) -> Command:
    return ForkedCommand(folder, {**index(folder / "wheels"), "UV_CACHE_DIR": str(folder / "cache")})


@as_another_user
def test_a_project_is_set_up_and_served_on_its_own_environment(open_folder: Path, project: Path) -> None:
    windlass = command(open_folder)
    refused = windlass("check", str(project))
    assert refused.code == 1
    assert f"windlass setup {project}" in refused.out, "the check names the command"
    ended = windlass("setup", str(project))
    assert (ended.code, ended.out) == (0, f"{project}/.venv is ready, with the packages of requirements.txt\n"), (
        ended.err
    )
    assert f"making {project}/.venv from requirements.txt on /" in ended.err
    assert (
        windlass("setup", str(project)).out == f"{project}/.venv is up to date, with the packages of requirements.txt\n"
    )
    checked = windlass("check", str(project))
    assert (checked.code, checked.out) == (0, "no errors, no warnings\n")
    assert f"crews run in {project}/.venv/bin/python" in checked.err
    assert "the project's .venv" in checked.err


def has_ended(pid: int) -> bool:
    """A process that nobody waits for stays a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@as_another_user
@pytest.mark.parametrize("owner", [0, OWNER])
def test_root_builds_no_package_and_leaves_no_process_of_a_build(open_folder: Path, project: Path, owner: int) -> None:
    source(open_folder / "wheels", "built", BUILD)
    written(project, {"requirements.txt": "built\n"})
    os.chown(project, owner, owner)
    ended = command(open_folder)("setup", str(project))
    assert ended.code == 0, ended.err
    (built,) = project.glob(".venv/lib/python*/site-packages/built.py")
    noted: dict[str, int] = {}
    exec(built.read_text(), noted)
    assert noted["user"] in ({owner} if owner else {59_998, 59_997}), "the second, while another build has the first"
    assert {path.lstat().st_uid for path in project.rglob("*") if ".venv" in path.parts} == {owner}
    if owner == 0:
        assert has_ended(noted["left"]), "a process of the build could change the environment"
        assert not [path for path in project.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    else:
        os.kill(noted["left"], 9)


@as_another_user
def test_root_refuses_a_folder_that_others_can_change(open_folder: Path, project: Path) -> None:
    project.chmod(0o777)
    ended = command(open_folder)("setup", str(project))
    assert (ended.code, "other users may write to it" in ended.err) == (1, True)
    project.chmod(0o700)
    ended = command(open_folder)("setup", str(project))
    assert (ended.code, "is closed to it" in ended.err) == (1, True)
    assert not (project / ".venv").exists()
