"""Creates a project, and finds its errors."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.exit_codes import FAILED
from windlass.cli.printing import json_option, notify, print_finding, print_json, print_result, program
from windlass.errors import ProjectError
from windlass.projects import recognise
from windlass.projects.kinds import folder_of
from windlass.projects.making import KINDS_WITH_TEMPLATES, new_project

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windlass.kickoffs.boundary_parts import BoundaryPart
    from windlass.projects import Interpreter
    from windlass.projects.findings import Finding


python_option = click.option(
    "--python",
    metavar="PYTHON",
    help="Interpreter of the project: a path, or a version such as 3.12 that is found on this machine.",
)


@click.command
@click.argument("folder", metavar="[PATH]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--kind", type=click.Choice(KINDS_WITH_TEMPLATES), default="crew", show_default=True, help="Kind of the project."
)
@json_option
def init(folder: Path, kind: str, *, json_output: bool) -> None:
    """Create a project that runs on the offline model.

    PATH is its folder, by default the current one. A missing folder is created. The project is named after the folder.
    If one of its files already exists, nothing is written.
    """
    paths = new_project(folder, kind)
    if json_output:
        print_json({"files": paths, "next": steps(folder)})
        return
    for path in paths:
        print_result(f"made {path}")
    print_result("\nWhat to do next:\n" + "\n".join(f"  {step}" for step in steps(folder)))


def steps(folder: Path) -> list[str]:
    named = str(folder)
    path = shlex.quote(f"./{named}" if named.startswith("-") else named)
    windlass = shlex.quote(program())
    steps = [f"{windlass} check {path}", f"{windlass} dev {path}   # then type the lines that it prints"]
    steps.append(f"{windlass} deploy {path}   # to a server: {windlass} serve")
    framework = recognise(folder).preload
    if framework and find_spec(framework) is None:
        steps.insert(0, f"{windlass} setup {path}   # {framework} is not installed beside Windlass")
    return steps


class ProjectPath(click.Path):
    """The path of a project: its folder, a Python file in it, or file:object."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]  # never bytes, as path_type is Path
        try:
            folder_of(path)
        except ProjectError as error:
            self.fail(str(error), param, ctx)
        return path


@click.command
@click.argument("project", metavar="[PATH]", default=".", type=ProjectPath(path_type=Path))
@click.option("--strict", is_flag=True, help="Exit with code 1 for warnings too.")
@python_option
@json_option
def check(project: Path, *, strict: bool, python: str | None, json_output: bool) -> int:
    """Find all errors of a project in one run.

    PATH is the project's folder, by default the current one. crew.py names the crew or flow of a file, and
    crew.py:build_crew an object in it. Each finding names its file and line, and how to fix it.
    The project is loaded as a server would load it, as the same user and within the same limits. No crew runs.

    Exits with 0 when there are no errors, with 1 when there are errors, and with 2 for a wrong command line.
    """
    from windlass import log
    from windlass.projects.findings import Level

    log.configure("text", "ERROR")
    found = findings_of(project, (lambda _: None) if json_output else notify, python)
    if json_output:
        print_json([one.to_json() for one in found])
    else:
        print_finding("\n".join(lines(found)))
    failed = any(one.level is Level.ERROR or strict for one in found)
    return FAILED if failed else 0


@click.command
@click.argument("project", metavar="[PATH]", default=".", type=ProjectPath(path_type=Path))
@python_option
def setup(project: Path, python: str | None) -> int:
    """Make the environment of a project from its files.

    PATH is the project's folder, by default the current one. uv installs the packages into PATH/.venv: those of
    uv.lock, else of poetry.lock, pyproject.toml or requirements.txt. Nothing is installed into Windlass's own
    environment. An environment that is up to date stays as it is. One that another program made is kept as
    .venv.before-setup.

    Packages may run code of their own while they are built. Root builds as another user (docs/concepts/security.md).
    """
    import signal

    from windlass import config, log
    from windlass.cli.printing import Screen
    from windlass.wiring.setup import set_up_project

    log.configure("text", "WARNING")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))  # removes the unfinished environment
    screen = Screen()

    def show(line: str) -> None:
        screen.line(line)
        screen.live("installing; Ctrl-C leaves the project unchanged")

    screen.live("looking for an interpreter")  # imports all that it needs, before root becomes another user
    try:
        made = set_up_project(config.load(), folder_of(project), python, show)
    finally:
        screen.clear()
    state = "is ready" if made.is_new else "is up to date"
    print_result(f"{made.interpreter.parents[1]} {state}, with the packages of {made.packages.file}")
    if made.before is not None:
        notify(f"The former environment is kept in {made.before}. Remove it when you don't need it.")
    return 0


def findings_of(project: Path, notify: Callable[[str], None], python: str | None) -> list[Finding]:
    import asyncio

    from windlass import config
    from windlass.aio import serving
    from windlass.deployments.environment import crew_environment
    from windlass.deployments.inspection import findings
    from windlass.projects.findings import Finding, Level, in_order
    from windlass.wiring.crews import interpreters_of_command, notify_passed_variables, runner_for_checks

    settings, unread, interpreters = config.load(), [], interpreters_of_command(python)
    try:
        environment = crew_environment(folder_of(project), settings.crew_env)
    except ProjectError as error:
        environment = crew_environment(None, settings.crew_env)
        unread.append(Finding("env_file", Level.ERROR, error.message, ".env", None, error.hint))
    notify_passed_variables(settings, notify)

    def show(chosen: Interpreter) -> None:
        notify(f"crews run in {chosen}")

    async def find() -> list[Finding]:
        with runner_for_checks(settings, notify) as runner:
            notify_boundary(runner.boundary, notify)
            async with serving(runner):
                return await findings(project, runner, environment, interpreters, show)

    return in_order([*unread, *asyncio.run(find())])


def notify_boundary(parts: Sequence[BoundaryPart], notify: Callable[[str], None]) -> None:
    """Shows which parts of what separates runs hold on this machine, and of the others what can be bypassed."""
    if all(one.holds == "yes" for one in parts):
        held = ", ".join(one.part for one in parts)
        notify(f"the boundary of runs holds on this machine: {held} (docs/concepts/security.md)")
    for one in parts:
        if one.holds != "yes":
            state = "holds in part" if one.holds == "partly" else "does not hold"
            notify(f"the boundary of runs {state} on this machine ({one.part}): {one.text}")


def lines(found: list[Finding]) -> list[str]:
    from windlass.projects.findings import counts

    if not found:
        return ["no errors, no warnings"]
    return [*(line for one in found for line in one.lines()), counts(found)]
