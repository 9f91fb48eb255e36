"""Who may speak to PostgreSQL, and how it is set."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

from embedded_postgres.served_database import ENVIRONMENT, ServerProcess, ask, change, of_each, serving, until
from windlass.embedded_postgres import keeper
from windlass.embedded_postgres.home import Paths

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.embedded_postgres.postgres import EmbeddedPostgres


@pytest.mark.parametrize("wrong", ["", "guessed"])
@pytest.mark.parametrize("user", ["windlass", "postgres"])
def test_no_one_gets_in_without_the_password(database: EmbeddedPostgres, user: str, wrong: str) -> None:
    right = f"windlass:{urlsplit(database.url).password}@"
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(database.url.replace(right, f"{user}:{wrong}@"))


def test_the_password_opens_the_superuser_as_well_which_the_server_itself_is_not(database: EmbeddedPostgres) -> None:
    superuser = database.url.replace("windlass:", "postgres:", 1)
    is_superuser = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    assert [ask(url, is_superuser) for url in (database.url, superuser)] == [False, True]


def test_the_server_may_make_tables_and_databases(database: EmbeddedPostgres) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        for statement in (
            "CREATE TABLE of_ours ()",
            "DROP TABLE of_ours",
            "CREATE DATABASE of_ours",
            "DROP DATABASE of_ours",
        ):
            connection.execute(statement)


def test_nothing_listens_on_a_network(home: Path, database: EmbeddedPostgres) -> None:
    listening = of_each(home, lambda process: process.net_connections(kind="inet"))
    assert len(listening) > 2
    assert not any(listening)


def test_only_the_log_of_what_went_wrong_is_kept_without_values_of_rows(home: Path, database: EmbeddedPostgres) -> None:
    twice = "CREATE TABLE t (id text UNIQUE); INSERT INTO t VALUES ('a secret'), ('a secret')"
    with pytest.raises(psycopg.errors.UniqueViolation):
        change(database.url, twice)
    log = Paths(home).log / "postgres.log"
    until(lambda: "duplicate key value" in log.read_text(), "the error is in the log")
    assert "a secret" not in log.read_text()


def test_it_is_set_to_lose_nothing_and_to_stay_small(database: EmbeddedPostgres) -> None:
    wanted = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "jit": "off",
        "max_connections": "100",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
        "listen_addresses": "",
    }
    assert {name: ask(database.url, f"SHOW {name}") for name in wanted} == wanted


def test_text_is_ordered_the_same_on_every_system(database: EmbeddedPostgres) -> None:
    locale = "SELECT datlocprovider::text || ' ' || datlocale FROM pg_database WHERE datname = current_database()"
    assert ask(database.url, locale) == "b C.UTF-8"


def test_a_setting_changed_by_hand_outlives_the_start_but_opens_no_port(own_home: Path) -> None:
    with (
        serving(own_home) as database,
        psycopg.connect(database.url.replace("windlass:", "postgres:", 1), autocommit=True) as superuser,
    ):
        superuser.execute("ALTER SYSTEM SET work_mem = '5MB'")
        superuser.execute("ALTER SYSTEM SET listen_addresses = '127.0.0.1'")
        superuser.execute("ALTER SYSTEM SET logging_collector = on")
    with serving(own_home) as database:
        assert ask(database.url, "SHOW work_mem") == "5MB"
        assert not any(of_each(own_home, lambda process: process.net_connections(kind="inet")))


def test_the_log_stays_within_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    code = (
        f"from windlass.embedded_postgres import keeper; keeper.LOG_LIMIT = 10_000; log = keeper.Log({str(log)!r})\n"
        "for number in range(10_000): log.write(b'line %d\\n' % number)"
    )
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True)
    kept = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(kept) == 2
    assert sum(kept) < 21_000
    assert log.read_text().endswith("line 9999\n")


@pytest.mark.parametrize(
    ("status", "output", "reason"),
    [
        (-9, "LOG:  all is well\n", "it was ended by signal 9"),
        (0, "LOG:  database system is shut down\n", "it ended with status 0: LOG:  database system is shut down"),
        (1, "x [7] FATAL:  no room\nx [7] LOG:  database system is shut down\n", "it ended with status 1: no room"),
        (1, "FATAL:  a\nPANIC:  b\nFATAL:  c\n", "it ended with status 1: b; c"),
        (127, "/x/postgres: Permission denied\n", "it ended with status 127: /x/postgres: Permission denied"),
        (127, "", "it ended with status 127: it wrote no message"),
    ],
)
def test_the_end_of_postgresql_becomes_one_line(status: int, output: str, reason: str) -> None:
    assert keeper.why(status, output.encode()) == reason


def test_what_is_started_gets_no_variables_of_the_server(home: Path) -> None:
    with ServerProcess(home, variables={"A_SECRET": "of the server"}) as server:
        server.says("url")
        assert "A_SECRET" in psutil.Process(server.process.pid).environ()
        seen = of_each(home, lambda process: process.environ())
        assert len(seen) > 2
        assert not any("A_SECRET" in variables for variables in seen)
