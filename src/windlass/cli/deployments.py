from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.printing import json_option, notify, print_json, print_table

if TYPE_CHECKING:
    from windlass.store.deployments import DeploymentOverview
    from windlass.wiring.infrastructure import Administration

HEADINGS = ("CREW", "STATE", "RUNNING", "WAITING", "CAP", "WEIGHT", "LAST KICKOFF")


@click.group
def deployments() -> None:
    """List the crews of the server, pause and resume them.

    docs/queue.md describes the columns of the list.
    """


@deployments.command("list")
@json_option
def list_(*, json_output: bool) -> None:
    """List the crews, with how many of their kickoffs run and wait."""
    from windlass.cli.this_server import administer
    from windlass.config import load

    rows = administer(load(), lambda opened: opened.deployments.overview())
    if json_output:
        print_json([_facts(row) for row in rows])
    elif rows:
        print_table(HEADINGS, [_cells(row) for row in rows])
    else:
        notify("There is no crew yet. Serve one with: windlass dev PATH")


@deployments.command
@click.argument("slug")
@json_option
def pause(slug: str, *, json_output: bool) -> None:
    """Pause a crew: its new kickoffs are accepted, and wait.

    Kickoffs that already run are not affected.
    """
    from windlass.cli.this_server import administer, chosen_deployment
    from windlass.config import load
    from windlass.deployments import crews

    async def paused(opened: Administration) -> None:
        await chosen_deployment(opened.deployments, slug)
        await crews.pause(opened.deployments, slug)

    administer(load(), paused)
    if json_output:
        print_json({"slug": slug, "state": "paused"})
    notify(f"The crew {slug} is paused. Resume it with: windlass deployments resume {slug}")


@deployments.command
@click.argument("slug")
@json_option
def resume(slug: str, *, json_output: bool) -> None:
    """Resume a paused crew: its waiting kickoffs can start."""
    from windlass.cli.this_server import administer, chosen_deployment
    from windlass.config import load
    from windlass.deployments import crews

    async def resumed(opened: Administration) -> None:
        await chosen_deployment(opened.deployments, slug)
        await crews.resume(opened.deployments, slug)

    administer(load(), resumed)
    if json_output:
        print_json({"slug": slug, "state": "active"})
    notify(f"The crew {slug} is resumed.")


def _facts(row: DeploymentOverview) -> dict[str, Any]:
    return {
        "slug": row.slug,
        "state": _state(row),
        "paused_at": row.paused_at,
        "running": row.running,
        "waiting": row.waiting,
        "concurrency": row.concurrency,
        "weight": row.weight,
        "last_kickoff_at": row.last_kickoff_at,
    }


def _cells(row: DeploymentOverview) -> list[str]:
    return [
        row.slug,
        _state(row),
        str(row.running),
        str(row.waiting),
        str(row.concurrency or "-"),
        f"{row.weight:g}",
        _minute(row.last_kickoff_at),
    ]


def _state(row: DeploymentOverview) -> str:
    return "paused" if row.paused_at else "active"


def _minute(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%MZ}" if at else "-"
