"""Prints results to standard output, and all other messages to standard error.

On a terminal, rich adds colours, tables and live lines. It is imported there only. All other readers, and users of
NO_COLOR or TERM=dumb, get plain lines. Text of crews and servers is escaped first, and never read as markup.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

BAR = 24
"""Characters of a progress bar."""
STYLES = {"ok": "green", "warn": "yellow", "warning": "yellow", "fail": "red", "error": "red"}
"""The style of the first word of a line."""
STATES = dict.fromkeys(["active", "valid", "shown"], "green") | dict.fromkeys(["disabled", "revoked", "expired"], "red")
STATES["paused"] = "yellow"
"""Maps a state in a table to its style."""
NARROWEST = 40
"""The fewest columns of a terminal on which lines are decorated."""
WIDEST = 100_000
"""Columns of a table that nobody looks at on a terminal."""


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
"""The option of commands that print facts. docs/reference/cli.md documents what each command prints with it."""


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


def console_of(stream: TextIO) -> Console | None:
    """Returns the console of a terminal. Returns None where plain lines are wanted."""
    if not stream.isatty():
        return None
    from rich.console import Console

    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    decorated = console.is_terminal and not console.no_color and not console.is_dumb_terminal
    return console if decorated and console.width >= NARROWEST else None


def program() -> str:
    """Returns `windlass` as a person can type it: with the path that was typed, where the shell finds no `windlass`."""
    typed = sys.argv[0]
    return typed if Path(typed).name == "windlass" and which("windlass") is None else "windlass"


def print_finding(text: str) -> None:
    """Prints a result whose lines may start with a level, which has a colour on a terminal."""
    console = console_of(sys.stdout)
    if console is None:
        print_result(text)
        return
    from rich.text import Text

    for line in text.split("\n"):
        shown = Text(printable(line))
        word = line.partition(" ")[0].rstrip(":")
        shown.stylize(STYLES.get(word, ""), 0, len(word))
        console.print(shown, soft_wrap=True)


def print_error(message: str, hint: str) -> None:
    """Prints an error and what to do about it to standard error: in a panel on a terminal."""
    console = console_of(sys.stderr)
    if console is None:
        for line in (f"error: {message}", hint):
            if line:
                notify(line)
        return
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    words = [Text(printable(message)), *([Text(printable(hint), style="cyan")] if hint else [])]
    console.print(Panel(Group(*words), title="error", title_align="left", border_style="red", box=box.HORIZONTALS))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a line for each row. Each column is as wide as its longest cell, also with characters of double width."""
    if not rows:
        return []  # rich prints an empty line
    from io import StringIO

    from rich.console import Console

    console = Console(file=StringIO(), width=WIDEST, color_system=None)
    with console.capture() as found:
        console.print(_grid(rows))
    return [line.rstrip() for line in found.get().splitlines()]


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table as plain lines. On a terminal that is wide enough, headings and states have colours."""
    from rich.cells import cell_len
    from rich.text import Text

    console, lines = console_of(sys.stdout), columns([headings, *rows])
    if console is None or max(map(cell_len, lines)) > console.width:  # rich would cut cells, such as ids
        print_result("\n".join(lines))
        return

    grid = _grid([])
    grid.add_row(*(Text(heading, style="bold cyan") for heading in headings))
    for row in rows:
        grid.add_row(*(Text(_cell(cell), style=STATES.get(cell, "")) for cell in row))
    console.print(grid)


def _grid(rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        grid.add_row(*(Text(_cell(cell), no_wrap=True) for cell in row))
    return grid


def _cell(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", " ")


class Screen:
    """Prints lines to standard error. On a terminal, the line below them changes in place."""

    def __init__(self) -> None:
        self.console = console_of(sys.stderr)
        self._live: Live | None = None

    def line(self, text: str) -> None:
        if self.console is None:
            notify(text)
            return
        from rich.text import Text

        self.console.print(Text(printable(text)), soft_wrap=True)

    def live(self, text: str, done: int = 0, total: int | None = None) -> None:
        """Shows the text in place of the last one, after a bar if there is a total, else after a spinner."""
        if self.console is None:
            return
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        if self._live is None:
            self._spinner = Spinner("dots", style="cyan")
            self._live = Live(console=self.console, transient=True, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        shown = Table.grid(padding=(0, 1, 0, 0))
        sign = self._spinner if total is None else ProgressBar(total, done, width=BAR)
        shown.add_row(sign, Text(printable(text), no_wrap=True, overflow="ellipsis"))
        self._live.update(shown, refresh=True)

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
