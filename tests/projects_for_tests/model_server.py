"""A model on loopback that speaks OpenAI's protocol, for the real client: one answer, one usage, always."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 1},
}


class ModelServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: str = "Thought: I know\nFinal Answer: the model's answer", status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.status = status
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": "sk-for-tests-0123456789", "OPENAI_BASE_URL": self.url}

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(request)
        answer = json.dumps(self.refusal() if self.server.status != 200 else self.completion(request)).encode()
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def refusal(self) -> dict[str, Any]:
        return {"error": {"message": "Incorrect API key provided", "type": "invalid_request_error", "code": None}}

    def completion(self, request: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.server.answer}
        return {
            "id": "answer-1",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": USAGE,
        }
