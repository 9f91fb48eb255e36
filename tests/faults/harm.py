"""What can happen to a cluster. Each fault leaves it whole again: nodes run, connections are open, the disk has room.

It answers what it was done to, or None where there was nothing to do it to.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil

from embedded_postgres.served_database import keeper, postmaster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path
    from random import Random

    from faults.cluster import Cluster
    from faults.node import Node

    Fault = Callable[[Cluster, Random], Awaitable[str | None]]

BRIEFLY = 0.25
FOR_LONG = 1.75
"""Of a lease: one that can be survived, and one that can't."""


async def kill_child(cluster: Cluster, chance: Random) -> str | None:
    """One that waits for the model."""
    asking = [call for call in cluster.witness.in_flight() if call.pid]
    if not asking:
        return None
    call = chance.choice(asking)
    with suppress(ProcessLookupError):
        os.kill(call.pid or 0, signal.SIGKILL)
    return f"of the run {call.run}"


async def kill_zygote(cluster: Cluster, chance: Random) -> str | None:
    zygotes = [zygote for worker in cluster.workers for zygote in worker.zygotes()]
    if not zygotes:
        return None
    zygote = chance.choice(zygotes)
    with suppress(psutil.NoSuchProcess):
        zygote.kill()
    return str(zygote.pid)


async def kill_worker(cluster: Cluster, chance: Random) -> str:
    return await replaced(cluster, chance.choice(cluster.workers), chance.uniform(0, 2 * cluster.lease))


async def kill_api(cluster: Cluster, chance: Random) -> str:
    return await replaced(cluster, chance.choice(cluster.apis), chance.uniform(0, 1))


async def replaced(cluster: Cluster, node: Node, seconds: float) -> str:
    """Killed, and another one started in its place after a while."""
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(seconds)
    await cluster.start(node)
    return node.name


async def kill_postgres(cluster: Cluster, _: Random) -> str:
    """Its keeper starts it again."""
    pid = await asyncio.to_thread(kill_postmaster, cluster)
    await cluster.until(lambda: is_another(cluster, pid), "PostgreSQL is back")
    return str(pid)


def kill_postmaster(cluster: Cluster) -> int:
    found = postmaster(cluster.postgres_home)
    found.kill()
    return int(found.pid)


async def is_another(cluster: Cluster, pid: int) -> bool:
    try:
        return postmaster(cluster.postgres_home).pid != pid and bool(cluster.audit.rows("SELECT 1"))
    except (FileNotFoundError, IndexError, ValueError, psutil.NoSuchProcess):
        return False


async def take_postgres_away(cluster: Cluster, _: Random) -> str:
    """For longer than the lease."""
    keeping = keeper(cluster.postgres_home)
    keeping.suspend()  # it would start another at once
    try:
        pid = await asyncio.to_thread(kill_postmaster, cluster)
        await asyncio.sleep(FOR_LONG * cluster.lease)
    finally:
        keeping.resume()
    await cluster.until(lambda: is_another(cluster, pid), "PostgreSQL is back")
    return str(pid)


async def stop_worker(cluster: Cluster, chance: Random) -> str:
    """SIGSTOP, for longer than the lease; then SIGCONT."""
    worker = chance.choice(cluster.workers)
    with stopped(worker):
        await asyncio.sleep(FOR_LONG * cluster.lease)
    return worker.name


@contextmanager
def stopped(node: Node) -> Iterator[None]:
    node.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.signal(signal.SIGCONT)


async def cut_briefly(cluster: Cluster, chance: Random) -> str:
    worker = chance.choice(cluster.workers)
    await cut_off(cluster, worker, BRIEFLY * cluster.lease)
    return worker.name


async def cut_for_long(cluster: Cluster, chance: Random) -> str:
    worker = chance.choice(cluster.workers)
    await cut_off(cluster, worker, FOR_LONG * cluster.lease)
    return worker.name


async def cut_off(cluster: Cluster, node: Node, seconds: float) -> None:
    """From the database."""
    proxy = cluster.proxies[node.name]
    await proxy.close()
    try:
        await asyncio.sleep(seconds)
    finally:
        await proxy.open()


async def silence(cluster: Cluster, chance: Random) -> str:
    """The database of one worker does not answer, for longer than the lease; its connections stay."""
    worker = chance.choice(cluster.workers)
    proxy = cluster.proxies[worker.name]
    proxy.freeze()
    try:
        await asyncio.sleep(FOR_LONG * cluster.lease)
    finally:
        proxy.thaw()
    return worker.name


async def fill_disk(cluster: Cluster, chance: Random) -> str | None:
    """That of PostgreSQL, where it is a small one of its own."""
    if not cluster.disk_is_ours:
        return None
    with full(cluster.postgres_home.parent):
        await asyncio.sleep(chance.uniform(1, FOR_LONG * cluster.lease))
    return str(cluster.postgres_home.parent)


@contextmanager
def full(disk: Path) -> Iterator[Callable[[], None]]:
    """Yields a function that fills the disk again, with what others have freed since."""
    ballast = disk / "ballast"

    def fill() -> None:
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20))

    try:
        fill()
        yield fill
    finally:
        ballast.unlink()


async def restart_in_turn(cluster: Cluster, chance: Random) -> str:
    """As an update does it: each node is told to stop, and another one started when it has."""
    nodes = chance.sample(cluster.nodes, len(cluster.nodes))
    for node in nodes:
        status = await asyncio.to_thread(node.stop)
        assert status == 0, f"{node.name} ended with {status}:\n{node.log[-3000:]}"
        await cluster.start(node)
    return ", ".join(node.name for node in nodes)


ALL: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        kill_child,
        kill_zygote,
        kill_worker,
        kill_api,
        kill_postgres,
        take_postgres_away,
        stop_worker,
        cut_briefly,
        cut_for_long,
        silence,
        fill_disk,
        restart_in_turn,
    )
}


def words(fault: Any) -> str:
    """The fault's name, for people."""
    return str(fault.__name__).replace("_", " ")
