"""The user that PostgreSQL runs as: never root, and never with rights that it didn't have."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded_postgres.served_database import (
    IS_ROOT,
    NOBODY,
    SOURCE,
    ServerProcess,
    answers,
    is_shut_down,
    keep,
    kept,
    of_each,
    postmaster,
    processes_of,
    serving,
    until,
)
from windlass.accounts import Account
from windlass.embedded_postgres import programs
from windlass.embedded_postgres.errors import EmbeddedPostgresError
from windlass.embedded_postgres.home import account_for
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.embedded_postgres.programs import find_programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

as_root = pytest.mark.skipif(not IS_ROOT, reason="what happens as root needs root")
NAMELESS = 54321


def real_user(process: psutil.Process) -> int:
    return process.uids().real


def runs_for_nobody(python: str) -> bool:
    """Imports nothing of Windlass, so that a defect of it fails the tests and does not skip them."""
    code = (
        "import os, sys; assert sys.version_info >= (3, 11) and all(os.access(path, os.R_OK) for path in sys.argv[1:])"
    )
    needed = [SOURCE / "windlass" / "__init__.py", programs.psql()]
    try:
        done = subprocess.run(
            [python, "-c", code, *needed], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=False
        )
    except OSError:
        return False
    return done.returncode == 0


@pytest.fixture(scope="session")
def python_of_nobody() -> str:
    candidates = (sys.executable, "/usr/bin/python3")
    for python in candidates:
        if runs_for_nobody(python):
            return python
    pytest.skip(f"none of {', '.join(candidates)} and {SOURCE} are open to the user nobody")


@pytest.fixture
def home_of_nobody(own_home: Path) -> Path:
    subprocess.run(["chown", "-R", str(NOBODY), own_home], check=True)
    own_home.chmod(0o700)
    return own_home


@as_root
def test_as_root_keeper_and_postgresql_run_as_an_unprivileged_user(home: Path) -> None:
    with serving(home):
        users = of_each(home, lambda process: (*process.uids(), *process.gids()))
        assert len(users) > 2
        assert not any(0 in ids for ids in users)


@as_root
def test_as_another_user_it_is_made_and_served_without_root(place: Path, python_of_nobody: str) -> None:
    place.chmod(0o777)
    home = place / "of a user"
    with ServerProcess(home, python_of_nobody, NOBODY) as server:
        assert answers(server.says("url"))
        assert set(of_each(home, real_user)) == {NOBODY}
        for folder in (home, home / "postgres", home / "postgres/data"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        server.stop()
    assert is_shut_down(home)


@as_root
def test_as_another_user_a_killed_server_leaves_nothing_and_the_next_start_recovers(
    home_of_nobody: Path, python_of_nobody: str
) -> None:
    with ServerProcess(home_of_nobody, python_of_nobody, NOBODY) as killed:
        number = keep(killed.says("url"))
        killed.kill()
        until(lambda: not processes_of(home_of_nobody), "PostgreSQL is gone")
    with ServerProcess(home_of_nobody, python_of_nobody, NOBODY) as server:
        assert kept(server.says("url")) == number
        server.stop()


@as_root
def test_a_home_of_another_user_is_refused_in_words(home: Path, python_of_nobody: str) -> None:
    with ServerProcess(home, python_of_nobody, NOBODY) as server:
        assert "Start Windlass as the user that owns the folder" in server.says("error")


@as_root
def test_a_user_without_a_name_is_told_that_postgresql_needs_one(place: Path, python_of_nobody: str) -> None:
    with ServerProcess(place / "home", python_of_nobody, NAMELESS) as server:
        assert f"user id {NAMELESS}" in server.says("error")


@as_root
def test_as_root_a_database_that_is_there_stays_with_its_owner(own_home: Path) -> None:
    for folder in ("data", "log"):
        subprocess.run(["chown", "-R", str(NAMELESS), own_home / "postgres" / folder], check=True)
    with serving(own_home) as database:
        assert answers(database.url)
        assert set(of_each(own_home, real_user)) == {NAMELESS}


@as_root
def test_as_root_a_folder_that_the_user_can_not_pass_is_named_and_not_opened(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EmbeddedPostgresError, match=rf"{closed} is closed to that user.*chmod a\+x {closed}"):
        EmbeddedPostgres(closed / "home").start()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.fixture
def closed_programs(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The wheel's folder as in an environment below the home of root."""
    package = programs.psql().parents[2]
    closed = place / "environment"
    closed.mkdir(mode=0o700)
    for name in (package.name, programs.LIBRARIES):
        (closed / name).symlink_to(package.with_name(name))
    monkeypatch.syspath_prepend(str(closed))
    yield
    closed.chmod(0o755)


@as_root
def test_as_root_programs_that_the_user_can_not_run_are_copied_beside_the_data(
    place: Path, closed_programs: None
) -> None:
    home = place / "home"
    with serving(home) as database:
        assert answers(database.url)
        assert Path(postmaster(home).exe()).is_relative_to(home / "postgres/programs")


@as_root
def test_programs_are_copied_once_and_what_is_old_or_cut_short_goes(place: Path, closed_programs: None) -> None:
    copies = place / "programs"
    for left_over in ("0.0.1/bin", "0.6.0.making/bin"):
        (copies / left_over).mkdir(parents=True)
    account = account_for(place / "no data")
    found = find_programs(account, copies)
    assert found.version.startswith("18.")
    assert len(list(copies.iterdir())) == 1
    made = found.folder.stat().st_ino
    assert find_programs(account, copies).folder.stat().st_ino == made


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "passes"),
    [
        (0o700, 7, 7, True),
        (0o600, 7, 7, False),
        (0o710, 1, 7, True),
        (0o701, 1, 7, False),
        (0o701, 1, 1, True),
        (0o770, 1, 1, False),
    ],
)
def test_a_folder_is_passed_by_the_first_right_that_concerns_the_user(
    mode: int, uid: int, gid: int, passes: bool
) -> None:
    folder = os.stat_result((stat.S_IFDIR | mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))
    assert Account(7, 7, "windlass", is_ours=False).may_enter(folder) is passes
