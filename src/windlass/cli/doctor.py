from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.ending import FAILED
from windlass.cli.printing import give

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windlass.cli.checks import Finding
    from windlass.config import Settings

    Check = Callable[[], Finding]


@click.command
@click.argument("project", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
def command(project: Path | None) -> int:
    """Check what Windlass needs, and tell how to mend it.

    One line for each: ok, warn or fail, and what to do. With PATH, the project in that folder is loaded too, as a
    server would load it. Ends with 1 when a check failed.
    """
    from windlass import config, log
    from windlass.cli.checks import Level, examine

    settings, environment = config.load(), config.crew_environment(project)
    log.configure(settings.log_format, "WARNING")
    failed = False
    for subject, check in checks(settings, environment, project):
        finding = examine(check)
        give(finding.line(subject))
        failed |= finding.level is Level.FAIL
    return FAILED if failed else 0


def checks(settings: Settings, environment: Mapping[str, str], project: Path | None) -> Iterator[tuple[str, Check]]:
    """What each is about, and the check itself, in the order in which a person would mend them."""
    from windlass.cli.checks import crew, database, machine, server
    from windlass.runner.environment import machine_environment

    of_machine = machine_environment(environment)
    yield "Python", machine.python
    yield "home", partial(machine.home, settings.home)
    yield "database", partial(database.database, settings)
    yield "fork", partial(machine.fork, of_machine)
    if project:
        yield "interpreter", partial(crew.interpreter, project)
        yield "project", partial(crew.loads, project, of_machine, environment)
    yield "model", partial(crew.model, environment)
    yield "server", partial(server.server, settings)
