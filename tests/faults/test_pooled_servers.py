"""An API process and workers whose statements go through PgBouncer with pool_mode = transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from faults.cluster import FAST, Cluster, free_port
from faults.load import Load
from faults.node import Node
from store.stock_postgres import INSTALLED, MISSING, server
from store.test_pooler import PGBOUNCER, pooled
from windlass.embedded_postgres.data_folder import DATABASE, SUPERUSER, USER

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

KIND = "function"
ROLE = f"""
CREATE ROLE {USER} LOGIN;
CREATE DATABASE {DATABASE} OWNER {USER};
ALTER ROLE {USER} IN DATABASE {DATABASE} SET jit = 'off';
ALTER ROLE {USER} IN DATABASE {DATABASE} SET timezone = 'UTC';
"""

pytestmark = pytest.mark.skipif(not INSTALLED or PGBOUNCER is None, reason=f"{MISSING} `pgbouncer` is needed too.")


class PooledCluster(Cluster):
    async def _start_postgres(self, stack: AsyncExitStack) -> None:
        superuser = stack.enter_context(server(INSTALLED[0].parent))
        with psycopg.connect(superuser, autocommit=True) as connection:
            for statement in ROLE.strip().splitlines():
                connection.execute(statement.encode())
        self.url = superuser.replace(f"{SUPERUSER}@/postgres", f"{USER}@/{DATABASE}")
        self.pooler = stack.enter_context(pooled(self.url, "transaction", "default_pool_size = 4"))

    async def _node(self, stack: AsyncExitStack, name: str, order: list[str]) -> Node:
        self.ports[name] = free_port()
        own = {
            "WINDLASS_DATABASE_URL": self.pooler,
            "WINDLASS_DATABASE_DIRECT_URL": self.url,
            "WINDLASS_MASTER_KEY": self._key,
            "WINDLASS_PORT": str(self.ports[name]),
        }
        node = Node(self.place / name, order, {**self.settings, **self.witness.environment, **own}, forked=True)
        stack.callback(node.kill)
        return node


async def test_kickoffs_run_behind_a_pooler_that_shares_connections(open_folder: Path) -> None:
    async with PooledCluster(open_folder, kinds=[KIND], settings=FAST, workers=2, apis=1, forked=True) as cluster:
        held = await cluster.kickoff(KIND, hold=1)
        addresses = [cluster.address(api) for api in cluster.apis]
        load = Load(addresses, f"/crews/witnessed-{KIND}", cluster.tokens[KIND], held=held.id)
        async with load.applied():
            await load.go_on(80)
            cluster.witness.release(held.run)
        assert load.failures == []
        assert await load.states() == {"SUCCESS": len(load.accepted)}
        assert (await cluster.ended(held))["state"] == "SUCCESS"
        logs = "\n".join(node.log for node in cluster.nodes)
        assert "database.refused" not in logs
        assert "database.away" not in logs
