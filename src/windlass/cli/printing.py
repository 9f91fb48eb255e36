"""Prints results to standard output, and all other messages to standard error."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


LIVE_END = "\r\x1b[K"
"""Moves the cursor to the start of the terminal's line, and clears the line."""


def notify(text: str) -> None:
    click.echo(printable(text), err=True)


def print_result(text: str) -> None:
    """Prints the result of a command: unchanged for a program that reads it, without terminal codes on a terminal."""
    click.echo(
        printable(text) if sys.stdout.isatty() else text, color=True
    )  # without color=True click removes terminal codes


def printable(text: str) -> str:
    """Returns the text with terminal codes escaped.

    Text of a model or a server therefore can't move the cursor or rename the window.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)


class Screen:
    """Prints lines to standard error. On a terminal, the line below them changes in place."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._live = False

    def line(self, text: str) -> None:
        self.clear()
        notify(text)

    def live(self, text: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            click.echo(LIVE_END + printable(text)[:width], err=True, nl=False)
            self._live = True

    def clear(self) -> None:
        if self._live:
            click.echo(LIVE_END, err=True, nl=False)
            self._live = False


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a line for each row. Each column is as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
