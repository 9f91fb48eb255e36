"""What `kickoff` and `status` share: following a kickoff, and showing what came of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass.cli.crew_options import give_json
from windlass.cli.ending import FAILED
from windlass.cli.printing import give, say
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
    help="How long it goes on asking while the server is away, when it waits for an end.",
)


def watch_options(command: Command) -> Command:
    """Gives the command the options watch and patience."""
    watch = click.option("--watch", is_flag=True, help="Follow the kickoff to its end, and tell what moves.")
    return watch(patience_option(command))


def show(status: Status, *, json_output: bool) -> int:
    """Prints how far the kickoff is, or how it ended and its final output. Returns the exit code."""
    if json_output:
        give_json(status)
    elif not has_ended(status):
        say(now(status, datetime.now(UTC)))
    else:
        say(ending(status))
        if not did_fail(status):
            give(final_output(status))
    return FAILED if did_fail(status) else 0
