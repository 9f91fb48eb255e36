"""A server that gives a byte of its answer's body now and then, and never comes to its end."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BETWEEN_BYTES = 0.02
BEFORE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
"""What comes at once."""


@contextmanager
def dripping() -> Iterator[str]:
    """Its address."""
    closing = threading.Event()

    def serve() -> None:
        while not closing.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                drip(connection)

    def drip(connection: socket.socket) -> None:
        try:
            connection.sendall(BEFORE)
            while not closing.wait(BETWEEN_BYTES):
                connection.sendall(b"H")
        except OSError:
            return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(BETWEEN_BYTES)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            closing.set()
            thread.join()
