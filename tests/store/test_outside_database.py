"""On a PostgreSQL of another major version than the one that comes with Windlass, as somebody else runs it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from store.kickoff_rows import DONE, Rows
from windlass.embedded_postgres.programs import PROGRAMS, psql
from windlass.kickoffs.events import stored_event
from windlass.kickoffs.states import State
from windlass.store.database import Database
from windlass.store.migrate import known_migrations, migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = 18
INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
PACKAGE = psql().parents[len(PROGRAMS.parts)]
"""The wheel: Windlass uses the 18 of it, and it brings a 16, too."""


def others(folder: Path) -> dict[str, object]:
    """For subprocess: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@pytest.fixture
def programs() -> Iterator[Path]:
    """Of the oldest that the system has, else of the wheel, where another user can reach them."""
    if INSTALLED:
        yield INSTALLED[0]
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
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
    account = others(folder)
    order = [programs / "initdb", "--auth=trust", "--username=owner", "--no-sync", "--encoding=UTF8", folder / "data"]
    subprocess.run(order, check=True, capture_output=True, cwd=folder, **account)  # type: ignore[call-overload]
    options = ["-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen(  # type: ignore[call-overload]
        [programs / "postgres", *options], cwd=folder, stderr=subprocess.PIPE, text=True, **account
    )
    for line in server.stderr:
        if "ready to accept connections" in line:
            break
    yield f"postgresql://owner@/postgres?host={folder}"
    server.terminate()
    server.wait(60)
    server.stderr.close()
    shutil.rmtree(folder)


async def test_a_kickoff_lives_its_life_there(outside_url: str) -> None:
    async with Database(outside_url) as database:
        assert await migrate(database) == list(known_migrations())
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
        with psycopg.connect(outside_url) as connection:
            assert connection.info.server_version // 10000 != OURS
