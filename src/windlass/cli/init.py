from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import give

if TYPE_CHECKING:
    from windlass.projects.making import Kind

KINDS = ("function", "crew", "flow")


@click.command
@click.argument("folder", metavar="[PATH]", default=".", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(KINDS), default="crew", show_default=True, help="What the project is.")
def command(folder: Path, kind: Kind) -> None:
    """Make a project that runs at once on the offline model.

    PATH is its folder, the current one if not given: it is made if it isn't there, and the project is named after it.
    Nothing is written where a file of that name is already.
    """
    from windlass.projects.making import new_project

    for path in new_project(folder, kind):
        give(f"made {path}")
    give("\nWhat to do next:\n" + "\n".join(f"  {step}" for step in steps(folder, kind)))


def steps(folder: Path, kind: Kind) -> list[str]:
    from importlib.util import find_spec

    named = str(folder)
    path = shlex.quote(f"./{named}" if named.startswith("-") else named)
    steps = [f"windlass check {path}", f"windlass dev {path}   # then type the lines that it prints"]
    if kind != "function" and find_spec("crewai") is None:
        steps.insert(0, "pip install 'windlass[crewai]'   # crewai is not installed beside Windlass")
    return steps
