"""The latency of the offline model's answers, and the errors among them. Both follow from a seed, not from chance."""

# See docs/decisions/commands.md#faults-of-the-offline-model-depend-on-the-request

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

LONGEST: Final = 3600.0

_RANGE: Final = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(?:-\s*(\d+(?:\.\d+)?|\.\d+)\s*)?")
_MOST_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Seconds:
    least: float
    most: float

    @classmethod
    def of(cls, given: object) -> Seconds:
        """Parses 0.5, or text such as "0.5" or "0.2-1.5". Raises ValueError with the permitted forms."""
        if isinstance(given, int | float) and not isinstance(given, bool):
            least = most = float(given)
        elif isinstance(given, str) and (found := _RANGE.fullmatch(given)):
            least, most = float(found[1]), float(found[2] or found[1])
        else:
            raise ValueError(_wrong(given))
        if not (math.isfinite(most) and 0 <= least <= most <= LONGEST):
            raise ValueError(_wrong(given))
        return cls(least, most)

    def at(self, fraction: float) -> float:
        return self.least + (self.most - self.least) * fraction


@dataclass(frozen=True, slots=True)
class Faults:
    """Latency and errors of all answers.

    `error_rate` is the fraction of requests, from 0 to 1, that get one of `error_statuses` instead of an answer.
    """

    latency: Seconds = Seconds(0.0, 0.0)
    error_rate: float = 0.0
    error_statuses: tuple[int, ...] = (429,)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Lot:
    """Latency and error of one request: `place` is where in the range its latency is, from 0 to 1."""

    place: float
    error: int | None


class Lots:
    """Draws the latency and the error of each request.

    Both depend on the seed, on the request's body and on how often the same body was received. They do not depend on
    other requests. So tasks that run side by side get the same lots in each run, and a retry gets a new one.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._came: Counter[str] = Counter()

    def draw(self, digest: str) -> Lot:
        if len(self._came) >= _MOST_REMEMBERED:
            self._came.clear()
        self._came[digest] += 1
        request = f"{self._faults.seed} {digest} {self._came[digest]}"
        return Lot(_fraction(f"{request} latency"), self._error(request))

    def _error(self, request: str) -> int | None:
        if _fraction(f"{request} error") >= self._faults.error_rate:
            return None
        statuses = self._faults.error_statuses
        return statuses[int(_fraction(f"{request} status") * len(statuses))]


def _fraction(text: str) -> float:
    """Returns a number from 0 to less than 1."""
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest()) / 2**48


def _wrong(given: object) -> str:
    return f"{given!r} is no latency: give seconds such as 0.5, or a range such as 0.2-1.5, up to {LONGEST:g}"
