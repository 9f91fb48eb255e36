from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import json_option, print_json, print_result

if TYPE_CHECKING:
    from windlass.projects.making import Kind

KINDS = ("function", "crew", "flow")


@click.command
@click.argument("folder", metavar="[PATH]", default=".", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(KINDS), default="crew", show_default=True, help="Kind of the project.")
@json_option
def command(folder: Path, kind: Kind, *, json_output: bool) -> None:
    """Create a project that runs on the offline model.

    PATH is its folder, by default the current one. A missing folder is created. The project is named after the folder.
    If one of its files already exists, nothing is written.
    """
    from windlass.projects.making import new_project

    paths = new_project(folder, kind)
    if json_output:
        print_json({"files": paths, "next": steps(folder, kind)})
        return
    for path in paths:
        print_result(f"made {path}")
    print_result("\nWhat to do next:\n" + "\n".join(f"  {step}" for step in steps(folder, kind)))


def steps(folder: Path, kind: Kind) -> list[str]:
    from importlib.util import find_spec

    named = str(folder)
    path = shlex.quote(f"./{named}" if named.startswith("-") else named)
    steps = [f"windlass check {path}", f"windlass dev {path}   # then type the lines that it prints"]
    if kind != "function" and find_spec("crewai") is None:
        steps.insert(0, "pip install 'windlass[crewai]'   # crewai is not installed beside Windlass")
    return steps
