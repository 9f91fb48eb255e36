"""The options of `kickoff` that start a crew for each line of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

Command = TypeVar("Command", bound="Callable[..., Any]")
MOST_OPEN = 1000


def each_options(command: Command) -> Command:
    """Gives the command the options each, concurrency, out and retry_failed."""
    for decorate in (
        click.option(
            "--retry-failed",
            is_flag=True,
            help="Start those again that --out FILE says have failed.",
        ),
        click.option(
            "--out",
            metavar="FILE",
            callback=_a_file,
            help="Keep the results of --each in FILE, as JSON lines; the same command again goes on from there.",
        ),
        click.option(
            "--concurrency",
            type=click.IntRange(1, MOST_OPEN),
            default=8,
            show_default=True,
            metavar="NUMBER",
            help="How many kickoffs of --each are open at a time.",
        ),
        click.option(
            "--each",
            type=click.File("rb"),
            metavar="FILE",
            help="Start it for each line of FILE (- for standard input), a JSON object of inputs.",
        ),
    ):
        command = decorate(command)
    return command


def _a_file(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value == "-":
        raise click.BadParameter("without --out the results go to standard output. Give ./- for a file of that name.")
    return value


def check_together(*, each: bool, out: bool, retry_failed: bool, watch: bool, json_output: bool) -> None:
    """Raises click.UsageError for options that have no meaning together."""
    if retry_failed and not out:
        raise click.UsageError("--retry-failed goes by the results of --each that are kept: give --out FILE too.")
    if out and not each:
        raise click.UsageError("--out keeps the results of --each: give --each FILE too.")
    if each and watch:
        raise click.UsageError("--each follows its kickoffs by itself: leave --watch out.")
    if each and json_output:
        raise click.UsageError("--each prints JSON lines by itself: leave --json-output out.")
