"""Connections through PgBouncer, as Debian brings it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from projects_for_tests.driver import until
from projects_for_tests.places import folder_for_all
from store.kickoff_rows import DONE, Rows
from store.stock_postgres import others
from windlass.administration.opening import database_for_commands
from windlass.cli.checks import Level, examine
from windlass.cli.checks import server as checks_of_server
from windlass.config import Settings
from windlass.errors import SettingsError
from windlass.store.database import Database, refuse_transaction_pooling
from windlass.store.listener import Listener

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
    refused = pytest.raises(SettingsError, match=r"leads to a connection pooler .*pool_mode = session")
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


async def test_a_direct_connection_and_one_that_fails_are_not_refused(stock_postgres: str) -> None:
    await refuse_transaction_pooling(stock_postgres)
    await refuse_transaction_pooling(make_conninfo(stock_postgres, dbname="missing"))


async def test_commands_refuse_such_a_pooler_too(stock_postgres: str, tmp_path: Path) -> None:
    with pooled(stock_postgres, "transaction") as url:
        settings = Settings(database_url=SecretStr(url), home=tmp_path)
        with pytest.raises(SettingsError, match=r"leads to a connection pooler .*pool_mode = session"):
            async with database_for_commands(settings):
                pass
        finding = await asyncio.to_thread(examine, lambda: checks_of_server.database(settings))
        assert finding.level is Level.FAIL
        assert "leads to a connection pooler" in finding.text
