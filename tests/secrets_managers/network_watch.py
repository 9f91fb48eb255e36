"""Watches which hosts this process connects to. Only loopback addresses are reached."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windlass.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


@contextmanager
def other_hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Collects the names and addresses of other machines that are looked up or connected to, and refuses them."""
    found: set[str] = set()
    resolve, connect = socket.getaddrinfo, socket.socket.connect

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is not None and not is_loopback(name):
            found.add(name)
            raise socket.gaierror(socket.EAI_NONAME, "refused by the test")
        return resolve(host, *args, **options)

    def connected(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and not is_loopback(str(address[0])):
            found.add(str(address[0]))
            raise ConnectionRefusedError("refused by the test")
        connect(self, address)

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", getaddrinfo)
        patched.setattr(socket.socket, "connect", connected)
        yield found
