"""A project's .env that leads to root's secrets, or would hold the server up for ever."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from attacks.other_user import CREW, as_root, run_as
from windlass.accounts import Account
from windlass.deployments import environment
from windlass.errors import ProjectError

if TYPE_CHECKING:
    from pathlib import Path

    from faults.dev_server import DevServer

OWNER = Account(CREW.uid - 7, CREW.uid - 7, "owner", is_ours=False)
STRANGER = Account(CREW.uid - 8, CREW.uid - 8, "stranger", is_ours=False)

GIVE = """
import os

def wait(seconds: float) -> dict:
    return dict(os.environ)
"""

PLANT = """
import os, sys
os.chdir(sys.argv[1])
os.link(sys.argv[2], ".env")
"""


@pytest.fixture
def project(open_folder: Path) -> Path:
    """Of another user."""
    project = open_folder / "project"
    project.mkdir()
    OWNER.give(project)
    return project


@pytest.fixture
def secret(open_folder: Path) -> Path:
    secret = open_folder / "master.key"
    secret.write_text("MASTER=of-root\n")
    secret.chmod(0o600)
    return secret


def refused(project: Path) -> str:
    with pytest.raises(ProjectError) as caught:
        environment.crew_environment(project)
    assert str(project / ".env") in str(caught.value)
    assert caught.value.hint
    return str(caught.value)


@as_root
def test_a_file_that_its_owner_alone_can_read_is_read(project: Path) -> None:
    (project / ".env").write_text("OWN=1\n")
    (project / ".env").chmod(0o600)
    OWNER.give(project / ".env")
    assert environment.crew_environment(project)["OWN"] == "1"
    assert os.geteuid() == 0


@as_root
def test_a_link_to_roots_secret_is_refused(project: Path, secret: Path) -> None:
    (project / ".env").symlink_to(secret)
    assert "is a symbolic link" in refused(project)


@as_root
def test_a_hard_link_to_roots_secret_is_refused(project: Path, secret: Path) -> None:
    (project / ".env").hardlink_to(secret)
    assert "Permission denied" in refused(project)


@as_root
def test_a_hard_link_in_a_folder_of_root_that_others_may_write_to_is_refused(open_folder: Path, secret: Path) -> None:
    project = open_folder / "open"
    project.mkdir()
    project.chmod(0o777)
    secret.chmod(0o666)  # else the system keeps others from linking to it, where it is set so
    run_as(STRANGER, PLANT, project, secret)
    secret.chmod(0o600)
    assert "chmod go-w" in refused(project)


@as_root
def test_a_project_whose_folder_became_a_link_is_refused(project: Path, open_folder: Path) -> None:
    others = open_folder / "others"
    others.mkdir()
    (others / ".env").write_text("MASTER=of-another\n")
    project.rmdir()
    project.symlink_to(others)
    with pytest.raises(ProjectError, match="project is a link by now"):
        environment.crew_environment(project)


def test_a_pipe_a_socket_a_folder_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    os.mkfifo(file)
    assert "is no regular file" in refused(tmp_path)
    file.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(file))
        assert "can't be read" in refused(tmp_path)
    file.unlink()
    file.mkdir()
    assert "can't be read" in refused(tmp_path)
    file.rmdir()
    if os.geteuid() == 0:
        os.mknod(file, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero, which never ends
        assert "is no regular file" in refused(tmp_path)


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    with (tmp_path / ".env").open("wb") as file:
        file.truncate(1 << 40)
    assert "is larger than 1024 KB" in refused(tmp_path)


@as_root
def test_a_crew_does_not_get_roots_credentials(idle_server: DevServer, secret: Path) -> None:
    idle_server.write_project(GIVE)
    idle_server.start()
    (idle_server.project / ".env").symlink_to(secret)
    status = idle_server.ended(idle_server.kickoff(0))
    assert "of-root" not in str(status)
    assert "is a symbolic link" in str(status)


def test_a_pipe_does_not_hold_the_server_up(idle_server: DevServer) -> None:
    idle_server.start()
    os.mkfifo(idle_server.project / ".env")
    status = idle_server.ended(idle_server.kickoff(0))
    assert "is no regular file" in str(status)
