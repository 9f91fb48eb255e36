"""A Vault with four answers, for tests that need one that is slow or gone. Other tests use a real OpenBao."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from patience import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "never-shown-token-1234"


class FakeVault(ThreadingHTTPServer):
    """Accepts the token SECRET. `gate` holds the answers back while it is not set; `waiting` counts the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)
        self.tokens: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: FakeVault

    def answer(self) -> None:
        self.server.tokens.append(self.headers["X-Vault-Token"])
        self.server.waiting.release()
        self.server.gate.wait(DEADLINE)
        valid = self.headers["X-Vault-Token"] == SECRET
        body = json.dumps({"data": self.data()} if valid else {"errors": ["permission denied"]}).encode()
        self.send_response(200 if valid else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def data(self) -> dict[str, Any]:
        if "/metadata/" in self.path:
            return {"keys": ["db", "draft", "mail"]}
        return {"data": {"how": "secretly hot"}} if "/data/" in self.path else {"display_name": "tester"}

    do_GET = do_LIST = answer  # noqa: N815 - the names of the methods of HTTP

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running(server: FakeVault) -> Iterator[FakeVault]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
