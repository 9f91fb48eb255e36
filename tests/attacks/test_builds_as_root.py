"""Builds of packages that leave links, so that root writes to its own files during `windlass setup`."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import nullcontext
from typing import TYPE_CHECKING

import psutil
import pytest

from attacks.other_user import CREW, as_root, run_as
from projects_for_tests.making import written
from projects_for_tests.wheels import index, source, wheel
from windlass.accounts import Account
from windlass.config import environment
from windlass.errors import ProjectError
from windlass.projects import virtual_environments
from windlass.projects.environments import Environments
from windlass.projects.packages import packages_of
from windlass.projects.setup import set_up
from windlass.projects.uv import Aborted, Builder, Uv
from windlass.projects.virtual_environments import alone, install
from windlass.wiring import setup
from windlass.wiring.setup import uv_for

if TYPE_CHECKING:
    from pathlib import Path

BUILDER = Account(CREW.uid - 9, CREW.uid - 9, "builder", is_ours=False)
"""Of this file alone: the processes of the user are ended."""
PLANT = "import os, sys; os.symlink(sys.argv[1], sys.argv[2])"
EXCHANGE = "import os, sys; os.rename(sys.argv[2], sys.argv[2] + '-away'); os.symlink(sys.argv[1], sys.argv[2])"

pytestmark = [as_root, pytest.mark.xdist_group("builds as root")]  # they end all processes of one user


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_environments, "LOCKS", tmp_path)


@pytest.fixture
def secret(open_folder: Path) -> Path:
    secret = written(open_folder / "of-root", {"shadow": "root:x"}) / "shadow"
    secret.chmod(0o600)
    return secret


@pytest.fixture
def project(open_folder: Path) -> Path:
    wheel(open_folder / "wheels", "tiny")
    return written(open_folder / "project", {"requirements.txt": "tiny\n"})


def reaches(python: Path) -> bool:
    return BUILDER.first_closed(python.resolve().parent) is None


def set_up_under_attack(project: Path, code: str, target: Path, name: str) -> None:
    """Sets the project up. The code runs as the builder while packages are installed."""
    uv = uv_for(BUILDER, written(project.parent / "uv", {}))
    attacked: list[Path] = []

    def attack(line: str) -> None:
        if line.startswith("Installed"):
            attacked.extend(project.glob(".venv.setup-*"))
            run_as(BUILDER, code, target, attacked[0] / name)

    variables = {**environment(), **index(project.parent / "wheels")}
    try:
        set_up(project, None, None, Builder(uv, variables, reaches, BUILDER), attack)
    finally:
        assert attacked


def test_the_stamp_is_not_written_through_a_link_of_a_build(project: Path, secret: Path) -> None:
    set_up_under_attack(project, PLANT, secret, "env/windlass-setup.json")
    assert (secret.read_text(), secret.stat().st_uid) == ("root:x", 0)
    stamp = project / ".venv" / "windlass-setup.json"
    assert (stamp.is_symlink(), stamp.stat().st_uid) == (False, 0)


def test_an_environment_that_a_build_replaced_by_a_link_is_refused(project: Path, secret: Path) -> None:
    CREW.give(secret)
    with pytest.raises(ProjectError, match="replaced the environment"):
        set_up_under_attack(project, EXCHANGE, secret.parent, "env")
    assert secret.stat().st_uid == CREW.uid
    assert [path.name for path in secret.parent.iterdir()] == ["shadow"]
    assert [path.name for path in project.iterdir()] == ["requirements.txt"]


async def test_an_environment_of_a_deployed_project_belongs_to_root_and_no_process_of_its_builds_is_left(
    project: Path,
) -> None:
    leaves = "    import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3, stderr=-3)"
    source(project.parent / "wheels", "leaving", leaves)
    written(project, {"requirements.txt": "tiny\nleaving\n"})
    uv = uv_for(BUILDER, written(project.parent / "uv", {}))
    builder = Builder(uv, {**environment(), **index(project.parent / "wheels")}, reaches, BUILDER, downloads=False)
    environments = Environments(project.parent / "environments", lambda: nullcontext(builder))
    lines: list[str] = []
    prepared = await environments.prepare(project, "s", None, None, {}, lines.append, deployment="d")
    assert prepared.key is not None
    place = project.parent / "environments" / prepared.key
    assert {path.lstat().st_uid for path in [place, *place.rglob("*")]} == {0}
    assert not [path for path in place.rglob("*") if path.lstat().st_mode & 0o022 and not path.is_symlink()]
    run_as(CREW, "import os, sys; assert os.listdir(sys.argv[1])", place)
    with pytest.raises(AssertionError, match="Permission denied"):
        run_as(CREW, "import os, sys; os.listdir(sys.argv[1])", place.parent)
    left = [one for one in psutil.process_iter(["uids", "status"]) if one.info["uids"].real == BUILDER.uid]
    assert not [one for one in left if one.info["status"] != psutil.STATUS_ZOMBIE]
    assert not [line for line in lines if str(project.parent) in line and not line.startswith("making")]


async def test_nothing_is_left_of_a_build_that_makes_endlessly_deep_folders(project: Path) -> None:
    deep = """
    here = os.getcwd()
    os.chdir(os.environ["UV_PROJECT_ENVIRONMENT"])
    for _ in range(5000):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)"""
    source(project.parent / "wheels", "deep", deep)
    written(project, {"requirements.txt": "deep\n"})
    uv = uv_for(BUILDER, written(project.parent / "uv", {}))
    builder = Builder(uv, {**environment(), **index(project.parent / "wheels")}, reaches, BUILDER, downloads=False)
    environments = Environments(project.parent / "environments", lambda: nullcontext(builder))
    with pytest.raises(ProjectError, match="too deep in one another"):
        await environments.prepare(project, "s", None, None, {}, lambda _: None, deployment="d")
    assert [path.name for path in (project.parent / "environments").iterdir()] == [".locks"]


@pytest.mark.parametrize("name", ["uv.toml", "requirements.txt"])
def test_what_uv_gets_is_not_written_through_a_link(
    project: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(Uv, "run", lambda *_: written(tmp_path / "env", {"pyvenv.cfg": ""}))
    (written(tmp_path / "work", {"other": ""}) / name).symlink_to(secret)
    with pytest.raises(FileExistsError):
        install(None, packages_of(project), tmp_path, Builder(tmp_path, {}, lambda _: True, BUILDER), print)
    assert secret.read_text() == "root:x"


def test_what_uv_gets_is_not_written_into_another_folder(
    project: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def exchange(*_: object) -> None:
        written(tmp_path / "env", {"pyvenv.cfg": ""})
        if not (tmp_path / "work").is_symlink():
            (tmp_path / "work").rename(tmp_path / "former")
            (tmp_path / "work").symlink_to(secret.parent)

    monkeypatch.setattr(Uv, "run", exchange)
    written(tmp_path / "work", {"other": ""})
    install(None, packages_of(project), tmp_path, Builder(tmp_path, {}, lambda _: True, BUILDER), print)
    assert [path.name for path in secret.parent.iterdir()] == ["shadow"]


def test_one_user_builds_at_a_time(tmp_path: Path) -> None:
    lines: list[str] = []
    descriptor = os.open(tmp_path / f"windlass-build-{BUILDER.uid}.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    def end_the_other(line: str) -> None:
        lines.append(line)
        os.close(descriptor)

    builder = Builder(tmp_path, {}, lambda _: True, BUILDER)
    with alone(builder, end_the_other):
        other = Builder(tmp_path, {}, lambda _: True, BUILDER)
        other.abort.ask()
        with pytest.raises(Aborted), alone(other, lines.append):
            pass
    assert lines == ["waits for 1 build before it on this machine"] * 2


def test_two_users_build_at_the_same_time_and_neither_can_change_the_files_of_the_other(tmp_path: Path) -> None:
    lines: list[str] = []
    second = Account(BUILDER.uid - 1, BUILDER.gid - 1, "second", is_ours=False)
    builder = Builder(tmp_path, {}, lambda _: True, BUILDER, (second,))
    with alone(builder, lines.append) as one, alone(builder, lines.append) as other:
        assert (one.account, other.account, one.others, other.others) == (BUILDER, second, (), ())
        assert (one.abort, lines) == (builder.abort, [])
        third = Builder(tmp_path, {}, lambda _: True, BUILDER, (second,))
        third.abort.ask()
        with pytest.raises(Aborted), alone(third, lines.append):
            pass
    assert lines == ["waits for 1 build before it on this machine"]
    with alone(builder, lines.append) as next_one:
        assert next_one.account == BUILDER


def test_uv_of_a_build_belongs_to_root_and_all_builders_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = written(tmp_path / "closed", {"uv": ""})
    closed.chmod(0o700)
    monkeypatch.setattr(setup, "uv_program", lambda: closed / "uv")
    with setup.folder_of(BUILDER) as uv:
        found = [path.stat() for path in (uv, uv.parent)]
        assert [(one.st_uid, stat.S_IMODE(one.st_mode)) for one in found] == [(0, 0o755)] * 2
