"""Geometry of small charts, as path data of inline SVG. The colours are in static/charts.css."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.statistics import CrewStatistics

WIDTH, HEIGHT = 240, 56
"""The view box of a line chart. The page stretches it."""
BAR, GAP, BARS = 3, 1, 22
"""Widths in a sparkline, and its height."""
LEAST_BAR = 2
FLAT_LINE = 1.0
"""The upper end of a chart whose values are all 0."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line over intervals of the same length, and the area below it. Intervals without a value leave a gap."""

    line: str
    area: str


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Bars of 24 hours: what ended, and of this what failed, as the lower part of the bar. `width` is of the box."""

    ended: str
    failed: str
    idle: str
    width: int
    height: int


def top_of(*series: Sequence[float | None]) -> float:
    """Returns the upper end of a chart of these values."""
    return max((value for values in series for value in values if value), default=FLAT_LINE)


def line(values: Sequence[float | None], top: float) -> Line:
    step = WIDTH / max(1, len(values) - 1)
    points = [
        None if value is None else (round(place * step, 1), round(HEIGHT - 1 - (HEIGHT - 3) * value / top, 1))
        for place, value in enumerate(values)
    ]
    runs: list[list[tuple[float, float]]] = []
    for before, point in pairwise([None, *points]):
        if point is not None:
            if before is None:
                runs.append([])
            runs[-1].append(point)
    return Line("".join(map(_line, runs)), "".join(map(_area, runs)))


def sparkline(found: CrewStatistics) -> Sparkline:
    top = max(found.ended) or 1
    ended, failed, idle = [], [], []
    for place, (of_hour, bad) in enumerate(zip(found.ended, found.failed, strict=True)):
        left = place * (BAR + GAP)
        whole = max(LEAST_BAR, round(BARS * of_hour / top)) if of_hour else 0
        below = min(whole, max(LEAST_BAR, round(whole * bad / of_hour))) if bad else 0
        if whole > below:
            ended.append(_bar(left, BARS - whole, whole - below))
        if below:
            failed.append(_bar(left, BARS - below, below))
        if not whole:
            idle.append(_bar(left, BARS - 1, 1))
    width = len(found.ended) * (BAR + GAP) - GAP
    return Sparkline("".join(ended), "".join(failed), "".join(idle), width, BARS)


def _bar(left: int, top: int, height: int) -> str:
    return f"M{left} {top}h{BAR}v{height}h-{BAR}z"


def _line(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *others = points
    return f"M{x:g} {y:g}" + ("".join(f"L{x:g} {y:g}" for x, y in others) or "h0")


def _area(points: Sequence[tuple[float, float]]) -> str:
    return f"{_line(points)}V{HEIGHT}H{points[0][0]:g}z" if len(points) > 1 else ""
