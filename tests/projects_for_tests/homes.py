"""Homes with a database that is made already: to make one takes ten times as long as to copy one."""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from windlass.embedded_postgres.home import Paths, make_home
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.store.database import Database
from windlass.store.migrate import migrate


def give_database(home: Path) -> None:
    """Gives the home a database with our tables, unless it has one. The server's first start makes the rest."""
    places = Paths(home)
    if not places.own.exists():
        made = _made()
        make_home(home)
        places.own.mkdir(mode=0o700)
        subprocess.run(["cp", "-a", made.data, made.password, places.own], check=True)


@functools.cache
def _made() -> Paths:
    """Made once in each process of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = EmbeddedPostgres(folder)
    try:
        with ThreadPoolExecutor(1) as apart_from_the_loop_of_a_test:
            apart_from_the_loop_of_a_test.submit(asyncio.run, _migrate(server.start())).result()
    finally:
        server.stop()
    return Paths(folder)


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)
