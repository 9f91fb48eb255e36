from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import click

from windlass.cli.printing import console_of
from windlass.cli.serving import listening_options, notify, serving_settings

SHOWN_BY_TREE = frozenset({"kickoff.started", "kickoff.ended"})
"""Log events that the tree shows as well."""


@click.command
@click.argument("project", metavar="PATH", type=click.Path(path_type=Path))
@listening_options
@click.option(
    "--tree/--no-tree",
    default=None,
    help="Show each run live: tasks, agents, model calls, tools, tokens, times, printed lines. On by default on a "
    "terminal.",
)
def dev(project: Path, host: str | None, port: int | None, *, tree: bool | None) -> int:
    """Serve the crew of one project, everything in one process.

    PATH is the project's folder, with its pyproject.toml. The first start creates a database and loads the project. It
    reports missing packages, variables and files. Then it prints the crew's URL, and the tokens if the output is a
    terminal. When files of the project change, including its .env, the project is loaded again. Runs in progress
    continue with the code that they have imported. Ctrl-C stops the server. At the next start, accepted kickoffs
    continue after their last finished task. After SIGTERM, runs have WINDLASS_DRAIN_GRACE seconds to finish.
    """
    settings = serving_settings({"host": host, "port": port})
    from windlass.cli.run_tree import RunTree
    from windlass.wiring.dev import Shown, dev

    terminal = sys.stdout.isatty()
    with_tree = tree or (tree is None and terminal)
    unlogged = SHOWN_BY_TREE if with_tree and sys.stderr.isatty() else frozenset[str]()
    if with_tree and (console := console_of(sys.stdout)):
        from windlass.cli.live_tree import LiveTree

        with closing(LiveTree(console)) as live:
            log_stream = live.log if sys.stderr.isatty() else None
            return dev(settings, project, Shown(live.notify, [live], unlogged, tokens=terminal, log_stream=log_stream))
    observers = [RunTree(lambda line: notify(str(line)))] if with_tree else []
    return dev(settings, project, Shown(notify, observers, unlogged, tokens=terminal))
