from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.ending import FAILED
from windlass.cli.printing import give

if TYPE_CHECKING:
    from windlass.projects.checks import Finding


@click.command
@click.argument("project", metavar="[PATH]", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--strict", is_flag=True, help="End with 1 for warnings, too.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for programs.")
def command(project: Path, *, strict: bool, as_json: bool) -> int:
    """Find what is wrong with a project, all of it at once.

    PATH is the project's folder, the current one if not given. Each finding has its file and line, and says what to do.
    The project is loaded as a server would load it, and nothing is run.

    Ends with 0 when there are no errors, with 1 when there are, and with 2 for a wrong command line.
    """
    from windlass import log
    from windlass.projects.checks import Level

    log.configure("text", "ERROR")
    found = findings_of(project)
    give(json.dumps([one.to_json() for one in found], indent=2) if as_json else "\n".join(lines(found)))
    failed = any(one.level is Level.ERROR or strict for one in found)
    return FAILED if failed else 0


def findings_of(project: Path) -> list[Finding]:
    from windlass import config
    from windlass.errors import ProjectError
    from windlass.lifecycle.examining import findings
    from windlass.projects.checks import Finding, Level, in_order
    from windlass.runner.environment import machine_environment

    unread = []
    try:
        environment = config.crew_environment(project)
    except ProjectError as error:
        environment = config.crew_environment()
        unread.append(Finding("env_file", Level.ERROR, error.message, ".env", None, error.hint))
    return in_order([*unread, *findings(project, machine_environment(environment), environment)])


def lines(found: list[Finding]) -> list[str]:
    from windlass.projects.checks import counts

    if not found:
        return ["nothing found"]
    return [*(line for one in found for line in one.lines()), counts(found)]
