"""Homes with a database that is made already: to make one takes ten times as long as to copy one."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import functools
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from windlass.embedded_postgres.data_folder import SUPERUSER
from windlass.embedded_postgres.home import Paths, account_for, make_home
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.embedded_postgres.programs import find_programs
from windlass.store.database import Database
from windlass.store.migrate import migrate

_shared: list[Path] = []


def give_database(home: Path) -> None:
    """Gives the home a database with our tables, unless it has one. The server's first start makes the rest."""
    places = Paths(home)
    if not places.own.exists():
        made = _made()
        make_home(home)
        places.own.mkdir(mode=0o700)
        subprocess.run(["cp", "-a", made.data, made.password, places.own], check=True)


def new_folder() -> Path:
    """Returns one for all processes of pytest, or for this one."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def share(folder: Path) -> None:
    """Sets the folder where the first process that needs the database makes it, for all of them."""
    _shared.append(folder)


@functools.cache
def _made() -> Paths:
    folder = _shared[-1] if _shared else new_folder()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            _make(folder / "home")
            _shorten_log(Paths(folder / "home"), lock.fileno())
            (folder / "made").touch()
    return Paths(folder / "home")


def _make(home: Path) -> None:
    server = EmbeddedPostgres(home)
    try:
        with ThreadPoolExecutor(1) as apart_from_the_loop_of_a_test:
            apart_from_the_loop_of_a_test.submit(asyncio.run, _migrate(url := server.start())).result()
        _drop_templates(url)
    finally:
        server.stop()


def _drop_templates(url: str) -> None:
    """Drops the two databases that are there to be copied by CREATE DATABASE: a copy of the home has 15 MB less."""
    with psycopg.connect(url, user=SUPERUSER, autocommit=True) as connection:
        for name in map(Identifier, ("template0", "template1")):
            connection.execute(SQL("ALTER DATABASE {} IS_TEMPLATE false").format(name))
            connection.execute(SQL("DROP DATABASE {}").format(name))


def _shorten_log(places: Paths, lock: int) -> None:
    """Makes the segments of the write-ahead log 1 MB long, in place of 16: a copy has 15 MB less."""
    programs = find_programs(account_for(places.data), places.programs)
    programs.run("pg_resetwal", "--wal-segsize=1", f"--pgdata={places.data}", lock=lock)


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)
