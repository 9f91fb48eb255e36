"""Reads the limits of a run, from a project's pyproject.toml and from a kickoff's request. Both use the same names."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMG]B|)", re.IGNORECASE | re.ASCII)


class BadLimit(ValueError):  # noqa: N818 - describes the limit
    """Reports a limit with an unknown name or an invalid value. The message names the limit and its valid values."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Holds the limits of a run. None stands for no limit; in an override, None stands for a limit that is not set.

    Sizes are in bytes:

    - `memory_limit`: the memory of all processes of the run together (PSS)
    - `output_limit`: the printed output that is kept
    - `result_limit`: the result as JSON
    - `disk_limit`: the blocks of the files in the run's folder
    - `stored_limit`: the rows that the run adds to the database

    `file_limit` and `event_limit` are counts. `timeout` is in seconds, from the first start to the end. `stall_after`
    is in seconds, from one sign of life to the next.
    """

    timeout: float | None = None
    memory_limit: int | None = None
    process_limit: int | None = None
    output_limit: int | None = None
    result_limit: int | None = None
    disk_limit: int | None = None
    file_limit: int | None = None
    event_limit: int | None = None
    stored_limit: int | None = None
    token_limit: int | None = None
    model_call_limit: int | None = None
    stall_after: float | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Returns the limits for names and values as people write them. Raises BadLimit.

        Values are numbers. Sizes may also be text such as "512 MB".
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise BadLimit(f"there is no limit {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        values: dict[str, Any] = {name: _value(name, value) for name, value in given.items() if value is not None}
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Returns the limits that are set. `parse` accepts this value."""
        given = ((name, getattr(self, name)) for name in NAMES)
        return {name: value for name, value in given if value is not None}

    def replaced_by(self, other: Limits) -> Limits:
        """Returns the limits of `other`, and those of this one where `other` has none."""
        return replace(self, **other.to_json())

    def lowered_by(self, other: Limits) -> Limits:
        """Returns the smaller of each two limits. A client may lower the limits of the deployment for its kickoff."""
        mine = self.to_json()
        smaller = {name: min(mine.get(name, value), value) for name, value in other.to_json().items()}
        return replace(self, **smaller)


NAMES = [field.name for field in fields(Limits)]
LONGEST_SHOWN = 60
SECONDS = {"timeout", "stall_after"}
SIZES = {"memory_limit", "output_limit", "result_limit", "disk_limit", "stored_limit"}


WHERE = "under [tool.windlass.limits] in pyproject.toml, and in the kickoff's `limits` if it set one"
"""The place where a person raises a limit. Each error about a limit ends with this text."""

MOST = 10**13
"""The largest value of any limit. A larger value is a typing error, and arithmetic with it could fail."""


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
    text = repr(value) if not isinstance(value, int) or value <= MOST else f"a number above {MOST}"
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
