"""A tiny server that answers in the wire protocol of each vendor of models."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

TEXT = "Tides follow the moon."
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
OPENAI = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "scripted",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": TEXT}}],
    "usage": USAGE,
}
ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "scripted",
    "content": [{"type": "text", "text": TEXT}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 5},
}
BEDROCK = {
    "output": {"message": {"role": "assistant", "content": [{"text": TEXT}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 7, "outputTokens": 5, "totalTokens": 12},
    "metrics": {"latencyMs": 1},
}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 5, "totalTokenCount": 12},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "/chat/completions": OPENAI,
    "/messages": ANTHROPIC,
    "/converse": BEDROCK,
    ":generateContent": GEMINI,
}


class VendorServer:
    """Answers each request by the end of its path. `seen` has the paths and the headers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                path = self.path.partition("?")[0]
                found = next((one for end, one in ANSWERS.items() if path.endswith(end)), None)
                body = json.dumps(found or {"error": {"message": "There is no such path."}}).encode()
                self.send_response(200 if found else 404)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
