"""On a PostgreSQL of another major version than the one that comes with Windlass, as somebody else runs it."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL

from store.kickoff_rows import DONE, Rows
from store.stock_postgres import INSTALLED, server
from windlass.embedded_postgres.data_folder import SUPERUSER
from windlass.embedded_postgres.programs import PROGRAMS, psql
from windlass.kickoffs.events import stored_event
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.store.claiming import FIRST, values_of
from windlass.store.claiming import SQL as CLAIMING
from windlass.store.database import Database
from windlass.store.migrate import MigrationError, known_migrations, migrate
from windlass.store.statistics import StatisticsStore

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = 18
PACKAGE = psql().parents[len(PROGRAMS.parts)]
"""The wheel: Windlass uses the 18 of it, and it brings a 16, too."""


@pytest.fixture
def programs() -> Iterator[Path]:
    """Of the oldest that the system has, else of the wheel, where another user can reach them."""
    if INSTALLED:
        yield INSTALLED[0].parent
        return
    with tempfile.TemporaryDirectory(prefix="windlass-test-") as folder:
        copy = Path(folder)
        copy.chmod(0o755)
        shutil.copytree(PACKAGE / "pginstall", copy / PACKAGE.name / "pginstall")
        libraries = PACKAGE.with_name(f"{PACKAGE.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, copy / libraries.name)
        yield copy / PACKAGE.name / "pginstall" / "bin"


@pytest.fixture
def outside_url(programs: Path) -> Iterator[str]:
    with server(programs) as url:
        yield url


@pytest.fixture
def stock_url(stock_postgres: str) -> Iterator[str]:
    """A database of the system's PostgreSQL, empty and not migrated. The test may change its settings."""
    yield from new_database(stock_postgres, "ENCODING 'UTF8' LOCALE 'C.UTF-8'")


def new_database(postgres: str, options: LiteralString) -> Iterator[str]:
    with psycopg.connect(postgres, user=SUPERUSER, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE outside OWNER windlass TEMPLATE template0 " + options))
        try:
            yield make_conninfo(postgres, dbname="outside")
        finally:
            connection.execute("DROP DATABASE outside WITH (FORCE)")


def change(url: str, *orders: LiteralString) -> None:
    with psycopg.connect(url, user=SUPERUSER, autocommit=True) as connection:
        for order in orders:
            connection.execute(order)


async def live(database: Database) -> Rows:
    """Takes kickoffs through their moves."""
    rows = await Rows.make(database)
    lost = await rows.silent()
    assert await rows.store.reap(max_losses=3) == [(lost.id, State.PENDING)]
    (claimed,) = await rows.claim()
    assert (claimed.id, claimed.attempt) == (lost.id, 2)
    assert await rows.write_reports(claimed.id, 2, [stored_event(1, "k", 1.0, {"x": "\x00"})], [])
    assert await rows.settle(claimed, DONE)
    assert (await rows.status(claimed.id)).state is State.SUCCESS
    (reserved,) = await rows.accept(key="a")
    assert reserved
    await rows.accept(concurrency_key="k")
    await rows.store.promote(FIRST)
    await StatisticsStore(database).count()
    await StatisticsStore(database).server()
    await StatisticsStore(database).crews([rows.deployment.id])
    return rows


def compiles(pid: int) -> bool:
    """Whether the process of PostgreSQL has loaded LLVM, which it does for the first statement that it compiles."""
    return "llvmjit.so" in Path(f"/proc/{pid}/maps").read_text()


async def test_a_kickoff_lives_its_life_there(outside_url: str) -> None:
    async with Database(outside_url) as database:
        assert await migrate(database) == list(known_migrations())
        await live(database)
        with psycopg.connect(outside_url) as connection:
            assert connection.info.server_version // 10000 != OURS


async def test_no_statement_is_compiled_also_where_jit_is_on_for_all(stock_url: str) -> None:
    change(stock_url, "ALTER DATABASE outside SET jit_above_cost = 1")
    async with Database(stock_url, connections=1) as database:
        await migrate(database)
        await live(database)
        (row,) = await database.rows("SELECT pg_backend_pid() AS pid")
        assert not compiles(row["pid"])
        await database.execute("SET jit = on")
        await database.rows("SELECT count(*) FROM users")
        assert compiles(row["pid"])


async def test_a_function_that_disables_plans_is_not_compiled_in_a_session_with_jit(stock_url: str) -> None:
    values = values_of(new_id(), 2, 60)
    async with Database(stock_url) as database:
        await migrate(database)
        rows = await Rows.make(database)
        await rows.accept(3, concurrency_key="k")
        await rows.accept(3)
        async with await psycopg.AsyncConnection.connect(stock_url, autocommit=True) as session:
            claimed = await session.execute(CLAIMING["claim"], values)
            assert len(await claimed.fetchall()) == 2
            assert not compiles(session.info.backend_pid)
            await session.execute("SET jit_above_cost = 0")
            await session.execute("SELECT count(*) FROM users")
            assert compiles(session.info.backend_pid)


async def test_settings_of_the_database_and_its_user_change_nothing(stock_url: str) -> None:
    change(
        stock_url,
        "ALTER DATABASE outside SET default_transaction_isolation = 'serializable'",
        "ALTER DATABASE outside SET statement_timeout = '200ms'",
        "ALTER DATABASE outside SET lock_timeout = '200ms'",
        "ALTER DATABASE outside SET idle_in_transaction_session_timeout = '200ms'",
        "ALTER DATABASE outside SET idle_session_timeout = '200ms'",
        "ALTER DATABASE outside SET timezone = 'Asia/Kathmandu'",
        "ALTER DATABASE outside SET datestyle = 'German'",
        "ALTER DATABASE outside SET intervalstyle = 'iso_8601'",
        "ALTER DATABASE outside SET bytea_output = 'escape'",
        "ALTER DATABASE outside SET extra_float_digits = -15",
        "ALTER DATABASE outside SET client_encoding = 'LATIN1'",
        "ALTER DATABASE outside SET standard_conforming_strings = off",
    )
    async with Database(stock_url) as database:
        await migrate(database)
        rows = await live(database)
        assert await database.rows("SELECT pg_sleep(0.4), '{\\u0041 ü ☃}' AS text") == [
            {"pg_sleep": "", "text": "{\\u0041 ü ☃}"}
        ]
        await rows.accept(run_at=(due := datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC)))
        (row,) = await database.rows("SELECT run_at, run_at::text AS text FROM kickoffs WHERE run_at > now()")
        assert (row["run_at"], row["text"]) == (due, "2031-01-02 03:04:05+00")


@pytest.mark.parametrize("options", ["LOCALE 'C'", "LOCALE 'C.UTF-8' LOCALE_PROVIDER icu ICU_LOCALE 'de-DE'"])
async def test_any_locale_serves(stock_postgres: str, options: LiteralString) -> None:
    for url in new_database(stock_postgres, "ENCODING 'UTF8' " + options):
        async with Database(url) as database:
            await migrate(database)
            await live(database)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_a_database_with_another_encoding_is_refused(stock_postgres: str, encoding: LiteralString) -> None:
    for url in new_database(stock_postgres, f"LOCALE 'C' ENCODING '{encoding}'"):
        async with Database(url) as database:
            with pytest.raises(MigrationError, match=rf"encoding of the database outside is {encoding}\. .*UTF8"):
                await migrate(database)
