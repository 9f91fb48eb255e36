"""The member `limits` of a kickoff: the limits of windlass.kickoffs.limits, as a request may give them."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from windlass.kickoffs.limits import MOST, SECONDS, SIZES, BadLimit, Limits

LONGEST_REASON = 300
SIZE_PATTERN = r"^\s*\d+(\.\d+)? ?([KkMmGg][Bb])?\s*$"


def _limits(given: object) -> Limits:
    if isinstance(given, Limits):
        return given
    if not isinstance(given, dict):
        raise _refused("Input should be an object such as {timeout: 600}")
    try:
        return Limits.parse(given)
    except BadLimit as error:
        raise _refused(str(error)) from None


def _refused(reason: str) -> PydanticCustomError:
    words = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}..."
    return PydanticCustomError("bad_limit", "{words}", {"words": words})


def _schema_of(name: str) -> dict[str, Any]:
    number: dict[str, Any] = {
        "type": "number" if name in SECONDS else "integer",
        "exclusiveMinimum": 0,
        "maximum": MOST,
    }
    return {"anyOf": [number, {"type": "string", "pattern": SIZE_PATTERN}]} if name in SIZES else number


LIMITS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {field.name: _schema_of(field.name) for field in fields(Limits)},
    "additionalProperties": False,
}
LimitsMember = Annotated[Limits, PlainValidator(_limits), WithJsonSchema(LIMITS_SCHEMA)]
