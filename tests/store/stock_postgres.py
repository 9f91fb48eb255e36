"""Servers of PostgreSQL as a package of the system brings it, with the settings that `initdb` chooses."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg.sql import SQL, Identifier

from store.shared_database import TEMPLATE
from windlass.embedded_postgres.data_folder import DATABASE, SUPERUSER, USER
from windlass.store.database import Database
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
MISSING = "PostgreSQL is not installed on this system. `make test` installs the package `postgresql` as root on Debian."
LOCALE = {"encoding": "UTF8", "locale": "C.UTF-8"}


@contextmanager
def server(programs: Path, cluster: Mapping[str, str] = LOCALE, *settings: str) -> Iterator[str]:
    """The URL of its superuser. It listens only on a socket in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
    folder.chmod(0o755)
    account = others(folder)
    options = [f"--{name}={value}" for name, value in cluster.items()]
    order = [programs / "initdb", "--auth=trust", f"--username={SUPERUSER}", "--no-sync", *options, folder / "data"]
    subprocess.run(order, check=True, capture_output=True, cwd=folder, **account)  # type: ignore[call-overload]
    given = [f"-c{setting}" for setting in ("listen_addresses=", "fsync=off", *settings)]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(  # type: ignore[call-overload]
            [programs / "postgres", "-D", folder / "data", "-k", folder, *given], cwd=folder, stderr=log, **account
        )
    try:
        _wait(folder / "log", running)
        yield f"postgresql://{SUPERUSER}@/postgres?host={folder}"
    finally:
        running.terminate()
        running.wait(60)
        shutil.rmtree(folder)


def others(folder: Path) -> dict[str, object]:
    """For subprocess: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def with_template(superuser: str) -> str:
    """Makes a user and its database, and a TEMPLATE with our tables. Returns the URL of the user."""
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(SQL("CREATE ROLE {} LOGIN CREATEDB").format(Identifier(USER)))
        connection.execute(SQL("CREATE DATABASE {0} OWNER {1}").format(Identifier(DATABASE), Identifier(USER)))
        url = superuser.replace(f"{SUPERUSER}@/postgres", f"{USER}@/{DATABASE}")
        with ThreadPoolExecutor(1) as apart_from_the_loop_of_a_test:
            apart_from_the_loop_of_a_test.submit(asyncio.run, _migrate(url)).result()
        order = SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}")
        connection.execute(order.format(Identifier(TEMPLATE), Identifier(DATABASE), Identifier(USER)))
    return url


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)


def _wait(log: Path, running: subprocess.Popen[str]) -> None:
    while "ready to accept connections" not in log.read_text():
        try:
            running.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        raise RuntimeError(log.read_text())
