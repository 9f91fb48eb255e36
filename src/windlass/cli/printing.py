"""Where words go: what was asked for to standard output, everything else to standard error."""

from __future__ import annotations

import shutil
import sys

import click

LIVE_END = "\r\x1b[K"
"""Back to the start of the terminal's line, and clear it."""


def say(text: str) -> None:
    click.echo(printable(text), err=True)


def give(text: str) -> None:
    """What was asked for: as it is for a program that reads it, without terminal codes for a person."""
    click.echo(printable(text) if sys.stdout.isatty() else text, color=True)  # else click takes codes out of it


def printable(text: str) -> str:
    """Without terminal codes: what a model or a server wrote can't move the cursor or rename the window."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)


class Screen:
    """Lines on standard error, and below them, on a terminal, one that changes in place."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._live = False

    def line(self, text: str) -> None:
        self.clear()
        say(text)

    def live(self, text: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            click.echo(LIVE_END + printable(text)[:width], err=True, nl=False)
            self._live = True

    def clear(self) -> None:
        if self._live:
            click.echo(LIVE_END, err=True, nl=False)
            self._live = False
