from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import columns, notify, print_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.store.deployments import DeploymentOverview
    from windlass.wiring.infrastructure import Administration

HEADINGS = ("CREW", "STATE", "RUNNING", "WAITING", "CAP", "WEIGHT", "LAST KICKOFF")


@click.group
def command() -> None:
    """List the crews of the server, pause and resume them.

    docs/queue.md describes the columns of the list.
    """


@command.command("list")
def list_() -> None:
    """List the crews, with how many of their kickoffs run and wait."""
    from windlass.cli.admin_session import administer
    from windlass.config import load

    rows = administer(load(), lambda opened: opened.deployments.overview())
    for line in deployment_lines(rows) if rows else ():
        print_result(line)
    if not rows:
        notify("There is no crew yet. Serve one with: windlass dev PATH")


@command.command
@click.argument("slug")
def pause(slug: str) -> None:
    """Pause a crew: its new kickoffs are accepted, and wait.

    Kickoffs that already run are not affected.
    """
    from windlass.cli.admin_session import administer, chosen_deployment
    from windlass.config import load
    from windlass.deployments import crews

    async def paused(opened: Administration) -> None:
        await chosen_deployment(opened.deployments, slug)
        await crews.pause(opened.deployments, slug)

    administer(load(), paused)
    notify(f"The crew {slug} is paused. Resume it with: windlass deployments resume {slug}")


@command.command
@click.argument("slug")
def resume(slug: str) -> None:
    """Resume a paused crew: its waiting kickoffs can start."""
    from windlass.cli.admin_session import administer, chosen_deployment
    from windlass.config import load
    from windlass.deployments import crews

    async def resumed(opened: Administration) -> None:
        await chosen_deployment(opened.deployments, slug)
        await crews.resume(opened.deployments, slug)

    administer(load(), resumed)
    notify(f"The crew {slug} is resumed.")


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
