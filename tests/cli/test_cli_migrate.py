"""`windlass migrate`, and servers that wait for it."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import httpx
import psycopg
import pytest

from cli.test_cli_json import documented
from faults.cluster import free_port
from projects_for_tests.driver import until
from windlass.cli import exit_codes
from windlass.store.migrate import NEEDED, known_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.the_command import Command, Started

NEWEST = max(known_migrations())
KEY = "A" * 43 + "="
WAITS = {"WINDLASS_MIGRATE_AT_START": "false", "WINDLASS_MASTER_KEY": KEY}


@pytest.fixture
def empty(windlass: Command, database_url: str) -> Command:
    """The command on a database in which nothing is."""
    with psycopg.connect(database_url) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    windlass.environment["WINDLASS_DATABASE_URL"] = database_url
    return windlass


def migrate_as_newer(url: str, needed: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO migrations (number) VALUES (%s)", [NEWEST + 1])
        values = {"name": NEEDED, "value": str(needed)}
        connection.execute("UPDATE settings SET value = %(value)s WHERE name = %(name)s", values)


def test_scripts_can_ask_and_migrate(empty: Command) -> None:
    asked = empty("migrate", "--check")
    assert asked.code == exit_codes.MIGRATION_NEEDED
    assert asked.err.startswith("error: The database has no tables yet, and Windlass ")
    assert "Run `windlass migrate`" in asked.err
    done = empty("migrate")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("Applied migrations 1, 2, ")
    assert done.err.endswith(f"The tables are up to date: migration {NEWEST}.\n")
    for arguments in (["migrate"], ["migrate", "--check"]):
        again = empty(*arguments)
        assert (again.code, again.err) == (0, f"The tables are up to date: migration {NEWEST}.\n")
    found = json.loads(empty("migrate", "--check", "--json").out)
    assert found.keys() == documented("migrate")
    assert (found["migration"], found["missing"], found["is_complete"]) == (NEWEST, [], True)


def test_a_database_of_a_newer_release_is_used_if_it_can_be(empty: Command) -> None:
    assert empty("migrate").code == 0
    migrate_as_newer(empty.environment["WINDLASS_DATABASE_URL"], NEWEST)
    done = empty("migrate", "--check")
    assert done.code == 0
    assert done.err.startswith(f"A newer Windlass has migrated the tables (migration {NEWEST + 1}).")
    migrate_as_newer_still(empty)
    for arguments in (["migrate"], ["migrate", "--check"]):
        refused = empty(*arguments)
        assert refused.code == exit_codes.DATABASE_TOO_NEW
        assert f"It needs a server that knows migration {NEWEST + 1}" in refused.err
        assert "Start a newer version" in refused.err


def migrate_as_newer_still(command: Command) -> None:
    with psycopg.connect(command.environment["WINDLASS_DATABASE_URL"]) as connection:
        values = {"name": NEEDED, "value": str(NEWEST + 1)}
        connection.execute("UPDATE settings SET value = %(value)s WHERE name = %(name)s", values)


def test_a_database_that_is_away_has_a_code_of_its_own(windlass: Command) -> None:
    url = f"postgresql://ann:hunter2@127.0.0.1:{free_port()}/x"
    for arguments in (["migrate"], ["migrate", "--check"]):
        ended = windlass(*arguments, WINDLASS_DATABASE_URL=url)
        assert ended.code == exit_codes.OUT_OF_REACH
        assert "can't be reached" in ended.err
        assert "hunter2" not in ended.err


def test_commands_do_not_migrate_where_servers_do_not(empty: Command) -> None:
    refused = empty("admin", "first-owner", **WAITS)
    assert refused.code == exit_codes.FAILED
    assert "Run `windlass migrate` with this version." in refused.err
    assert empty("migrate", "--check").code == exit_codes.MIGRATION_NEEDED
    assert empty("admin", "first-owner", WINDLASS_MASTER_KEY=KEY).code == 0


@pytest.fixture
def waiting(empty: Command) -> Iterator[tuple[str, Started, Started]]:
    """The address of an API, and an API and a worker that wait for the tables."""
    port = free_port()
    with (
        empty.started("api", "--port", str(port), **WAITS) as api,
        empty.started("worker", **WAITS, WINDLASS_HOME=empty.environment["WINDLASS_HOME"] + "-2") as worker,
    ):
        yield f"http://127.0.0.1:{port}", api, worker


def stopped(server: Started) -> int:
    server.process.send_signal(signal.SIGTERM)
    return server.end()


def answer(url: str) -> httpx.Response | None:
    try:
        return httpx.get(url, trust_env=False)
    except httpx.TransportError:
        return None


def status(url: str) -> int | None:
    found = answer(url)
    return found.status_code if found is not None else None


def test_servers_wait_for_the_migration(waiting: tuple[str, Started, Started], empty: Command) -> None:
    url, api, worker = waiting
    until(lambda: status(f"{url}/health") == 200)
    ready = httpx.get(f"{url}/ready", trust_env=False)
    assert ready.status_code == 503
    assert ready.json()["checks"] == {"database": "failing"}
    assert "Run `windlass migrate`" in ready.json()["problems"]["database"]
    other = httpx.get(f"{url}/crews/tea/inputs", trust_env=False)
    assert (other.status_code, other.headers["retry-after"]) == (503, "2")
    worker.wait_for("waiting for the tables")
    assert empty("migrate", "--check").code == exit_codes.MIGRATION_NEEDED
    assert empty("migrate").code == 0
    until(lambda: status(f"{url}/ready") == 200)
    worker.wait_for("working")
    assert (stopped(api), stopped(worker)) == (0, 0)


def test_a_server_that_waits_can_be_stopped(waiting: tuple[str, Started, Started]) -> None:
    url, api, worker = waiting
    until(lambda: status(f"{url}/ready") == 503)
    worker.wait_for("waiting for the tables")
    assert (stopped(api), stopped(worker)) == (0, 0)


def test_a_server_that_runs_is_not_ready_once_the_database_is_too_new(empty: Command) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with empty.started("api", "--port", str(port), WINDLASS_MASTER_KEY=KEY) as api:
        until(lambda: status(f"{url}/ready") == 200)
        migrate_as_newer(empty.environment["WINDLASS_DATABASE_URL"], NEWEST)
        assert status(f"{url}/ready") == 200
        migrate_as_newer_still(empty)
        refused = answer(f"{url}/ready")
        assert refused is not None
        assert (refused.status_code, refused.json()["checks"]["database"]) == (503, "failing")
        assert "newer Windlass" in refused.json()["problems"]["database"]
        assert stopped(api) == 0
    ended = empty("api", "--port", str(port), WINDLASS_MASTER_KEY=KEY)
    assert ended.code == 1
    assert "error: The database was migrated by a newer Windlass" in ended.err
