"""The proxy of a worker's runs, where the machine permits no namespaces. They can connect to nothing else.

Each run has a token of its own, by which the proxy knows its egress. The variables HTTP_PROXY, HTTPS_PROXY and
ALL_PROXY of the run have the token.
"""

# See docs/decisions/security.md#without-namespaces-a-run-reaches-a-proxy-alone

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from typing import TYPE_CHECKING

from windlass.aio import cancelled
from windlass.runner.egress.forwarding import reset
from windlass.runner.egress.proxy import OF_DIRECT_HOSTS, OF_PROXIES
from windlass.runner.egress.proxy_requests import USER, BadRequest, RequestReader, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.runner.egress.proxy_requests import ProxyRequest

    TakeRequest = Callable[[socket.socket, ProxyRequest], None]

HOST = "127.0.0.1"
BACKLOG = 256
MOST_UNKNOWN = 200
"""Connections whose request is not read yet. A further one ends the oldest of them."""
HEAD_SECONDS = 10.0
CHUNK = 32 * 1024
ANSWER_SECONDS = 5.0
"""The time in which the other side may take an answer."""
MOST_IGNORED = 1 << 20
"""Bytes that are read and not used, so that the other side reads the answer before the connection is reset."""


class RunProxy:
    """Reads requests of all runs, and passes each one to its run."""

    def __init__(self) -> None:
        self._runs: dict[str, TakeRequest] = {}
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._unknown: dict[asyncio.Task[None], None] = {}
        self.port = 0

    async def start(self) -> None:
        self._listener = socket.create_server((HOST, 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept(self._listener))

    async def stop(self) -> None:
        await cancelled(*filter(None, [self._accepting]), *self._unknown)
        if self._listener is not None:
            self._listener.close()
        self._listener = self._accepting = None

    def variables(self, token: str) -> dict[str, str]:
        """Returns the variables with which clients use the proxy with this token, for all hosts."""
        url = f"http://{USER}:{token}@{HOST}:{self.port}"
        given = {**dict.fromkeys(OF_PROXIES, url), OF_DIRECT_HOSTS: ""}
        return {one: value for name, value in given.items() for one in (name, name.upper())}

    def serve(self, token: str, take: TakeRequest) -> None:
        """Passes the requests with this token to `take`, until `forget`."""
        self._runs[token] = take

    def forget(self, token: str) -> None:
        self._runs.pop(token, None)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                given, _ = await loop.sock_accept(listener)
            except OSError:  # the other side has given up, or this process has too many open files
                await asyncio.sleep(0.05)
                continue
            if len(self._unknown) >= MOST_UNKNOWN:
                oldest = next(iter(self._unknown))
                del self._unknown[oldest]
                oldest.cancel()
            task = asyncio.create_task(self._read(given))
            self._unknown[task] = None
            task.add_done_callback(lambda done: self._unknown.pop(done, None))
            await asyncio.sleep(0)  # more connections may wait: let the tasks run

    async def _read(self, given: socket.socket) -> None:
        """Reads the request, and passes the connection on to its run."""
        is_taken = False
        try:
            given.setblocking(False)
            async with asyncio.timeout(HEAD_SECONDS):
                asked = await read_request(given)
            take = self._runs.get(asked.token)
            if take is None:
                await refuse(given, 407, "The proxy of Windlass needs the token of a run that is going on")
            else:
                is_taken = True
                take(given, asked)
        except BadRequest as bad:
            await refuse(given, 400, str(bad))
        except (OSError, TimeoutError):
            pass
        finally:
            if not is_taken:
                reset(given)


def new_token() -> str:
    return secrets.token_hex(24)


async def read_request(given: socket.socket) -> ProxyRequest:
    """Raises BadRequest and OSError."""
    reader, loop = RequestReader(), asyncio.get_running_loop()
    while True:
        asked = reader.feed(await loop.sock_recv(given, CHUNK))
        if asked is not None:
            return asked


async def refuse(given: socket.socket, code: int, words: str) -> None:
    """Answers with the status and the words, and waits until the other side has them."""
    loop, ignored = asyncio.get_running_loop(), 0
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            await loop.sock_sendall(given, refusal(code, words))
            given.shutdown(socket.SHUT_WR)
            while ignored < MOST_IGNORED and (data := await loop.sock_recv(given, CHUNK)):
                ignored += len(data)
