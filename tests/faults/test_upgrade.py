"""The newest tagged release is upgraded under load, one process after the other, and an API process goes back once.

Both releases run with the packages of this environment.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

import psycopg

from faults.cluster import FAST, Cluster, free_port
from faults.load import Load
from faults.node import Node
from faults.registered import copied
from projects_for_tests.releases import extract, newest_release

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {**FAST, "WINDLASS_DRAIN_GRACE": "20", "WINDLASS_LEASE": "5"}
KIND = "function"


class ReleasedCluster(Cluster):
    """One of an earlier release, whose crew is registered with its own commands."""

    def __init__(self, place: Path, released: Path) -> None:
        super().__init__(place, kinds=[KIND], settings=SETTINGS)
        self.released = released

    async def _register(self) -> dict[str, str]:
        return await asyncio.to_thread(self._register_with_commands)

    def _register_with_commands(self) -> dict[str, str]:
        with psycopg.connect(self.url) as connection:  # the database of the tests has the tables of this release
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        own = {"WINDLASS_DATABASE_URL": self.url, "WINDLASS_MASTER_KEY": self._key, "WINDLASS_PORT": str(free_port())}
        dev = Node(self.place / "dev", ["dev", str(copied(KIND, self.place))], {**self.witness.environment, **own})
        dev.source = self.released
        dev.run("migrate")
        dev.start()
        try:
            while "server.ready" not in dev.log:
                assert dev.lives, dev.log
            dev.signal(signal.SIGINT)
        finally:
            dev.stop()
        (shown,) = json.loads(dev.run("tokens", "show", "--json"))
        return {KIND: shown["organization_token"]}

    async def _make_nodes(self, stack: object) -> None:
        await super()._make_nodes(stack)  # type: ignore[arg-type]
        for node in self.nodes:
            node.source = self.released

    async def replace(self, node: Node, source: Path) -> None:
        """Stops the node as an operator does, and starts it from these sources."""
        assert await asyncio.to_thread(node.stop) == 0, node.log
        node.source = source
        await self.start(node)


async def test_an_upgrade_and_a_way_back_fail_no_request_and_lose_no_kickoff(open_folder: Path, tmp_path: Path) -> None:
    released = extract(newest_release(), tmp_path)
    async with ReleasedCluster(open_folder, released) as cluster:
        new = Node(open_folder / "new", [], {}).source
        held = await cluster.kickoff(KIND, hold=1)
        addresses = [cluster.address(api) for api in cluster.apis]
        load = Load(addresses, f"/crews/witnessed-{KIND}", cluster.tokens[KIND], held=held.id)
        async with load.applied():
            await load.go_on(40)
            migrating = Node(open_folder / "migrate", [], {"WINDLASS_DATABASE_URL": cluster.url})
            await asyncio.to_thread(migrating.run, "migrate")
            await load.go_on(20)
            first, second = cluster.apis
            for api, source in ((first, new), (second, new), (first, released), (first, new)):
                await cluster.replace(api, source)
                await load.go_on(20)
            for worker in cluster.workers:
                await cluster.replace(worker, new)
                await load.go_on(20)
            cluster.witness.release(held.run)
        assert load.failures == []
        assert await load.states() == {"SUCCESS": len(load.accepted)}
        assert (await cluster.ended(held))["state"] == "SUCCESS"
