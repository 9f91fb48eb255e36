"""Models for crews that are measured: one that notes when it was asked, and one that never answers."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import httpx

from windlass.offline_model.app import offline_model_app

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def model() -> Iterator[tuple[str, list[float]]]:
    """The offline model behind a server that notes when each request came."""
    requests: list[float] = []
    app = offline_model_app()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            requests.append(time.time())
            body = self.rfile.read(int(self.headers["content-length"]))
            status, content = asyncio.run(answered(app, self.path, body))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
        server.shutdown()


async def answered(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://model") as client:
        answer = await client.post(path, content=body, headers={"content-type": "application/json"})
        return answer.status_code, answer.content


class SilentModel:
    """Reads every request and answers none. `asked` counts them."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def environment(self) -> dict[str, str]:
        """Of a crew that is to ask it."""
        port = self._server.sockets[0].getsockname()[1]
        return {"OPENAI_API_KEY": "bench", "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._hold, "127.0.0.1", 0, backlog=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            while await reader.read(65536):
                pass
        writer.close()
