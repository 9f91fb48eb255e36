"""The server is killed when it has committed what was asked, and nobody has heard of it: clients send it again."""

from __future__ import annotations

import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self

import httpx
import psycopg
import pytest

from faults.dev_server import DevServer, until
from patience import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "order-7"
INPUTS = {"seconds": 0, "word": "tea"}


class Swallower:
    """Passes requests on to the server at `url`, and no answer back. A connection is one request."""

    def __init__(self, url: httpx.URL) -> None:
        self._there = (url.host, url.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self.answers: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE)
        self._listening.close()
        self.hang_up()

    def hang_up(self) -> None:
        """On all clients, who are still waiting."""
        while self._connections:
            self._connections.pop().close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # it is over
                return
            self._connections.append(client)
            self.answers.append(self._answer_to(client))

    def _answer_to(self, client: socket.socket) -> bytes:
        client.settimeout(DEADLINE)
        with closing(socket.create_connection(self._there, DEADLINE)) as server:
            request = b""
            while not is_whole(request):
                request += (more := client.recv(65536))
                assert more, "the client was to send a whole request"
            server.sendall(request)
            return server.recv(65536)


def is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end) and len(body) >= (int(lengths[0]) if lengths else 0)


@pytest.fixture
def server(idle_server: DevServer) -> DevServer:
    idle_server.forked = True
    idle_server.start()
    return idle_server


def kickoff(server: DevServer, base_url: str, *, header: str | None = None, **members: Any) -> httpx.Response:
    headers = {"Authorization": server.client.headers["Authorization"], "Connection": "close"}
    keyed = {**headers, "Idempotency-Key": header} if header else headers
    body = {"inputs": INPUTS, **members}
    return httpx.post(f"{base_url}/kickoff", json=body, headers=keyed, trust_env=False, timeout=DEADLINE)


def stop(server: DevServer, base_url: str, kickoff_id: str) -> httpx.Response:
    headers = {"Authorization": server.client.headers["Authorization"], "Connection": "close"}
    return httpx.post(f"{base_url}/stop/{kickoff_id}", headers=headers, trust_env=False, timeout=DEADLINE)


def crash_before_the_answer(server: DevServer, *requests: Callable[[str], httpx.Response]) -> None:
    """Sends them, kills the server once it has answered all, and starts it again. The answers reach no client."""
    with ThreadPoolExecutor() as clients, Swallower(server.client.base_url) as between:
        sent = [clients.submit(request, between.url) for request in requests]
        until(lambda: len(between.answers) == len(requests), "the server has answered", lambda: server.log)
        server.end(signal.SIGKILL)
        assert [answer[:12] for answer in between.answers] == [b"HTTP/1.1 200"] * len(requests)
        between.hang_up()
        for answer in sent:
            with pytest.raises(httpx.TransportError):
                answer.result(DEADLINE)
    until(lambda: not server.processes(), "nothing of the killed server lives on")
    server.start()


def kickoffs_of(server: DevServer) -> list[str]:
    """Ids of all that are in the database, in the order of acceptance."""
    with psycopg.connect(server.command("admin", "db", "--url").stdout.strip()) as connection:
        return [str(id_) for (id_,) in connection.execute("SELECT id FROM kickoffs ORDER BY id").fetchall()]


def test_a_kickoff_that_is_sent_again_with_its_key_is_the_one_that_was_committed(server: DevServer) -> None:
    crash_before_the_answer(
        server,
        lambda url: kickoff(server, url, header=KEY),
        lambda url: kickoff(server, url, idempotencyKey="order-8"),
        lambda url: kickoff(server, url),
    )
    committed = kickoffs_of(server)
    assert len(committed) == 3
    here = str(server.client.base_url).rstrip("/")
    again = [kickoff(server, here, header=key).json()["kickoff_id"] for key in (KEY, "order-8")]
    assert len(set(again)) == 2
    assert kickoff(server, here, idempotencyKey=KEY).json()["kickoff_id"] == again[0]
    assert kickoffs_of(server) == committed
    assert set(again) < set(committed)
    # Without a key nobody can know that it is the same: docs/reference/api.md says so.
    assert kickoff(server, here).json()["kickoff_id"] not in committed
    assert [server.ended(one)["state"] for one in kickoffs_of(server)] == ["SUCCESS"] * 4


def test_a_stop_that_is_sent_again_finds_it_done(server: DevServer) -> None:
    running = server.kickoff(600)
    until(lambda: server.status(running)["state"] == "STARTED", "it runs")
    crash_before_the_answer(server, lambda url: stop(server, url, running))
    status = server.ended(running)
    assert (status["reason"], status["attempt"]) == ("cancelled", 1)
    again = stop(server, str(server.client.base_url).rstrip("/"), running)
    assert (again.status_code, again.json()["message"]) == (200, "It had ended before: nothing is left to stop.")
    assert server.status(running) == status
    assert kickoffs_of(server) == [running]
