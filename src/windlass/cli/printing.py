"""Prints results to standard output, and all other messages to standard error."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

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


def notify_streams(result: str) -> None:
    """Explains to a person which of the two streams has the result of the command. A program does not need that."""
    if sys.stderr.isatty():
        notify(f"({result} goes to standard output, this text to standard error.)")


json_option = click.option("--json", "json_output", is_flag=True, help="Print JSON, for programs.")
"""The option of commands that print facts. docs/cli.md documents what each command prints with it."""


def print_json(value: Any) -> None:
    """Prints the value as JSON, with a time as ISO 8601 in UTC."""
    print_result(json.dumps(value, indent=2, ensure_ascii=False, default=_json_form))


def _json_form(value: object) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


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
