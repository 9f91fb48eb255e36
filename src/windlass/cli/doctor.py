"""Checks what Windlass needs on this machine, and shows how to fix it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from windlass.cli.exit_codes import FAILED
from windlass.cli.printing import json_option, print_finding, print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windlass.cli.checks import Finding
    from windlass.config import Settings

    Check = Callable[[], Finding]


@click.command
@click.argument("project", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
@json_option
def doctor(project: Path | None, *, json_output: bool) -> int:
    """Check what Windlass needs, and show how to fix it.

    Prints one line per check: ok, warn or fail, and how to fix it. With PATH, that project is loaded too, as a server
    would load it. Exits with 1 when a check failed.
    """
    from windlass import config, log
    from windlass.cli.checks import Level, examine
    from windlass.deployments.environment import crew_environment

    settings = config.load()
    environment = crew_environment(found_folder(project), settings.crew_env)
    log.configure(settings.log_format, "WARNING")
    found = {}
    for subject, check in checks(settings, environment, project):
        found[subject] = finding = examine(check)
        if not json_output:
            print_finding(finding.line(subject))
    if json_output:
        print_json([{"check": name, "level": one.level, "message": one.text} for name, one in found.items()])
    return FAILED if any(one.level is Level.FAIL for one in found.values()) else 0


def found_folder(project: Path | None) -> Path | None:
    """Returns None also for a project that can't be found: a check reports it."""
    from windlass.errors import ProjectError
    from windlass.projects.kinds import folder_of

    try:
        return project and folder_of(project)
    except ProjectError:
        return None


def checks(settings: Settings, environment: Mapping[str, str], project: Path | None) -> Iterator[tuple[str, Check]]:
    """Yields the name and the function of each check, in the order in which a person would fix the faults."""
    from windlass.cli.checks import crew, machine, server
    from windlass.config import environment as own_environment
    from windlass.kickoffs.boundary_parts import Part
    from windlass.runner.run_spec import machine_environment

    of_machine = machine_environment(own_environment())
    yield "Python", machine.python
    yield "home", partial(machine.home, settings.home)
    yield "database", partial(server.database, settings)
    yield "fork", partial(machine.fork, of_machine)
    yield "limits", machine.limits
    yield "memory", partial(machine.memory, settings.memory_limit)
    for part in get_args(Part):
        yield part, partial(machine.boundary, part, settings)
    yield "orphans", machine.orphans
    if project:
        yield "interpreter", partial(crew.interpreter, project)
        yield "project", partial(crew.loads, project, settings, environment)
    yield "model", partial(crew.model, environment)
    yield "server", partial(server.server, settings)
