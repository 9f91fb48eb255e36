"""An OpenAI-compatible server whose answers need no model, no key and no network.

It answers in the same way each time and says in each answer where it comes from. Crews talk to it through the real
OpenAI client; `model_environment` tells when and how.
"""

import base64
import json
import re
import struct
import time
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from typing import Any, Final

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from windlass.embedded.offline_answers import (
    Answer,
    ChatRequest,
    EmbeddingRequest,
    ToolCall,
    answer,
    embedding,
    embedding_tokens,
)

MODEL: Final = "offline-model"
_SERVED: Final = "POST /v1/chat/completions, POST /v1/embeddings and GET /v1/models"

# The client refuses an empty key. Long enough that masking it as a secret never masks words of an answer.
_PLACEHOLDER_KEY: Final = "no-key-needed-by-the-offline-model"

_PROVIDER_KEYS: Final = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "AZURE_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "AZURE_AI_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_BEARER_TOKEN_BEDROCK",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENROUTER_API_KEY",
    "DEEPSEEK_API_KEY",
    "CEREBRAS_API_KEY",
    "DASHSCOPE_API_KEY",
    "DEEPINFRA_API_KEY",
    "SNOWFLAKE_PAT",
    "SNOWFLAKE_TOKEN",
    "OLLAMA_API_KEY",
    "VLLM_API_KEY",
    "HOSTED_VLLM_API_KEY",
    "NVIDIA_NIM_API_KEY",
    "NVIDIA_API_KEY",
    "WATSONX_APIKEY",
    "WATSONX_API_KEY",
    "SAMBANOVA_API_KEY",
    "HF_TOKEN",
    "HUGGINGFACE_API_KEY",
    "COHERE_API_KEY",
    "CO_API_KEY",
    "TOGETHERAI_API_KEY",
    "TOGETHER_API_KEY",
    "FIREWORKS_AI_API_KEY",
    "FIREWORKS_API_KEY",
    "PERPLEXITYAI_API_KEY",
    "PERPLEXITY_API_KEY",
    "XAI_API_KEY",
    "REPLICATE_API_KEY",
    "DATABRICKS_API_KEY",
    "MOONSHOT_API_KEY",
    "ZAI_API_KEY",
    "LITELLM_PROXY_API_KEY",
)
# crewai takes the first of each that is set.
_MODEL_NAMES: Final = ("MODEL", "MODEL_NAME", "OPENAI_MODEL_NAME")
_ADDRESSES: Final = ("BASE_URL", "OPENAI_API_BASE", "OPENAI_BASE_URL", "API_BASE", "AZURE_API_BASE")
_OPENAI_MODEL: Final = re.compile(r"(openai/)?(gpt-|chatgpt-|o[134]|ft:)", re.IGNORECASE)


def model_environment(environ: Mapping[str, str], base_url: str) -> dict[str, str]:
    """The variables that make a crew with default model settings talk to the offline model at `base_url`.

    `environ` is all that the crew will see, its project's `.env` included. Empty when that names a provider's key, a
    model of another provider or another address: then the user's settings stand. `base_url` is given with or without
    its `/v1`.
    """
    if has_provider_key(environ) or names_another_model(environ):
        return {}
    address = base_url.rstrip("/").removesuffix("/v1") + "/v1"
    return {"OPENAI_API_KEY": _PLACEHOLDER_KEY, "OPENAI_BASE_URL": address, "OPENAI_API_BASE": address}


def provider_key_names() -> tuple[str, ...]:
    """The variables in which crewai, its providers and litellm look for a key."""
    return _PROVIDER_KEYS


def has_provider_key(environ: Mapping[str, str]) -> str | None:
    """The first variable that holds a provider's key; an empty one holds none."""
    return _first_set(environ, _PROVIDER_KEYS)


def names_another_model(environ: Mapping[str, str]) -> str | None:
    """The variable that sends crewai's default model to another address, or to another provider than OpenAI."""
    if address := _first_set(environ, _ADDRESSES):
        return address
    chosen = _first_set(environ, _MODEL_NAMES)
    return chosen if chosen and not _OPENAI_MODEL.match(environ[chosen]) else None


def offline_model_app() -> Starlette:
    """The ASGI application; it asks for no key, so serve it on loopback only."""
    return Starlette(
        routes=[
            Route("/v1/chat/completions", _chat, methods=["POST"]),
            Route("/v1/embeddings", _embeddings, methods=["POST"]),
            Route("/v1/models", _models, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _not_served, ValidationError: _bad_request},
    )


async def _chat(request: Request) -> Response:
    body = await request.body()
    asked = ChatRequest.model_validate_json(body)
    given, digest = answer(asked), sha256(body).hexdigest()
    if not asked.stream:
        return JSONResponse(_completion(given, digest))
    with_usage = asked.stream_options is not None and asked.stream_options.include_usage
    return StreamingResponse(_stream(given, digest, with_usage=with_usage), media_type="text/event-stream")


async def _embeddings(request: Request) -> Response:
    asked = EmbeddingRequest.model_validate_json(await request.body())
    vectors = [embedding(text, asked.dimensions) for text in asked.texts]
    tokens = embedding_tokens(asked.texts)
    return JSONResponse(
        {
            "object": "list",
            "model": MODEL,
            "data": [
                {"object": "embedding", "index": index, "embedding": _encoded(vector, asked.encoding_format)}
                for index, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


async def _models(_: Request) -> Response:
    model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "windlass"}
    return JSONResponse({"object": "list", "data": [model]})


async def _not_served(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    message = f"The offline model doesn't serve {request.method} {request.url.path}; it serves {_SERVED}."
    return _error(status, message, code="unknown_url")


async def _bad_request(_: Request, error: Exception) -> Response:
    first = error.errors(include_url=False, include_input=False)[0] if isinstance(error, ValidationError) else None
    place = ".".join(str(step) for step in first["loc"]) if first else ""
    why = first["msg"] if first else str(error)
    where = f"The member {place}" if place else "The body"
    return _error(400, f"{where} of the request can't be used: {why}.", param=place or None)


def _error(status: int, message: str, *, param: str | None = None, code: str | None = None) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return JSONResponse({"error": error}, status_code=status)


def _completion(given: Answer, digest: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": given.text or None, "refusal": None}
    if given.call:
        message["tool_calls"] = [_tool_call(given.call, digest)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(given)}
    return {**_head("chat.completion", digest), "choices": [choice], "usage": _usage(given)}


async def _stream(given: Answer, digest: str, *, with_usage: bool) -> AsyncIterator[str]:
    head = _head("chat.completion.chunk", digest)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if given.call else ""}]
    deltas += [{"content": word} for word in re.findall(r"\s*\S+", given.text)]
    if given.call:
        deltas.append({"tool_calls": [{"index": 0, **_tool_call(given.call, digest)}]})
    for delta in deltas:
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish_reason(given)}]})
    if with_usage:
        yield _event({**head, "choices": [], "usage": _usage(given)})
    yield "data: [DONE]\n\n"


def _head(kind: str, digest: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-offline-{digest[:24]}", "object": kind, "created": int(time.time()), "model": MODEL}


def _tool_call(call: ToolCall, digest: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{digest[:24]}", "type": "function", "function": function}


def _finish_reason(given: Answer) -> str:
    return "tool_calls" if given.call else "stop"


def _usage(given: Answer) -> dict[str, Any]:
    spoken = {
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
        "completion_tokens_details": spoken,
    }


def _encoded(vector: list[float], encoding: str) -> list[float] | str:
    if encoding != "base64":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _event(payload: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(payload)}\n\n"


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if environ.get(name)), None)
