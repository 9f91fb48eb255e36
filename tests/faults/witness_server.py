"""A model server that writes down who asked it, in a process of its own, which no fault touches.

It speaks as much of OpenAI's protocol as crews need. A prompt tells it of itself:
`[[run=<name> step=<number> seconds=<how long the answer takes> hold=<step whose first call is held until released>]]`,
and the `seed` of the request is the process that asks.

Argument: none. Its port is the first line that it prints.
"""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MARK = re.compile(r"\[\[run=(\S+) step=(\d+) seconds=(\S+) hold=(\d+)\]\]")
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
LOOK = 0.02


class Calls:
    """`ended` is None of a call that is not answered; it is so for ever when its caller has gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[tuple[str, int]] = set()
        self.all: list[dict[str, Any]] = []
        self.let_go: set[str] = set()

    def begin(self, run: str, step: int, pid: int | None) -> tuple[dict[str, Any], bool]:
        """The call, and whether it is the first of its step."""
        call = {"run": run, "step": step, "pid": pid, "began": time.time(), "ended": None, "gone": False}
        with self._lock:
            first = (run, step) not in self._seen
            self._seen.add((run, step))
            self.all.append(call)
        return call, first


class Witness(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls = Calls()

    def handle_error(self, *_: object) -> None:
        """That callers are killed is what it is for."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Witness

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        """`/calls?after=<number>`: all calls from that one on."""
        after = int(parse_qs(urlsplit(self.path).query).get("after", ["0"])[0])
        self._answer(self.server.calls.all[after:])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        if self.path.startswith("/release"):
            self.server.calls.let_go.add(body["run"])
            self._answer({})
        else:
            self._complete(body)

    def _complete(self, body: dict[str, Any]) -> None:
        found = MARK.findall(json.dumps(body["messages"]))
        run, step, seconds, held = found[-1]
        call, first = self.server.calls.begin(run, int(step), body.get("seed"))
        if first and step == held:
            waited = self._wait(lambda: run in self.server.calls.let_go, 600)
        else:
            waited = self._wait(lambda: False, float(seconds))
        try:
            call["gone"] = not waited
            if waited:
                self._answer(completion(body, f"step {step} is told"))
                call["ended"] = time.time()
        except ConnectionError:
            call["gone"] = True
        self.close_connection = call["gone"]

    def _wait(self, over: Any, seconds: float) -> bool:
        """False when the caller has gone meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not over():
            readable, _, _ = select.select([self.connection], [], [], min(LOOK, left))
            if readable and not self._peeked():
                return False
        return True

    def _peeked(self) -> bytes:
        try:
            return bytes(self.connection.recv(1, socket.MSG_PEEK))
        except ConnectionError:
            return b""

    def _answer(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def completion(request: dict[str, Any], text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": f"Thought: I know\nFinal Answer: {text}"}
    return {
        "id": "witnessed",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": USAGE,
    }


if __name__ == "__main__":
    with Witness() as witness:
        print(witness.server_port, flush=True)
        witness.serve_forever()
