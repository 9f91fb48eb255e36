"""Reads request bodies. It enforces the size and time limits, and accepts only JSON that can be stored and passed on
unchanged.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from windlass.api.errors import Problem, bad_request, too_large, too_slow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

DEEPEST = 100
"""Levels of nesting. Deeper values are of no use in a prompt, and PostgreSQL and JSON parsers have their own limits
beyond this one.
"""
LONGEST_QUOTE = 40
Object = dict[str, Any] | Problem


@dataclass(frozen=True, slots=True)
class Batch:
    """The items of a list, and the members of the object around it. A Problem stands in place of each invalid item."""

    items: list[Object]
    members: Mapping[str, Any]


async def read_object(
    request: Request, *, largest: int, seconds: float, such_as: str = '{"inputs": {}}'
) -> dict[str, Any]:
    """Returns the body, a JSON object. Raises Problem 400, 408 or 413, with an example."""
    body = parse(await read_body(request, largest, seconds))
    if not isinstance(body, dict):
        raise bad_request(f"The body must be a JSON object such as {such_as}, not {_name(body)}.")
    return body


async def read_list(request: Request, name: str, *, most: int, largest: int, seconds: float) -> Batch:
    """Returns the list of a body that is a list, or that has the list as its member `name`.

    Raises Problem as `read_object` does, for errors of the list itself. Errors of an item are in the Batch.
    """
    text = _text_of(await read_body(request, largest, seconds))
    body = _decoded(text)
    members = body if isinstance(body, dict) else {name: body}
    items = members.get(name)
    if not isinstance(items, list):
        raise bad_request(f'The body must be a JSON object such as {{"{name}": [{{"inputs": {{}}}}]}}, or that list.')
    if len(items) > most:
        raise bad_request(f"The list has {len(items)} items. The limit is {most}: send it in parts.", most=most)
    checks = _checks(text)
    return Batch([_item(item, checks) for item in items], members)


def _item(item: Any, checks: list[Callable[[Any], None]]) -> Object:
    if not isinstance(item, dict):
        return bad_request(f'The item must be a JSON object such as {{"inputs": {{}}}}, not {_name(item)}.')
    try:
        for check in checks:
            check(item)
    except Problem as problem:
        return problem
    return item


def parse(raw: bytes) -> Any:
    """Returns the JSON value. If an object has a name twice, the last value counts. A byte order mark is ignored."""
    text = _text_of(raw)
    value = _decoded(text)
    for check in _checks(text):
        check(value)
    return value


def _text_of(raw: bytes) -> str:
    try:
        return raw.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_request(f"The body is not UTF-8: see byte {error.start}.") from None


def _decoded(text: str) -> Any:
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _not_json(error) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # int() raises it for more digits than its limit
        most = sys.get_int_max_str_digits()
        raise bad_request(f"A whole number in the body has more than {most} digits. Send it as a string.") from None


def _checks(text: str) -> list[Callable[[Any], None]]:
    """Returns the checks that a value from this text can fail. A check that the text can't fail is left out."""
    is_deep = text.count("[") + text.count("{") > DEEPEST
    has_surrogates = "\\ud" in text or "\\uD" in text
    return [*([_check_depth] if is_deep else []), *([_refuse_surrogates] if has_surrogates else [])]


async def read_body(request: Request, largest: int, seconds: float) -> bytes:
    """Returns the body. Raises Problem 408 or 413."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > largest:
        raise too_large(largest)
    try:
        async with asyncio.timeout(seconds):
            return await _read_all(request, largest)
    except TimeoutError:
        raise too_slow(seconds) from None


async def _read_all(request: Request, largest: int) -> bytes:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > largest:
            raise too_large(largest)
        if not message.get("more_body", False):
            return bytes(body)


def _refuse_constant(name: str) -> Any:
    raise bad_request(f"The body is not JSON: {name} is not a JSON number.")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise bad_request(f"The number {_shortened(text)} in the body is too large. Send it as a string.")
    return value


DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}..."


def _not_json(error: json.JSONDecodeError) -> Exception:
    if not error.doc.strip():
        return bad_request("The body is empty. Send a JSON object.")
    what = error.msg.lower().removesuffix(" at")
    return bad_request(f"The body is not JSON: {what} at line {error.lineno}, column {error.colno}.")


def _too_deep() -> Exception:
    return bad_request(f"The body is nested more than {DEEPEST} levels deep.", deepest=DEEPEST)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
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
            f"The body holds half of a surrogate pair ({found}). It is not a character and can't be sent to a model."
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
