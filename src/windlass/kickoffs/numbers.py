"""Numbers as people say them."""

from __future__ import annotations


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")  # noqa: PLR2004
    return f"{number}{ending}"


def how_often(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"
