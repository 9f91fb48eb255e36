"""The member `limits` of a kickoff request: windlass.kickoffs.limits as a pydantic type."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from windlass.kickoffs.limits import MOST, SECONDS, SIZES, BadLimit, Limits

LONGEST_REASON = 300
_WHOLE, _DECIMAL = r"[1-9][0-9]{0,12}", r"(\.[0-9]{1,3})?"
SIZE_PATTERN = rf"^\s*({_WHOLE}|(?=[0-9.]*[1-9])([0-9]{{1,6}}{_DECIMAL} ?[KkMm]|[0-9]{{1,3}}{_DECIMAL} ?[Gg])[Bb])\s*$"
"""Every size that matches is accepted. A few sizes that do not match are accepted as well."""


def _limits(value: object) -> Limits:
    if isinstance(value, Limits):
        return value
    if not isinstance(value, dict):
        raise _refused("Input should be an object such as {timeout: 600}")
    try:
        return Limits.parse(value)
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
    text = [{"type": "string", "pattern": SIZE_PATTERN}] if name in SIZES else []
    return {"anyOf": [number, *text, {"type": "null"}]}


LIMITS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {field.name: _schema_of(field.name) for field in fields(Limits)},
    "additionalProperties": False,
}
LimitsMember = Annotated[Limits, PlainValidator(_limits), WithJsonSchema(LIMITS_SCHEMA)]
