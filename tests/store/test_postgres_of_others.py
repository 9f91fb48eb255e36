"""PostgreSQL as others run it: each supported version, a role with few rights, a schema of its own, TLS, a standby."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from projects_for_tests.places import folder_for_all
from store.stock_postgres import INSTALLED, MISSING, others, server
from store.test_outside_database import PACKAGE, live
from windlass.administration.opening import database_for_commands, demand_tables
from windlass.config import Settings
from windlass.errors import DatabaseUnavailable, SettingsError
from windlass.store.database import Database
from windlass.store.migrate import known_migrations, migrate
from windlass.store.write_checks import write_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

MAJORS = (14, 15, 16, 17, 18)
UNPACKED = Path(__file__).parents[2] / ".make" / "postgres"
WHEEL = {16: "pginstall", 18: "pginstall18"}
ROLE = """
CREATE ROLE app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION;
CREATE DATABASE app OWNER postgres ENCODING 'UTF8' TEMPLATE template0;
"""


@contextmanager
def programs(major: int) -> Iterator[Path]:
    """The folder with the programs of this version, where every user can run them."""
    unpacked = UNPACKED / str(major) / "bin"
    installed = [path.parent for path in INSTALLED if path.parent.parent.name == str(major)]
    if major in WHEEL:
        with folder_for_all() as folder:
            name = WHEEL[major]
            shutil.copytree(PACKAGE / name, folder / PACKAGE.name / name, symlinks=True)
            libraries = PACKAGE.with_name(f"{PACKAGE.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, folder / libraries.name)
            yield folder / PACKAGE.name / name / "bin"
    elif installed:
        yield installed[0]
    elif (unpacked / "postgres").exists():
        with folder_for_all() as folder:
            shutil.copytree(unpacked.parent, folder / "postgres", symlinks=True)
            yield folder / "postgres" / "bin"
    else:
        pytest.skip(
            f"PostgreSQL {major} is not here. `make test` fetches it on Linux with {platform.machine()}, with npm."
        )


@pytest.fixture
def system_server() -> Iterator[str]:
    """The URL of the superuser of a server of its own."""
    if not INSTALLED:
        pytest.skip(MISSING)
    with server(INSTALLED[0].parent) as url:
        yield url


def with_role(superuser: str, *statements: str) -> str:
    """Makes a role without rights and a database of somebody else. Returns the URL of the role."""
    with psycopg.connect(superuser, autocommit=True) as connection:
        for statement in ROLE.strip().splitlines():
            connection.execute(statement.encode())
    database = make_conninfo(superuser, dbname="app")
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
    return make_conninfo(superuser, dbname="app", user="app")


@pytest.mark.parametrize("major", MAJORS)
async def test_each_supported_version_serves_a_role_that_may_only_make_tables(major: int) -> None:
    with programs(major) as folder, server(folder) as superuser:
        url = with_role(superuser, "REVOKE ALL ON SCHEMA public FROM PUBLIC", "GRANT ALL ON SCHEMA public TO app")
        async with Database(url) as database:
            assert await migrate(database) == list(known_migrations())
            assert await migrate(database) == []
            await live(database)
        with psycopg.connect(url) as connection:
            assert connection.info.server_version // 10000 == major


@pytest.mark.parametrize("way", ["of the role", "of the URL"])
async def test_tables_can_have_a_schema_of_their_own(system_server: str, way: str) -> None:
    closed = ("REVOKE ALL ON SCHEMA public FROM PUBLIC", "CREATE SCHEMA windlass AUTHORIZATION app")
    if way == "of the role":
        url = with_role(system_server, *closed, "ALTER ROLE app IN DATABASE app SET search_path = windlass")
    else:
        url = make_conninfo(with_role(system_server, *closed), options="-csearch_path=windlass")
    async with Database(url) as database:
        await migrate(database)
        await live(database)
        found = await database.rows("SELECT DISTINCT schemaname FROM pg_tables WHERE tableowner = 'app'")
    assert found == [{"schemaname": "windlass"}]


GRANTS = """
ALTER DEFAULT PRIVILEGES FOR ROLE migrator GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON TABLES TO app;
ALTER DEFAULT PRIVILEGES FOR ROLE migrator GRANT USAGE ON SEQUENCES TO app;
"""


async def test_a_server_may_use_tables_that_another_role_makes(system_server: str) -> None:
    roles = (
        "CREATE ROLE migrator LOGIN",
        "GRANT ALL ON SCHEMA public TO migrator",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    )
    url = with_role(system_server, *roles, *GRANTS.strip().splitlines())
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "postgresql.md").read_text("utf-8")
    assert all(line.replace(" app;", " windlass;") in page for line in GRANTS.strip().splitlines())
    async with Database(make_conninfo(url, user="migrator")) as database:
        await migrate(database)
    async with Database(url) as database:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await database.execute("CREATE TABLE more (a int)")
        await demand_tables(database)
        await live(database)
        assert await write_fault(database) is None


def certificate(folder: Path, name: str) -> None:
    """Makes a CA, and the certificate of a server with this name."""
    orders = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem",
        f"req -newkey rsa:2048 -nodes -subj /CN={name} -addext subjectAltName=DNS:{name} -keyout key.pem -out asked",
        "x509 -req -in asked -CA ca.pem -CAkey ca.key -days 2 -copy_extensions copy -out certificate.pem",
    )
    for order in orders:
        subprocess.run(["openssl", *order.split()], cwd=folder, check=True, capture_output=True)
    account = others(folder)
    (folder / "key.pem").chmod(0o600)
    if account:
        os.chown(folder / "key.pem", account["user"], account["group"])  # type: ignore[arg-type]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_tls_is_verified_in_full() -> None:
    if not INSTALLED:
        pytest.skip(MISSING)
    with folder_for_all() as folder:
        certificate(folder, "localhost")
        port = free_port()
        files = (f"ssl_cert_file={folder}/certificate.pem", f"ssl_key_file={folder}/key.pem")
        settings = ("ssl=on", "listen_addresses=127.0.0.1", f"port={port}", *files)
        with server(INSTALLED[0].parent, {"encoding": "UTF8", "locale": "C.UTF-8"}, *settings) as socket_url:
            with_role(make_conninfo(socket_url, port=port), "GRANT ALL ON SCHEMA public TO app")
            verified = f"postgresql://app@localhost:{port}/app?sslmode=verify-full&sslrootcert={folder}/ca.pem"
            async with Database(verified) as database:
                await migrate(database)
                (row,) = await database.rows("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
                assert row["ssl"]
            with pytest.raises(DatabaseUnavailable, match=r'does not match host name "127\.0\.0\.1".*sslrootcert'):
                async with Database(verified.replace("localhost", "127.0.0.1")):
                    pass
            certificate(folder, "localhost")  # of another CA than the server has
            with pytest.raises(DatabaseUnavailable, match=r"certificate verify failed.*sslrootcert"):
                async with Database(verified):
                    pass


async def test_a_read_only_database_is_refused_at_the_start(system_server: str, tmp_path: Path) -> None:
    url = with_role(
        system_server, "GRANT ALL ON SCHEMA public TO app", "ALTER DATABASE app SET default_transaction_read_only = on"
    )
    with pytest.raises(SettingsError, match=r"WINDLASS_DATABASE_URL leads to a read-only database.*Name the primary"):
        async with database_for_commands(Settings(database_url=SecretStr(url), home=tmp_path)):
            pass
