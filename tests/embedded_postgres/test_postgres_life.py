"""PostgreSQL lives exactly as long as its server, whatever dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from embedded_postgres.served_database import (
    ServerProcess,
    answers,
    ask,
    is_shut_down,
    keep,
    keeper,
    kept,
    postmaster,
    processes_of,
    program,
    serving,
    stranger,
    until,
)
from patience import DEADLINE
from windlass.embedded_postgres import locks, postgres
from windlass.embedded_postgres.errors import EmbeddedPostgresError
from windlass.embedded_postgres.home import Paths
from windlass.embedded_postgres.locks import take_database_lock
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.files import try_lock

if TYPE_CHECKING:
    from pathlib import Path

ENDLESS = "SELECT count(*) FROM generate_series(1, 1e15::bigint)"


def test_starting_gives_a_database_that_answers_and_stopping_shuts_it_down_cleanly(home: Path) -> None:
    with serving(home) as database:
        assert ask(database.url, "SELECT current_database() || ' ' || current_user") == "windlass windlass"
    assert processes_of(home) == []
    assert is_shut_down(home)


def test_stopping_is_done_twice_or_before_the_start_without_harm_and_a_start_may_follow(home: Path) -> None:
    database = EmbeddedPostgres(home)
    database.stop()
    url = database.start()
    assert database.start() == url == database.url
    database.stop()
    database.stop()
    assert ask(database.start(), "SELECT 1") == 1
    database.stop()
    with pytest.raises(EmbeddedPostgresError, match="does not run"):
        _ = database.url


def test_killing_the_server_leaves_no_process_and_the_next_start_has_what_was_committed(home: Path) -> None:
    with ServerProcess(home) as server:
        number = keep(server.says("url"))
        assert len(processes_of(home)) > 2
        server.kill()
        until(lambda: not processes_of(home), "keeper and PostgreSQL are gone")
    with serving(home) as database:
        assert kept(database.url) == number


def test_a_start_right_after_the_server_was_killed_waits_for_its_postgresql(home: Path) -> None:
    with ServerProcess(home) as killed:
        number = keep(killed.says("url"))
        slow = postmaster(home)
        slow.suspend()
        killed.kill()
        with ServerProcess(home) as later:
            until(lambda: later.reports, "it says what it waits for")
            assert later.reports == ["waiting for the PostgreSQL of an earlier server to end"]
            slow.resume()
            assert kept(later.says("url")) == number
            later.stop()


def test_postgresql_that_is_killed_runs_again_under_the_same_url(home: Path) -> None:
    reports: list[str] = []
    with serving(home, reports.append) as database:
        url = database.url
        number = keep(url)
        postmaster(home).kill()
        until(lambda: answers(url), "PostgreSQL answers again")
        assert kept(url) == number
        until(lambda: reports[-1] == "PostgreSQL runs again", "it is reported")
        assert "PostgreSQL is down, it was ended by signal 9; starting it again" in reports
    assert is_shut_down(home)


def test_a_statement_that_outlives_its_postmaster_does_not_keep_postgresql_away(
    home: Path, database: EmbeddedPostgres
) -> None:
    def occupy() -> None:
        with suppress(psycopg.OperationalError):
            ask(database.url, ENDLESS)

    busy = threading.Thread(target=occupy)
    busy.start()
    until(lambda: ask(database.url, f"SELECT count(*) FROM pg_stat_activity WHERE query = '{ENDLESS}'") == 1, "it runs")
    postmaster(home).kill()
    until(lambda: answers(database.url), "PostgreSQL answers again")
    busy.join(DEADLINE)
    assert not busy.is_alive()


def test_a_keeper_that_is_killed_gets_a_successor(home: Path) -> None:
    reports: list[str] = []
    with serving(home, reports.append) as database:
        url = database.url
        killed = keeper(home)
        killed.kill()
        until(
            lambda: len([line for line in reports if line.startswith("starting PostgreSQL")]) == 2, "another is started"
        )
        until(lambda: answers(url), "PostgreSQL answers again")
        assert keeper(home).pid != killed.pid
        assert "the keeper of PostgreSQL was ended; starting another" in reports
    assert is_shut_down(home)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start ends it")
def test_killing_server_and_keeper_leaves_no_postgresql(home: Path) -> None:
    with ServerProcess(home) as server:
        server.says("url")
        last = keeper(home)
        server.process.send_signal(signal.SIGSTOP)
        last.kill()
        server.kill()
        until(lambda: not processes_of(home), "PostgreSQL is gone")
    assert is_shut_down(home)


def test_an_interrupt_from_the_terminal_reaches_the_server_alone(home: Path) -> None:
    with ServerProcess(home) as server:
        url = server.says("url")
        with psycopg.connect(url) as connection:
            os.killpg(server.process.pid, signal.SIGINT)
            for process in (keeper(home), *keeper(home).children()):
                assert os.getpgid(process.pid) != server.process.pid
            assert connection.execute("SELECT 1").fetchone() == (1,)
        server.stop()


def test_stopping_the_keeper_by_a_polite_signal_changes_nothing(home: Path, database: EmbeddedPostgres) -> None:
    before = keeper(home)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        before.send_signal(number)
    assert ask(database.url, "SELECT 1") == 1
    assert keeper(home) == before


def test_postgresql_that_can_not_come_back_says_why_and_comes_back_once_that_is_mended(home: Path) -> None:
    reports: list[str] = []
    with serving(home, reports.append) as database:
        url = database.url
        (home / "postgres/data").chmod(0o777)
        postmaster(home).kill()
        until(lambda: any("invalid permissions" in line for line in reports), "the reason is reported")
        (home / "postgres/data").chmod(0o700)
        until(lambda: answers(url), "PostgreSQL answers again")


def test_a_successor_of_the_keeper_that_can_not_start_says_why_and_is_tried_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "PAUSE", 0.1)
    reports: list[str] = []
    with serving(home, reports.append) as database:
        (home / "postgres/data").chmod(0o777)
        keeper(home).kill()
        until(lambda: any("invalid permissions" in line for line in reports), "the reason is reported")
        (home / "postgres/data").chmod(0o700)
        until(lambda: answers(database.url), "PostgreSQL answers again")


def test_a_first_start_that_fails_raises_with_the_reason_and_leaves_nothing(home: Path) -> None:
    (home / "postgres/data").chmod(0o777)
    with pytest.raises(EmbeddedPostgresError, match=r"could not be started.*invalid permissions"):
        EmbeddedPostgres(home).start()
    assert processes_of(home) == []
    (home / "postgres/data").chmod(0o700)
    with serving(home) as database:
        assert answers(database.url)


def test_a_postgresql_that_nobody_keeps_is_ended_by_the_next_start(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    places = Paths(home)
    owner = places.data.stat().st_uid if os.geteuid() == 0 else None
    lock = try_lock(places.database_lock)
    assert lock is not None
    socket_folder = tmp_path if owner is None else places.log
    orphan = subprocess.Popen(
        [program("postgres", home), "-D", str(places.data), f"--unix_socket_directories={socket_folder}"],
        user=owner,
        pass_fds=(lock,),
        stderr=subprocess.DEVNULL,
    )
    os.close(lock)
    until((places.data / "postmaster.pid").exists, "it runs")
    reports: list[str] = []
    os.close(take_database_lock(places, reports.append))
    assert orphan.wait(DEADLINE) == 0
    assert f"stopping the PostgreSQL of a server that was killed (process {orphan.pid})" in reports


def test_a_process_that_holds_the_database_and_is_not_postgresql_is_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    places = Paths(home)
    lock = try_lock(places.database_lock)
    assert lock is not None
    with stranger(pass_fds=(lock,)) as innocent:
        os.close(lock)
        (places.data / "postmaster.pid").write_text(f"{innocent.pid}\n")
        with pytest.raises(EmbeddedPostgresError, match="still holds"):
            take_database_lock(places, lambda _: None, limit=0.5)
    (places.data / "postmaster.pid").unlink()
