"""Connections through PgBouncer, as Debian brings it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr

from projects_for_tests.driver import until
from projects_for_tests.places import folder_for_all
from store.kickoff_rows import DONE, Rows
from store.stock_postgres import others
from windlass.administration.opening import database_for_commands
from windlass.cli.checks import Level, examine
from windlass.cli.checks import server as checks_of_server
from windlass.config import Settings
from windlass.embedded_postgres.data_folder import DATABASE, USER
from windlass.errors import SettingsError
from windlass.store.database import SESSION, Database, demand_session_defaults, refuse_transaction_pooling
from windlass.store.listener import KICKOFFS, Listener
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
pytestmark = pytest.mark.skipif(
    PGBOUNCER is None, reason="PgBouncer is not installed. `make test` installs `pgbouncer` as root on Debian."
)


def listens(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:  # the file exists a moment before connections are accepted
        return client.connect_ex(str(address)) == 0


@contextmanager
def pooled(url: str, mode: str, *settings: str) -> Iterator[str]:
    """The URL of a PgBouncer before this database."""
    given = conninfo_to_dict(url)
    with folder_for_all() as folder:
        account = others(folder)
        wanted = f"* = host={given['host']} user={given['user']}"
        lines = ("[databases]", wanted, "[pgbouncer]", f"pool_mode = {mode}", f"unix_socket_dir = {folder}")
        more = ("listen_port = 6432", "auth_type = any", f"logfile = {folder}/log", *settings)
        (folder / "ini").write_text("\n".join([*lines, *more]))
        server = subprocess.Popen(  # type: ignore[call-overload]
            [PGBOUNCER, "-q", folder / "ini"], stderr=subprocess.DEVNULL, **account
        )
        try:
            until(lambda: listens(folder / ".s.PGSQL.6432"))
            yield make_conninfo(url, host=str(folder), port=6432)
        finally:
            server.terminate()
            server.wait(30)


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("transaction", ()),
        ("transaction", ("default_pool_size = 1",)),
        ("transaction", ("server_round_robin = 1", "min_pool_size = 5")),
        ("statement", ()),
    ],
)
async def test_a_pooler_that_shares_connections_is_refused(
    stock_postgres: str, mode: str, settings: tuple[str, ...]
) -> None:
    refused = pytest.raises(SettingsError, match=r"leads to a connection pooler .*pool_mode = session.*DIRECT_URL")
    with pooled(stock_postgres, mode, *settings) as url, refused:
        await refuse_transaction_pooling(url)


async def test_a_pooler_with_a_connection_for_each_session_serves(stock_postgres: str) -> None:
    with pooled(stock_postgres, "session") as url:
        await refuse_transaction_pooling(url)
        listener = Listener(url)
        await listener.start()
        async with Database(url) as database, asyncio.timeout(30):
            await listener.listening.wait()
            rows = await Rows.make(database)
            await rows.accept()
            (claimed,) = await rows.claim()
            assert await rows.settle(claimed, DONE)
            (row,) = await database.rows("SELECT current_setting('jit') AS jit")
            assert row["jit"] == "off"
        await listener.stop()


@contextmanager
def settings_of_the_role(url: str, *statements: str) -> Iterator[None]:
    role = SQL("ALTER ROLE {} IN DATABASE {} RESET ALL").format(*map(Identifier, (USER, DATABASE)))
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        try:
            yield
        finally:
            connection.execute(role)


@pytest.mark.parametrize("connections", [1, 5])
async def test_a_pooler_that_shares_connections_serves_with_a_direct_address(
    stock_postgres: str, connections: int
) -> None:
    options = (f"default_pool_size = {connections}", "server_round_robin = 1")
    with pooled(stock_postgres, "transaction", *options) as url, pytest.raises(SettingsError) as refused:
        await demand_session_defaults(url)
    assert "other settings than Windlass needs: jit" in refused.value.message
    statements = refused.value.hint.partition(": ")[2].rstrip(";").split("; ")
    with settings_of_the_role(stock_postgres, *statements), pooled(stock_postgres, "transaction", *options) as url:
        await demand_session_defaults(url)
        listener = Listener(stock_postgres)
        heard = asyncio.Event()
        listener.on(KICKOFFS, lambda _: heard.set())
        await listener.start()
        async with Database(stock_postgres, pooler=url) as database, asyncio.timeout(60):
            await listener.listening.wait()
            rows = await Rows.make(database)
            for _ in range(12):  # psycopg prepares a statement after the fifth time
                await asyncio.gather(*(rows.accept() for _ in range(3)))
                claimed = await rows.claim()
                await asyncio.gather(*(rows.settle(one, DONE) for one in claimed))
            await heard.wait()
            await rows.accept(inputs=json.dumps({"text": "x" * 5_000_000}))  # copied through a temporary table
            async with database.change() as connection:
                await connection.execute("SELECT 1")
            assert await migrate(database) == []
            (row,) = await database.rows("SELECT current_setting('jit') AS jit, count(*) FROM pg_prepared_statements")
            assert (row["jit"], row["count"]) == ("off", 0)
        await listener.stop()


async def test_commands_use_the_direct_address(stock_postgres: str, tmp_path: Path) -> None:
    with pooled(stock_postgres, "transaction") as url:
        settings = Settings(database_url=SecretStr(url), database_direct_url=SecretStr(stock_postgres), home=tmp_path)
        with pytest.raises(SettingsError, match=r"ALTER ROLE windlass IN DATABASE windlass SET jit = 'off';"):
            async with database_for_commands(settings):
                pass
    with (
        settings_of_the_role(
            stock_postgres,
            *[
                f"ALTER ROLE {USER} IN DATABASE {DATABASE} SET {name} = '{value}'"
                for name, value in SESSION.items()
                if name != "transaction_timeout"
            ],
        ),
        pooled(stock_postgres, "transaction") as url,
    ):
        settings = Settings(database_url=SecretStr(url), database_direct_url=SecretStr(stock_postgres), home=tmp_path)
        async with database_for_commands(settings) as database:
            assert database.url == stock_postgres
        finding = await asyncio.to_thread(examine, lambda: checks_of_server.database(settings))
        assert finding.level is Level.OK


async def test_a_direct_connection_and_one_that_fails_are_not_refused(stock_postgres: str) -> None:
    await refuse_transaction_pooling(stock_postgres)
    await refuse_transaction_pooling(make_conninfo(stock_postgres, dbname="missing"))


async def test_commands_refuse_such_a_pooler_too(stock_postgres: str, tmp_path: Path) -> None:
    with pooled(stock_postgres, "transaction") as url:
        settings = Settings(database_url=SecretStr(url), home=tmp_path)
        with pytest.raises(SettingsError, match=r"leads to a connection pooler .*pool_mode = session.*DIRECT_URL"):
            async with database_for_commands(settings):
                pass
        finding = await asyncio.to_thread(examine, lambda: checks_of_server.database(settings))
        assert finding.level is Level.FAIL
        assert "leads to a connection pooler" in finding.text
