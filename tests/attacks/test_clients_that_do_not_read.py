"""Clients that open connections and do not take what they asked for hold neither memory nor the places of others."""

from __future__ import annotations

import asyncio
import socket
import time
import tracemalloc
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.described import check_error
from api.runs import begin
from api.serving import answer_of, raw, serving, until
from windlass.api.application import sources
from windlass.api.client_addresses import source_of
from windlass.api.connections import ConnectionLimits, Connections, Held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

LISTENS, WAITS = "0A", "06"
"""States in /proc/net/tcp; the second is that of connections that have ended."""
MB = 1 << 20
LARGE = 16 * MB
HOST = "192.0.2.1"
IMPATIENT = ConnectionLimits(taken_within=1.0)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held() -> int:
    """Bytes of memory that this process, which is the server, uses."""
    return tracemalloc.get_traced_memory()[0]


async def large_result(crew: Crew) -> str:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.succeed("x" * LARGE)
    return kickoff


def asking(crew: Crew, kickoff: str) -> bytes:
    line = f"GET {crew.path}/status/{kickoff} HTTP/1.1\r\nHost: localhost\r\n"
    return f"{line}Authorization: Bearer {crew.token}\r\n\r\n".encode()


def in_the_kernel(port: int) -> int:
    """Connections of the server that the kernel holds something for, those among them that the server has closed."""
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(local.endswith(f":{port:04X}") and state not in {LISTENS, WAITS} for _, local, _, state, *_ in lines)


def silent(server: Server, request: bytes) -> socket.socket:
    """A client that sends this and reads nothing."""
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(request)
    return client


async def test_a_client_that_does_not_read_a_large_result_is_cut_off_and_its_memory_is_free(
    crew: Crew, traced: None
) -> None:
    kickoff = await large_result(crew)
    async with serving(crew.server.database.url, limits=IMPATIENT) as server:
        before = held()
        with ExitStack() as clients:
            for _ in range(3):
                clients.enter_context(silent(server, asking(crew, kickoff)))

            async def answering() -> bool:
                return server.http_server.connections == 3

            async def cut_off() -> bool:
                return server.http_server.connections == 0

            async def freed() -> bool:
                return held() < before + LARGE / 2

            await until(answering, "three clients have asked")
            await until(cut_off, "who reads nothing is cut off", 60)
            await until(freed, "the answers are gone from the memory", 60)


async def test_what_waits_in_the_kernel_for_a_client_that_has_been_cut_off_goes_too(crew: Crew) -> None:
    kickoff = await large_result(crew)
    async with serving(crew.server.database.url, limits=IMPATIENT) as server:
        with silent(server, asking(crew, kickoff)):

            async def answering() -> bool:
                return in_the_kernel(server.port) == 1

            async def gone() -> bool:
                return in_the_kernel(server.port) == 0

            await until(answering, "the client has asked")
            await until(gone, "the kernel has given the connection up", 60)


async def test_a_client_that_reads_slowly_and_steadily_gets_all(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.succeed("x" * 8 * MB)
    limits = ConnectionLimits(taken_within=3.0)
    async with serving(crew.server.database.url, limits=limits) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=64 * 1024)
        writer.write(asking(crew, kickoff).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        begun, got = time.monotonic(), 0
        while piece := await reader.read(64 * 1024):
            got += len(piece)
            await asyncio.sleep(0.05)
        writer.close()
        assert got > 8 * MB
        assert time.monotonic() - begun > 2 * limits.taken_within


async def test_a_server_with_all_its_connections_refuses_more_in_words_and_takes_them_again(crew: Crew) -> None:
    async with serving(crew.server.database.url, limits=ConnectionLimits(most=10)) as server:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(10)]

        async def all_taken() -> bool:
            return server.http_server.connections == 10

        await until(all_taken, "all connections are there")
        status, headers, content = await raw(server.port, b"")
        assert (status, headers["retry-after"]) == (503, "2")
        check_error(status, headers, content)
        held[0][1].close()

        async def served() -> bool:
            return (await raw(server.port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 200

        await until(served, "a new client is served")
        for _, writer in held:
            writer.close()


async def test_one_address_can_not_have_all_connections(crew: Crew) -> None:
    address = own_address()
    limits = ConnectionLimits(most=50, most_per_address=5)
    async with serving(crew.server.database.url, limits=limits, host="0.0.0.0") as server:
        held = [await asyncio.open_connection(address, server.port) for _ in range(5)]

        async def all_taken() -> bool:
            return server.http_server.connections == 5

        await until(all_taken, "all connections are there")
        reader, writer = await asyncio.open_connection(address, server.port)
        assert (await reader.readline()).startswith(b"HTTP/1.1 429 ")
        writer.close()
        assert (await crew.at(server).get("/")).text == "Healthy"  # from another address
        for _, one in held:
            one.close()

        async def served() -> bool:
            async with httpx.AsyncClient() as client:
                return (await client.get(f"http://{address}:{server.port}/health")).status_code == 200

        await until(served, "the address is served again")


def own_address() -> str:
    """Of this machine in a network; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address beside the loopback")
        address: str = probe.getsockname()[0]
        return address


@dataclass
class Nowhere:
    """A transport that leads nowhere."""

    unsent: int = 0
    closed: bool = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        raise AssertionError("nothing is to be cut off")

    def get_extra_info(self, name: str) -> object:
        raise AssertionError(f"it has no {name}")


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_a_full_server_closes_the_connection_that_was_idle_longest_for_a_new_one(crew: Crew) -> None:
    async with serving(crew.server.database.url, limits=ConnectionLimits(most=3)) as server:
        clients = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        for reader, writer in clients:
            writer.write(HEALTH)
            assert (await answer_of(reader))[0] == 200
        assert (await raw(server.port, HEALTH))[0] == 200
        assert await clients[0][0].read() == b""
        for reader, writer in clients[1:]:
            writer.write(HEALTH)
            assert (await answer_of(reader))[0] == 200
        for _, writer in clients:
            writer.close()


async def test_only_idle_connections_of_its_own_address_are_closed_for_a_client_at_the_limit_of_its_address() -> None:
    connections = Connections(ConnectionLimits(most=50, most_per_address=2), source_of)
    other, first, second = Nowhere(), Nowhere(), Nowhere(unsent=1)

    def enter(transport: Nowhere, host: str = HOST) -> Any:
        return connections.enter(transport, host)

    held = [enter(other, "192.0.2.9"), enter(first), enter(second)]
    for one in held:
        connections.idle(one)
    connections.busy(held[1])
    assert enter(Nowhere()).status == 429  # a request, unsent data, another address
    connections.idle(held[1])
    assert isinstance(enter(Nowhere()), Held)
    assert (first.closed, second.closed, other.closed) == (True, False, False)
    connections.leave(held[1])  # as its protocol does when it is closed
    assert len(connections) == 3
    assert enter(Nowhere()).status == 429


async def test_a_connection_stays_open_for_longer_than_proxies_keep_theirs(crew: Crew) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", crew.server.port)
    writer.write(HEALTH)
    assert (await answer_of(reader))[0] == 200
    timers: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    idle = [timer.when() for timer in timers if "keep_alive" in repr(timer) and not timer.cancelled()]
    assert max(idle) - asyncio.get_running_loop().time() > 600
    writer.close()


async def test_ipv6_clients_count_by_their_network_and_shared_addresses_do_not_count() -> None:
    limits = ConnectionLimits(most=50, most_per_address=2)
    connections = Connections(limits, source_of)

    def enter(host: str | None) -> Any:
        return connections.enter(Nowhere(), host)

    first = enter("2001:db8:1:2::1")
    enter("2001:db8:1:2:ffff::9")
    assert enter("2001:db8:1:2:3:4:5:6").status == 429
    assert enter("2001:db8:1:3::1").source.limited
    connections.leave(first)
    assert enter("2001:db8:1:2:3:4:5:6").source.name == "2001:db8:1:2::/64"
    for shared in ("127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", None):
        for _ in range(5):
            assert not enter(shared).source.limited
    assert source_of("::ffff:192.0.2.1") == source_of("192.0.2.1")


async def test_trusted_proxies_are_not_counted_by_their_address() -> None:
    class Trusted:
        def __contains__(self, host: object) -> bool:
            return host == "192.0.2.1"

    of_peer = sources(Trusted())
    assert not of_peer("192.0.2.1").limited
    assert of_peer("192.0.2.2").limited
