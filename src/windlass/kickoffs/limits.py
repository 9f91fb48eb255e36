"""What a run may use at most: read from a project's pyproject.toml and from a kickoff's request, by the same names."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMG]B|)", re.IGNORECASE | re.ASCII)


class BadLimit(ValueError):  # noqa: N818 - said of the limit
    """A limit of an unknown name or with a value that it can't have; the text says which and what it takes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """None stands for no limit; as an override, for one that is not given.

    Sizes are in bytes: `memory_limit` of all processes of the run together (PSS), `output_limit` of what they print and
    is kept, `result_limit` of the result as JSON. `timeout` and `stall_after` are in seconds: from the first start to
    the end, and from one sign of life to the next.
    """

    timeout: float | None = None
    memory_limit: int | None = None
    process_limit: int | None = None
    output_limit: int | None = None
    result_limit: int | None = None
    token_limit: int | None = None
    model_call_limit: int | None = None
    stall_after: float | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """From names and values as people write them: numbers, and for sizes also text such as "512 MB".

        Raises BadLimit.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise BadLimit(f"there is no limit {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        values: dict[str, Any] = {name: _value(name, value) for name, value in given.items() if value is not None}
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Those that are given; `parse` reads it back."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def replaced_by(self, other: Limits) -> Limits:
        """The other's where it has one."""
        return replace(self, **other.to_json())

    def lowered_by(self, other: Limits) -> Limits:
        """The smaller of the two, one by one: who starts a kickoff may tighten what its deployment allows."""
        mine = asdict(self)
        smaller = {
            name: value if mine[name] is None else min(mine[name], value) for name, value in other.to_json().items()
        }
        return replace(self, **smaller)


LONGEST_SHOWN = 60
SECONDS = {"timeout", "stall_after"}
SIZES = {"memory_limit", "output_limit", "result_limit"}


MOST = 10**13
"""Of anything: what is more is a typing error, and some arithmetic would fail at it."""


def _value(name: str, value: Any) -> float | int:
    number = _size(value) if name in SIZES else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= MOST:
        raise BadLimit(f"{name} must be {_wanted(name)}, not {_shown(value)}")
    if name in SECONDS:
        return number
    if number != int(number):
        raise BadLimit(f"{name} must be {_wanted(name)}, not {_shown(value)}")
    return int(number)


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or value <= MOST else "so much"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _size(value: Any) -> Any:
    if isinstance(value, str) and (found := SIZE.fullmatch(value.strip())):
        size = float(found[1]) * UNITS[found[2].upper()]
        return int(size) if math.isfinite(size) else math.inf
    return value


def _wanted(name: str) -> str:
    if name in SECONDS:
        return "a number of seconds above 0"
    return 'a number of bytes, or text such as "512 MB"' if name in SIZES else "a whole number above 0"


def size_in_words(size: float) -> str:
    """`512 MB`, `1.5 GB`: as limits are written."""
    for unit in ("GB", "MB", "KB"):
        if size >= UNITS[unit]:
            return f"{round(size / UNITS[unit], 1):g} {unit}"
    return f"{size:.0f} bytes"
