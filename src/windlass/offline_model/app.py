"""An OpenAI-compatible server whose answers need no model, no key and no network.

It gives the same answer to the same request, and names the offline model in each answer.
A script can set other answers.
Crews use it through the real OpenAI client. `model_environment` returns the variables for that.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Final

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from windlass.offline_model.answers import (
    Answer,
    ChatRequest,
    EmbeddingRequest,
    answer,
    embedding,
    embedding_tokens,
)
from windlass.offline_model.faults import Faults, Lots
from windlass.offline_model.script import Reply, Script, UnansweredError
from windlass.offline_model.wire import completion, embeddings, events, models, refused
from windlass_child.protocol.offline_model import KEY

_SERVED: Final = "POST /v1/chat/completions, POST /v1/embeddings and GET /v1/models"

PROVIDER_KEYS: Final = (
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
# crewai uses the first variable of each list that is set.
_MODEL_NAMES: Final = ("MODEL", "MODEL_NAME", "OPENAI_MODEL_NAME")
_ADDRESSES: Final = ("BASE_URL", "OPENAI_API_BASE", "OPENAI_BASE_URL", "API_BASE", "AZURE_API_BASE")
_PLACEHOLDER: Final = re.compile(r"your[\W_].*|<.*>|(sk-)?(\.{3,}|x{3,})|change[\W_]?me", re.IGNORECASE)
_OPENAI_MODEL: Final = re.compile(r"(openai/)?(gpt-|chatgpt-|o[134]|ft:)", re.IGNORECASE)

NOBODY_LISTENS: Final = "http://127.0.0.1:9"
"""The address of the offline model while a project is only loaded. No server listens there."""

Pause = Callable[[float], Awaitable[None]]
FAULTLESS: Final = Faults()


def model_environment(environ: Mapping[str, str], base_url: str) -> dict[str, str]:
    """Returns the variables that make a crew with default model settings use the offline model at `base_url`.

    `environ` is the whole environment of the crew, with its project's `.env`. If it names a provider's key, a model of
    another provider or another address, the user's settings apply and the result is empty. `base_url` may end in `/v1`.
    """
    if has_provider_key(environ) or names_another_model(environ):
        return {}
    address = base_url.rstrip("/").removesuffix("/v1") + "/v1"
    return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": address, "OPENAI_API_BASE": address}


def has_provider_key(environ: Mapping[str, str]) -> str | None:
    """Returns the first variable that holds a provider's key.

    An empty value is no key. A placeholder of a template is no key either: `crewai create` writes
    OPENAI_API_KEY=YOUR_API_KEY.
    """
    return _first_set({name: key for name, key in environ.items() if not _PLACEHOLDER.fullmatch(key)}, PROVIDER_KEYS)


def names_another_model(environ: Mapping[str, str]) -> str | None:
    """Returns the variable that sets another address or another provider than OpenAI for crewai's default model."""
    if address := _first_set(environ, _ADDRESSES):
        return address
    chosen = _first_set(environ, _MODEL_NAMES)
    return chosen if chosen and not _OPENAI_MODEL.match(environ[chosen]) else None


def offline_model_app(
    script: Script | None = None, faults: Faults = FAULTLESS, pause: Pause = asyncio.sleep
) -> Starlette:
    """Returns the ASGI application. It requires no key, so serve it on loopback only.

    `pause` waits for a number of seconds.
    """
    model = _OfflineModel(script, faults, pause)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", model.chat, methods=["POST"]),
            Route("/v1/embeddings", model.embeddings, methods=["POST"]),
            Route("/v1/models", _models, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _not_served, ValidationError: _bad_request, UnansweredError: _unanswered},
    )


class _OfflineModel:
    def __init__(self, script: Script | None, faults: Faults, pause: Pause) -> None:
        self._script = script
        self._latency = faults.latency
        self._lots = Lots(faults)
        self._pause = pause

    async def chat(self, request: Request) -> Response:
        body = await request.body()
        asked = ChatRequest.model_validate_json(body)
        digest = sha256(body).hexdigest()
        lot = self._lots.draw(digest)
        if lot.error:
            return _failure(lot.error, "as its error rate requires")
        reply = self._script.reply(asked) if self._script else Reply()
        if reply.error:
            await self._wait(reply.latency.at(lot.place) if reply.latency else 0)
            return _failure(reply.error, "as a rule of its script requires")
        seconds = (reply.latency or self._latency).at(lot.place)
        return await self._answered(asked, reply.answer or answer(asked), digest, seconds)

    async def embeddings(self, request: Request) -> Response:
        body = await request.body()
        asked = EmbeddingRequest.model_validate_json(body)
        lot = self._lots.draw(sha256(body).hexdigest())
        if lot.error:
            return _failure(lot.error, "as its error rate requires")
        vectors = [embedding(text, asked.dimensions) for text in asked.texts]
        await self._wait(self._latency.at(lot.place))
        return JSONResponse(embeddings(vectors, asked.encoding_format, embedding_tokens(asked.texts)))

    async def _answered(self, asked: ChatRequest, given: Answer, digest: str, seconds: float) -> Response:
        if asked.stream:
            with_usage = asked.stream_options is not None and asked.stream_options.include_usage
            spread = self._spread(events(given, digest, with_usage=with_usage), seconds)
            return StreamingResponse(spread, media_type="text/event-stream")
        await self._wait(seconds)
        return JSONResponse(completion(given, digest))

    async def _spread(self, sent: list[str], seconds: float) -> AsyncIterator[str]:
        for event in sent:
            await self._wait(seconds / len(sent))
            yield event

    async def _wait(self, seconds: float) -> None:
        if seconds:
            await self._pause(seconds)


async def _models(_: Request) -> Response:
    return JSONResponse(models())


async def _not_served(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    message = f"The offline model doesn't serve {request.method} {request.url.path}; it serves {_SERVED}."
    return refused(status, message, code="unknown_url")


async def _bad_request(_: Request, error: Exception) -> Response:
    first = error.errors(include_url=False, include_input=False)[0] if isinstance(error, ValidationError) else None
    place = ".".join(str(step) for step in first["loc"]) if first else ""
    why = first["msg"] if first else str(error)
    where = f"The member {place}" if place else "The body"
    return refused(400, f"{where} of the request can't be used: {why}.", param=place or None)


async def _unanswered(_: Request, error: Exception) -> Response:
    return refused(400, str(error), param="messages", code="no_rule")


def _failure(status: int, why: str) -> Response:
    return refused(status, f"The offline model answers with the error {status}, {why}.")


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if environ.get(name)), None)
