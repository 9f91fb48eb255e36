"""The options and the output that `kickoff` and `status` share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass.cli.exit_codes import FAILED
from windlass.cli.printing import notify, print_json, print_result
from windlass.cli.progress import did_fail, ending, final_output, has_ended, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.cli.progress import Status

Command = TypeVar("Command", bound="Callable[..., Any]")


patience_option = click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to retry while the server is not available, for a command that waits for an end.",
)


def watch_options(command: Command) -> Command:
    """Adds the options watch and patience to the command."""
    watch = click.option("--watch", is_flag=True, help="Follow the kickoff to its end, and print each change.")
    return watch(patience_option(command))


def show(status: Status, *, json_output: bool) -> int:
    """Prints the progress of the kickoff, or its end and its final output. Returns the exit code."""
    if json_output:
        print_json(status)
    elif not has_ended(status):
        notify(now(status, datetime.now(UTC)))
    else:
        notify(ending(status))
        if not did_fail(status):
            print_result(final_output(status))
    return FAILED if did_fail(status) else 0
