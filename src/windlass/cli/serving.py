"""Serves until a signal stops the process: everything in one, or one of many processes."""

# See docs/decisions/commands.md#the-offline-model-of-serve-is-on-request

from __future__ import annotations

import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.printing import console_of
from windlass.cli.project import python_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.config import Settings


def listening_options(command: Callable[..., int]) -> Callable[..., int]:
    command = click.option(
        "--port",
        metavar="PORT",
        type=click.IntRange(0, 65535),
        help="Port to listen on, in place of WINDLASS_PORT; 0 takes a free one.",
    )(command)
    return click.option("--host", metavar="ADDRESS", help="Address to listen on, in place of WINDLASS_HOST.")(command)


def serving_settings(given: Mapping[str, Any]) -> Settings:
    """Returns the settings of the environment, overridden by the command line, and configures the log."""
    from windlass.hardening import keep_memory_private

    keep_memory_private()  # before secrets are read
    from windlass import config, log

    settings = config.load().model_copy(update={name: value for name, value in given.items() if value is not None})
    log.configure(settings.log_format, settings.log_level)
    for name in config.unknown_variables():
        notify(f"warning: {name} is no setting of Windlass. docs/reference/settings.md lists all settings")
    return settings


def notify(line: str) -> None:
    """Prints a line. Ignores an OSError, so that a full disk or a closed terminal does not stop the server."""
    with suppress(OSError):
        click.echo(line)


SHOWN_BY_TREE = frozenset({"kickoff.started", "kickoff.ended"})
"""Log events that the tree shows as well."""


@click.command
@click.argument("projects", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@listening_options
@click.option(
    "--tree/--no-tree",
    default=None,
    help="Show each run live: tasks, agents, model calls, tools, tokens, times, printed lines. On by default on a "
    "terminal.",
)
@python_option
def dev(
    projects: tuple[Path, ...], host: str | None, port: int | None, *, tree: bool | None, python: str | None
) -> int:
    """Serve the crews of projects, everything in one process.

    PATH is a project's folder, by default the current one. crew.py names the crew or flow of a file, and
    crew.py:build_crew an object in it. A single crew has the address of the server. Each of several has
    SERVER/crews/NAME, and tokens of its own.

    The first start creates a database and loads the projects. It reports missing packages, variables and files. Then it
    prints the URL of each crew, and the tokens if the output is a terminal. When files of a project change, including
    its .env, the project is loaded again. Runs in progress continue with the code that they have imported. Ctrl-C stops
    the server. At the next start, accepted kickoffs continue after their last finished task. After SIGTERM, runs have
    WINDLASS_DRAIN_GRACE seconds to finish.
    """
    settings = serving_settings({"host": host, "port": port})
    from windlass.cli.run_tree import RunTree
    from windlass.wiring.dev import Shown, dev

    terminal, served = sys.stdout.isatty(), projects or (Path(),)
    with_tree = tree or (tree is None and terminal)
    unlogged = SHOWN_BY_TREE if with_tree and sys.stderr.isatty() else frozenset[str]()
    if with_tree and (console := console_of(sys.stdout)):
        from windlass.cli.live_tree import LiveTree

        with closing(LiveTree(console)) as live:
            log_stream = live.log if sys.stderr.isatty() else None
            return dev(
                settings, served, Shown(live.notify, [live], unlogged, tokens=terminal, log_stream=log_stream), python
            )
    observers = [RunTree(lambda line: notify(str(line)))] if with_tree else []
    return dev(settings, served, Shown(notify, observers, unlogged, tokens=terminal), python)


@click.command
@listening_options
@click.option(
    "--offline-model",
    is_flag=True,
    help="Let the offline model answer crews without a model key, to try them. It is no real model.",
)
def serve(host: str | None, port: int | None, *, offline_model: bool) -> int:
    """Serve many deployed crews, everything in one process.

    Starts with the crews that are deployed, at first with none. `windlass deploy PATH` deploys a project to the server.
    Each crew is at SERVER/crews/NAME and has tokens of its own. The control API at SERVER/api/v1 deploys and manages
    crews; the commands `deploy`, `deployments` and `env` use it.

    The first start creates a database. Ctrl-C stops the server. At the next start, accepted kickoffs continue after
    their last finished task. After SIGTERM, runs have WINDLASS_DRAIN_GRACE seconds to finish.
    """
    settings = serving_settings({"host": host, "port": port})
    from windlass.wiring.serve import serve

    return serve(settings, notify, offline_model=offline_model, for_person=sys.stdout.isatty())


@click.command
@listening_options
def api(host: str | None, port: int | None) -> int:
    """Serve the API of every crew, as one of many processes.

    Needs WINDLASS_DATABASE_URL, and the WINDLASS_MASTER_KEY that all processes of this database share. Each crew is at
    /crews/NAME. This process runs no kickoffs: workers do (windlass worker). Ctrl-C or SIGTERM stops it once all open
    requests are answered.
    """
    settings = serving_settings({"host": host, "port": port})
    from windlass.wiring.process import serve_api

    return serve_api(settings, notify=notify)


def slugs(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    """Returns the names in a list with commas, None for no list."""
    if value is None:
        return None
    found = [name.strip() for name in value.split(",") if name.strip()]
    if not found:
        raise click.BadParameter("give names of crews, separated by commas.")
    return found


@click.command
@click.option(
    "--slots", metavar="N", type=click.IntRange(1, 1000), help="Kickoffs at once, in place of WINDLASS_SLOTS."
)
@click.option(
    "--deployments",
    metavar="NAME,...",
    callback=slugs,
    help="Run only kickoffs of these crews, separated by commas. By default, of all.",
)
@click.option(
    "--exclude",
    metavar="NAME,...",
    callback=slugs,
    help="Run no kickoffs of these crews, which other workers run, for example on machines with a GPU.",
)
def worker(slots: int | None, deployments: list[str] | None, exclude: list[str] | None) -> int:
    """Run kickoffs, as one of many processes.

    Needs WINDLASS_DATABASE_URL, and the WINDLASS_MASTER_KEY that all processes of this database share. The projects of
    the crews must have the same paths on each machine. On SIGTERM the worker claims no more kickoffs, and its runs have
    WINDLASS_DRAIN_GRACE seconds to finish. It releases the others to other workers, which continue after the last
    finished task. After a second SIGTERM, or Ctrl-C, it does not wait.
    """
    if deployments and exclude:
        raise click.UsageError("Give --deployments or --exclude, not both.")
    settings = serving_settings({"slots": slots})
    from windlass.wiring.process import work

    return work(settings, deployments, exclude or (), notify=notify)
