"""Shows the progress of `kickoff --each` to a person."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.cli.printing import Screen

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 24
EVERY = 15.0
"""Seconds between two lines when standard error is no terminal."""


@dataclass(frozen=True, slots=True)
class Counts:
    total: int
    ended: int
    failed: int
    open: int

    def __str__(self) -> str:
        return f"{self.ended} of {self.total} done, {self.failed} failed, {self.open} open"


def bar(counts: Counts, width: int = WIDTH) -> str:
    """Returns a bar that is full only when all kickoffs have ended."""
    full = width * counts.ended // counts.total
    return f"[{'#' * full}{'-' * (width - full)}]"


class Board:
    """Shows a bar that changes in place on a terminal, and a line every EVERY seconds elsewhere."""

    def __init__(self, *, terminal: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = Screen()
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._clock = clock
        self._began = self._shown_at = clock()
        self._last_shown: Counts | None = None

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def show(self, counts: Counts) -> None:
        if self._terminal:
            self._screen.live(f"{bar(counts)} {counts}, {self.seconds:.0f} s")
        elif counts != self._last_shown and self._clock() - self._shown_at >= EVERY:
            self._last_shown, self._shown_at = counts, self._clock()
            self._screen.line(f"{counts}, {self.seconds:.0f} s")

    def line(self, text: str) -> None:
        self._screen.line(text)

    def clear(self) -> None:
        self._screen.clear()
