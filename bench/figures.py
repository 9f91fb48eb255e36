from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: str
    goal: str = ""


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def spread(values: list[float], unit: str, digits: int = 0) -> str:
    """The median, with least and most."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f}{unit} ({least:,.{digits}f} to {most:,.{digits}f})"
