"""Clients that harm a server on purpose, and what it costs the server."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import uvloop

from bench.figures import Figure
from bench.machine import MB
from bench.served import wait_until
from bench.stage import ROOT
from windlass.secrets.secret import TokenKind, new_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.served import Served

CLIENTS = 100
WRONG_PER_SECOND = 1000
GUESSERS = 20
PAGE = 4096
MOST_MEMORY = "under 500"


class Memory:
    """The most that the server's process has resident inside of the `with` block; looked at 20 times a second."""

    def __init__(self, server: Served) -> None:
        self._file = Path(f"/proc/{server.pid}/statm")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._most = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def figure(self) -> Figure:
        return Figure("  memory of the server, most, MB", f"{self._most / MB:,.0f}", MOST_MEMORY)

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            self._most = max(self._most, int(self._file.read_text().split()[1]) * PAGE)


@contextmanager
def silent_clients(server: Served, kickoff_id: str) -> Iterator[None]:
    """100 that ask for this status and read nothing of it. They have all been answered when the block begins."""
    ask = request(server, f"GET /status/{kickoff_id}", server.token)
    with ExitStack() as stack:
        clients = [stack.enter_context(silent(server, ask)) for _ in range(CLIENTS)]
        wait_until(lambda: all(map(has_an_answer, clients)), within=120, what="answers to the clients")
        yield


def silent(server: Served, ask: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PAGE)
    client.connect(("127.0.0.1", server.port))
    client.sendall(ask)
    return client


def has_an_answer(client: socket.socket) -> bool:
    try:
        begin = client.recv(12, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    if begin != b"HTTP/1.1 200":
        raise RuntimeError(f"a client that reads nothing was answered with {begin!r}")
    return True


@contextmanager
def wrong_tokens(server: Served, seconds: float) -> Iterator[list[Figure]]:
    """1,000 requests a second with well-formed tokens that are none, from a process of their own. The figure of how
    many were answered is there when the block has ended: a slow machine sends fewer.
    """
    figures: list[Figure] = []
    command = [sys.executable, "-m", "bench.hostile", str(server.port), str(seconds)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield figures
            told, _ = process.communicate(timeout=seconds + 60)
        finally:
            process.kill()
    name = "  failed authentications a second, and other answers"
    figures.append(Figure(name, " / ".join(f"{number:,.0f}" for number in json.loads(told)), "1,000 / 0"))


def request(server: Served, line: str, token: str) -> bytes:
    return request_to(server.port, line, token)


def request_to(port: int, line: str, token: str) -> bytes:
    host = f"127.0.0.1:{port}"
    return f"{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n".encode()


class Guesser(asyncio.Protocol):
    """Sends a wrong token as soon as the one before is answered, and not before its turn has come."""

    def __init__(self, guesses: Guesses) -> None:
        self._guesses = guesses
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._guesses.next(self._transport.write)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if found and len(rest) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            self._received = b""
            self._guesses.count(head)
            self._guesses.next(self._transport.write)


class Guesses:
    def __init__(self, port: int) -> None:
        self._port = port
        self._begun = time.monotonic()
        self._sent = 0
        self.wrong = self.others = 0

    def next(self, write: Callable[[bytes], None]) -> None:
        due = self._begun + self._sent / WRONG_PER_SECOND
        self._sent += 1
        ask = request_to(self._port, "GET /inputs", new_token(TokenKind.ORGANIZATION).reveal())
        asyncio.get_running_loop().call_later(max(0, due - time.monotonic()), write, ask)

    def count(self, head: bytes) -> None:
        if head.startswith(b"HTTP/1.1 401"):
            self.wrong += 1
        else:
            self.others += 1


async def guess(port: int, seconds: float) -> None:
    guesses = Guesses(port)
    for _ in range(GUESSERS):
        await asyncio.get_running_loop().create_connection(lambda: Guesser(guesses), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    print(json.dumps([guesses.wrong / seconds, guesses.others / seconds]))


if __name__ == "__main__":
    uvloop.run(guess(int(sys.argv[1]), float(sys.argv[2])))
