"""The primary of PostgreSQL is killed under load, and its synchronous standby becomes the primary."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import psycopg
import pytest
from pydantic import SecretStr

from faults.cluster import FAST, Cluster, free_port
from faults.load import Load
from faults.node import Node
from projects_for_tests.driver import until
from projects_for_tests.places import folder_for_all
from store.stock_postgres import INSTALLED, MISSING, others
from windlass.administration.opening import database_for_commands
from windlass.cli.checks import examine
from windlass.cli.checks.server import database
from windlass.config import Settings
from windlass.embedded_postgres.data_folder import SUPERUSER
from windlass.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AsyncExitStack
    from pathlib import Path

KIND = "function"
BACK_WITHIN = 15.0
PRIMARY = ("listen_addresses=127.0.0.1", "fsync=off", "hot_standby=on", "synchronous_standby_names=*")
STANDBY = ("listen_addresses=127.0.0.1", "fsync=off", "hot_standby=on")


class Server:
    """A PostgreSQL in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.account = others(folder)
        self.programs = INSTALLED[0].parent

    def run(self, program: str, *arguments: str) -> None:
        order = [str(self.programs / program), *arguments]
        done = subprocess.run(order, check=False, capture_output=True, text=True, cwd=self.folder, **self.account)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr

    def start(self, settings: tuple[str, ...]) -> None:
        given = [f"-c{setting}" for setting in settings]
        order = [str(self.programs / "postgres"), "-D", "data", "-k", str(self.folder), "-p", str(self.port), *given]
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(order, cwd=self.folder, stderr=log, **self.account)  # type: ignore[call-overload]
        until(self.answers, 60)

    def answers(self) -> bool:
        try:
            psycopg.connect(host="127.0.0.1", port=self.port, user=SUPERUSER, dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary, and a standby that confirms each commit."""
    if not INSTALLED:
        pytest.skip(MISSING)
    with folder_for_all() as one, folder_for_all() as other:
        primary, standby = Server(one), Server(other)
        primary.run(
            "initdb", "--auth=trust", f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C", "-N", "-D", "data"
        )
        primary.start(PRIMARY)
        source = f"host=127.0.0.1 port={primary.port} user={SUPERUSER}"
        standby.run("pg_basebackup", "-D", "data", "-R", "-c", "fast", "-d", source)
        standby.start(STANDBY)
        try:
            with psycopg.connect(f"{source} dbname=postgres", autocommit=True) as connection:
                connection.execute("SET synchronous_commit = remote_apply")
                connection.execute("CREATE ROLE windlass LOGIN")
                connection.execute("CREATE DATABASE windlass OWNER windlass")
            yield primary, standby
        finally:
            primary.kill()
            standby.kill()


class OnAPair(Cluster):
    """A cluster whose processes have one URL with both servers."""

    def __init__(self, place: Path, pair: tuple[Server, Server]) -> None:
        super().__init__(place, kinds=[KIND], settings=FAST, workers=2, apis=1, forked=True)
        ports = ",".join(str(server.port) for server in pair)
        hosts = "127.0.0.1,127.0.0.1"
        self.url = f"postgresql://windlass@/windlass?host={hosts}&port={ports}&target_session_attrs=read-write"

    async def _start_postgres(self, stack: AsyncExitStack) -> None:
        pass

    async def _node(self, stack: AsyncExitStack, name: str, order: list[str]) -> Node:
        self.ports[name] = free_port()
        own = {
            "WINDLASS_DATABASE_URL": self.url,
            "WINDLASS_MASTER_KEY": self._key,
            "WINDLASS_PORT": str(self.ports[name]),
        }
        node = Node(self.place / name, order, {**self.settings, **self.witness.environment, **own}, forked=True)
        stack.callback(node.kill)
        return node


@pytest.mark.skipif(shutil.which("pg_ctl", path=str(INSTALLED[0].parent) if INSTALLED else "") is None, reason=MISSING)
async def test_nothing_is_lost_when_a_standby_takes_over(open_folder: Path, pair: tuple[Server, Server]) -> None:
    primary, standby = pair
    async with OnAPair(open_folder, pair) as cluster:
        held = await cluster.kickoff(KIND, hold=1)
        addresses = [cluster.address(api) for api in cluster.apis]
        load = Load(addresses, f"/crews/witnessed-{KIND}", cluster.tokens[KIND], held=held.id)
        async with load.applied():
            await load.go_on(60)
            assert load.failures == []
            await asyncio.to_thread(primary.kill)
            begun = time.monotonic()
            await asyncio.to_thread(standby.run, "pg_ctl", "promote", "-D", "data", "-w")
            await cluster.kickoff(KIND)  # asked for until it is accepted
            took = time.monotonic() - begun
            await load.go_on(60)
            cluster.witness.release(held.run)
        assert all("503" in failure for failure in load.failures), load.failures
        accepted = set(load.accepted)
        assert await load.states() == {"SUCCESS": len(accepted)}
        assert (await cluster.ended(held))["state"] == "SUCCESS"
        assert took < BACK_WITHIN


async def test_a_standby_alone_is_refused(pair: tuple[Server, Server], tmp_path: Path) -> None:
    _, standby = pair
    url = SecretStr(f"postgresql://windlass@127.0.0.1:{standby.port}/windlass")
    with pytest.raises(SettingsError, match=r"leads to a read-only database: a standby.*target_session_attrs"):
        async with database_for_commands(Settings(database_url=url, home=tmp_path)):
            pass
    finding = await asyncio.to_thread(examine, lambda: database(Settings(database_url=url, home=tmp_path)))
    assert "read-only" in finding.text
