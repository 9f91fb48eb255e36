"""The options of `kickoff` for a batch: one kickoff for each line of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

Command = TypeVar("Command", bound="Callable[..., Any]")
MOST_OPEN = 1000


def each_options(command: Command) -> Command:
    """Adds the options each, concurrency, out and retry_failed to the command."""
    for decorate in (
        click.option(
            "--retry-failed",
            is_flag=True,
            help="Start the lines again that have failed according to --out FILE.",
        ),
        click.option(
            "--out",
            metavar="FILE",
            callback=_a_file,
            help="Write the results of --each to FILE, as JSON lines. The same command continues from there.",
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
            help="Start a kickoff for each line of FILE (- for standard input). A line is a JSON object of inputs.",
        ),
    ):
        command = decorate(command)
    return command


def _a_file(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value == "-":
        raise click.BadParameter(
            "results go to standard output when --out is left out. For a file of this name, give ./-."
        )
    return value


def check_together(*, each: bool, out: bool, retry_failed: bool, watch: bool, json_output: bool) -> None:
    """Raises click.UsageError for options that can't be combined."""
    if retry_failed and not out:
        raise click.UsageError("--retry-failed reads earlier results of --each: give --out FILE too.")
    if out and not each:
        raise click.UsageError("--out stores the results of --each: give --each FILE too.")
    if each and watch:
        raise click.UsageError("--each always follows its kickoffs: leave --watch out.")
    if each and json_output:
        raise click.UsageError("--each always prints JSON lines: leave --json-output out.")
