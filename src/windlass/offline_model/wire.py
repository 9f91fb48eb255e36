"""Answers of the offline model as messages of OpenAI's protocol."""

import base64
import json
import re
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from starlette.responses import JSONResponse

from windlass.offline_model.answers import Answer, ToolCall
from windlass_child.protocol.offline_model import NAME

_RETRY_AFTER: Final = "1"
_TRY_LATER: Final = (429, 503)
_PIECE: Final = 16
_ERROR_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ERROR_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def completion(given: Answer, digest: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if given.calls else given.text, "refusal": None}
    if given.calls:
        message["tool_calls"] = [_tool_call(call, _call_id(digest, place)) for place, call in enumerate(given.calls)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(given)}
    return {**_head("chat.completion", digest), "choices": [choice], "usage": _usage(given)}


def events(given: Answer, digest: str, *, with_usage: bool) -> list[str]:
    """Returns the server-sent events of a streamed answer. Each has one word, or a piece of a tool call's arguments."""
    head = _head("chat.completion.chunk", digest)
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in _deltas(given, digest)
    ]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish_reason(given)}]})
    if with_usage:
        chunks.append({**head, "choices": [], "usage": _usage(given)})
    return [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]


def embeddings(vectors: Sequence[list[float]], encoding: str, tokens: int) -> dict[str, Any]:
    return {
        "object": "list",
        "model": NAME,
        "data": [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, encoding)}
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def models() -> dict[str, Any]:
    model = {"id": NAME, "object": "model", "created": 0, "owned_by": "windlass"}
    return {"object": "list", "data": [model]}


def refused(status: int, message: str, *, param: str | None = None, code: str | None = None) -> JSONResponse:
    kind = "server_error" if status >= 500 else _ERROR_TYPES.get(status, "invalid_request_error")  # noqa: PLR2004 - a status of HTTP
    error = {"message": message, "type": kind, "param": param, "code": code or _ERROR_CODES.get(status)}
    headers = {"Retry-After": _RETRY_AFTER} if status in _TRY_LATER else None
    return JSONResponse({"error": error}, status_code=status, headers=headers)


def _deltas(given: Answer, digest: str) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if given.calls else ""}
    for place, call in enumerate(given.calls):
        opened = _tool_call(ToolCall(call.name, ""), _call_id(digest, place))
        yield {"tool_calls": [{"index": place, **opened}]}
        for start in range(0, len(call.arguments), _PIECE):
            piece = call.arguments[start : start + _PIECE]
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}
    for word in re.findall(r"\s*\S+|\s+", given.text):
        yield {"content": word}


def _head(kind: str, digest: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-offline-{digest[:24]}", "object": kind, "created": int(time.time()), "model": NAME}


def _tool_call(call: ToolCall, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _call_id(digest: str, place: int) -> str:
    return f"call_{digest[:22]}{place:02}"


def _finish_reason(given: Answer) -> str:
    return "tool_calls" if given.calls else "stop"


def _usage(given: Answer) -> dict[str, Any]:
    details = {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }
    return {
        "prompt_tokens": given.prompt_tokens,
        "completion_tokens": given.completion_tokens,
        "total_tokens": given.prompt_tokens + given.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": details,
    }


def _encoded(vector: list[float], encoding: str) -> list[float] | str:
    if encoding != "base64":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
