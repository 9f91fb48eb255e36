"""The proxy of a worker's runs serves each run, whatever other processes of the machine send to it."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import pytest

from patience import DEADLINE
from windlass.runner.egress import run_proxy
from windlass.runner.egress.run_proxy import HOST, MOST_UNKNOWN, RunProxy, new_token

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from windlass.runner.egress.proxy_requests import ProxyRequest


@pytest.fixture
async def proxy() -> AsyncIterator[RunProxy]:
    proxy = RunProxy()
    await proxy.start()
    yield proxy
    await proxy.stop()


async def answer(proxy: RunProxy, data: bytes) -> bytes:
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        writer.write(data)
        found = await reader.read()
        writer.close()
    return found


def connect(token: str) -> bytes:
    credentials = base64.b64encode(f"run:{token}".encode()).decode()
    return f"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic {credentials}\r\n\r\n".encode()


async def test_a_request_goes_to_the_run_of_its_token(proxy: RunProxy) -> None:
    taken: dict[str, ProxyRequest] = {}

    def take(given: socket.socket, asked: ProxyRequest) -> None:
        taken[asked.token] = asked
        given.close()

    one, other = new_token(), new_token()
    for token in (one, other):
        proxy.serve(token, take)
    assert await answer(proxy, connect(one)) == b""
    assert [*taken] == [one]
    proxy.forget(other)
    assert (await answer(proxy, connect(other))).startswith(b"HTTP/1.1 407 ")
    assert (await answer(proxy, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    assert (await answer(proxy, b"X" * 200_000)).startswith(b"HTTP/1.1 400 ")


async def test_connections_that_send_nothing_keep_no_run_from_the_proxy(proxy: RunProxy) -> None:
    idle = [await asyncio.open_connection(HOST, proxy.port) for _ in range(MOST_UNKNOWN + 50)]
    assert (await answer(proxy, connect("of nobody"))).startswith(b"HTTP/1.1 407 ")
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ConnectionResetError):
            await idle[0][0].read()
    assert not idle[-1][0].at_eof()
    for _, writer in idle:
        writer.close()


async def test_a_request_that_never_ends_is_given_up(proxy: RunProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_proxy, "HEAD_SECONDS", 0.05)
    with pytest.raises(ConnectionResetError):
        await answer(proxy, b"CONNECT a.test:443 HTTP/1.1\r\n")
