from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import give, say
from windlass.cli.tables import columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.store.deployments import DeploymentOverview
    from windlass.wiring.ground import Administration

HEADINGS = ("CREW", "STATE", "RUNNING", "WAITING", "CAP", "WEIGHT", "LAST KICKOFF")


@click.group
def command() -> None:
    """List the crews of the server, pause and resume them.

    docs/queue.md tells what the columns of the list mean.
    """


@command.command("list")
def list_() -> None:
    """List the crews, with how many of their kickoffs run and wait."""
    from windlass.cli.administering import administer
    from windlass.config import load

    rows = administer(load(), lambda opened: opened.deployments.overview())
    for line in deployment_lines(rows) if rows else ():
        give(line)
    if not rows:
        say("There is no crew yet. Serve one with: windlass dev PATH")


@command.command
@click.argument("slug")
def pause(slug: str) -> None:
    """Begin no more kickoffs of a crew; they are accepted, and wait.

    Those that run go on.
    """
    from windlass.cli.administering import administer, chosen_deployment
    from windlass.config import load
    from windlass.lifecycle import pausing

    async def paused(opened: Administration) -> None:
        await chosen_deployment(opened.deployments, slug)
        await pausing.pause(opened.deployments, slug)

    administer(load(), paused)
    say(f"The crew {slug} is paused. Let it go on with: windlass deployments resume {slug}")


@command.command
@click.argument("slug")
def resume(slug: str) -> None:
    """Begin the kickoffs of a paused crew again."""
    from windlass.cli.administering import administer, chosen_deployment
    from windlass.config import load
    from windlass.lifecycle import pausing

    async def resumed(opened: Administration) -> None:
        await chosen_deployment(opened.deployments, slug)
        await pausing.resume(opened.deployments, slug)

    administer(load(), resumed)
    say(f"The crew {slug} goes on.")


def deployment_lines(rows: Iterable[DeploymentOverview]) -> list[str]:
    return columns([HEADINGS, *(_cells(row) for row in rows)])


def _cells(row: DeploymentOverview) -> list[str]:
    return [
        row.slug,
        "paused" if row.paused_at else "active",
        str(row.running),
        str(row.waiting),
        str(row.concurrency or "-"),
        f"{row.weight:g}",
        _minute(row.last_kickoff_at),
    ]


def _minute(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%MZ}" if at else "-"
