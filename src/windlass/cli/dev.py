from __future__ import annotations

import sys
from pathlib import Path

import click

from windlass.cli.serving import listening_options, say, serving_settings

TOLD_BY_THE_TREE = frozenset({"kickoff.started", "kickoff.ended"})
"""Log events."""


@click.command
@click.argument("project", metavar="PATH", type=click.Path(path_type=Path))
@listening_options
@click.option(
    "--tree/--no-tree",
    default=None,
    help="Show each run as it goes: tasks, agents, model calls, tools, tokens, times, what it prints. On a terminal it "
    "is shown.",
)
def command(project: Path, host: str | None, port: int | None, *, tree: bool | None) -> int:
    """Serve the crew of one project, everything in one process.

    PATH is the project's folder, with its pyproject.toml. The first start makes a database and loads the project, and
    says what it lacks: packages, variables, files. Then the crew's address is printed, and its tokens where the output
    is a terminal. When files of the project change, its .env among them, it is loaded again; what runs goes on with
    the code that it has imported. Ctrl-C stops the server; kickoffs that it has accepted go on at the next start,
    after their last finished task. SIGTERM lets what runs go on for WINDLASS_DRAIN_GRACE seconds before.
    """
    settings = serving_settings({"host": host, "port": port})
    from windlass.cli.run_tree import RunTree
    from windlass.lifecycle.run import unwatched
    from windlass.wiring.dev import Shown, dev

    terminal = sys.stdout.isatty()
    with_tree = tree or (tree is None and terminal)
    unlogged = TOLD_BY_THE_TREE if with_tree and sys.stderr.isatty() else frozenset[str]()
    watcher = RunTree(say) if with_tree else unwatched
    return dev(settings, project, Shown(say, watcher, unlogged, tokens=terminal))
