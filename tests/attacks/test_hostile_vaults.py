"""A credential of Vault has an address that a person typed. It may lead anywhere, and anything may answer there."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from windlass.secrets.provider import BadCredential, ProviderUnavailable, SecretError
from windlass.secrets.providers import network, provider
from windlass.secrets.providers.vault.direct import is_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.secrets.provider import Manager

LINK_LOCAL = "169.254.169.254"


def vault(address: str) -> Manager:
    model = provider("vault").methods["token"]
    return provider("vault").connect(model.model_validate({"address": address, "token": "token"}), str)


def no_connection(*_: Any) -> None:
    raise AssertionError("the server has connected")


@pytest.mark.parametrize(
    "host",
    [
        LINK_LOCAL,
        "2852039166",
        "0xa9fea9fe",
        "169.254.1",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
        "168.63.129.16",
        "100.100.100.200",
        "0.0.0.0",
        "224.0.0.1",
    ],
)
def test_services_for_the_machines_of_clouds_are_not_contacted(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", no_connection)
    with pytest.raises(BadCredential, match="does not connect to") as error:
        vault(f"http://{host}:80").read("app/db")
    assert LINK_LOCAL not in str(error.value)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "fd12::1", "8.8.8.8", "2606:4700::1"]
)
def test_private_networks_are_contacted(address: str) -> None:
    assert not is_refused(address)


def test_one_refused_address_of_a_name_refuses_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [entry(LINK_LOCAL), entry("127.0.0.1")])
    monkeypatch.setattr(socket.socket, "connect", no_connection)
    with pytest.raises(BadCredential):
        vault("http://vault.example.com").read("app/db")


def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look-up could lead to another address than the one that was checked."""
    with answering(lambda connection: connection.close()) as port:
        answers = [[entry("127.0.0.1", port)], [entry(LINK_LOCAL)]]
        asked: list[str] = []

        def resolve(host: str | bytes, *_: object, **__: object) -> list[Any]:
            name = host.decode() if isinstance(host, bytes) else host  # as the client of HTTP asks
            asked.append(name)
            return answers.pop(0) if name == "vault.example.com" else [entry(name, port)]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        with pytest.raises(ProviderUnavailable):
            vault(f"http://vault.example.com:{port}").read("app/db")
    assert asked.count("vault.example.com") == 1


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Header: "]
)
def test_an_answer_byte_by_byte_ends_in_time(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "TOTAL_TIMEOUT", 0.5)
    ended = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head)
        while not ended.wait(0.01):
            connection.sendall(b"x")

    with answering(drip) as port:
        begin = time.monotonic()
        with pytest.raises(ProviderUnavailable, match="does not answer within"):
            vault(f"http://127.0.0.1:{port}").read("app/db")
        ended.set()
    assert time.monotonic() - begin < 60, "not the seconds that each byte may take"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n" + b'{"data": [1]}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + b'{"data": {"data":1}}',
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n" + b"[" * 2_000_000,
        b"HTTP/1.1 999 Whatever\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00" * 1000,
        b"",
    ],
    ids=range(12),
)
def test_any_answer_is_an_error_in_words(answer: bytes) -> None:
    def send(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with answering(send) as port:
        manager = vault(f"http://127.0.0.1:{port}")
        for call in (lambda: manager.read("app/db"), lambda: manager.names("app/", 5)):
            try:
                assert call() == []
            except SecretError as error:
                assert error.hint  # noqa: PT017 - both ends are good


def test_no_redirection_is_followed() -> None:
    asked: list[bytes] = []

    def redirect(connection: socket.socket) -> None:
        asked.append(connection.recv(65536).partition(b"\r\n")[0])
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    with answering(redirect) as port, pytest.raises(SecretError):
        vault(f"http://127.0.0.1:{port}").read("app/db")
    assert not [one for one in asked if b"elsewhere" in one]


def test_an_answer_of_more_than_a_megabyte_is_not_read_to_its_end() -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {2 * network.LARGEST_ANSWER}\r\n\r\n".encode()

    def send(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head + b"[" * (2 * network.LARGEST_ANSWER))

    with answering(send) as port, pytest.raises(ProviderUnavailable, match="sends an answer that is too long"):
        vault(f"http://127.0.0.1:{port}").read("app/db")


def test_the_proxy_of_the_server_gets_no_request_to_a_vault(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    with answering(lambda connection: asked.append(connection.recv(65536))) as proxy:
        for name in ("HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        with answering(lambda connection: connection.close()) as port, pytest.raises(ProviderUnavailable):
            vault(f"http://127.0.0.1:{port}").read("app/db")
    assert asked == []


def entry(address: str, port: int = 80) -> tuple[Any, ...]:
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Runs `answer` with each connection to a port, which it returns."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
