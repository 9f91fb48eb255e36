"""A request's body: within its size and its time, and JSON that can be kept and passed on unchanged."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from windlass.api.problems import bad_request, too_large, too_slow

if TYPE_CHECKING:
    from starlette.requests import Request

DEEPEST = 100
"""Levels of nesting; what is deeper is no input for a prompt, and PostgreSQL and JSON readers have their own limits
beyond.
"""


async def read_object(request: Request, *, largest: int, seconds: float) -> dict[str, Any]:
    """Raises Problem: 400, 408 or 413."""
    body = parse(await _read(request, largest, seconds))
    if not isinstance(body, dict):
        raise bad_request(f'The body must be a JSON object such as {{"inputs": {{}}}}, not {_name(body)}.')
    return body


def parse(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise bad_request(f"The body is not UTF-8: see byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise bad_request(
            f"The body is not JSON: {error.msg.lower()} at line {error.lineno}, column {error.colno}."
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise bad_request(f"The body is not JSON that can be read: {error}.") from None
    if text.count("[") + text.count("{") > DEEPEST:
        _check_depth(value)
    if "\\u" in text:
        _refuse_surrogates(value)
    return value


async def _read(request: Request, largest: int, seconds: float) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > largest:
        raise too_large(largest)
    try:
        async with asyncio.timeout(seconds):
            return await _read_all(request, largest)
    except TimeoutError:
        raise too_slow(seconds) from None


async def _read_all(request: Request, largest: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise too_large(largest)
        parts.append(part)
    return b"".join(parts)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _too_deep() -> Exception:
    return bad_request(f"The body is nested more than {DEEPEST} levels deep.", deepest=DEEPEST)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    raise _too_deep()


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [inner for inner in value.values() if isinstance(inner, dict | list)]
    return [inner for inner in value if isinstance(inner, dict | list)] if isinstance(value, list) else []


def _refuse_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"\\u{ord(error.object[error.start]):04x}"
        raise bad_request(
            f"The body holds half of a surrogate pair ({found}), which is no character and can't be sent to a model."
        ) from None


def _name(value: Any) -> str:
    names = {
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return names[type(value)]
