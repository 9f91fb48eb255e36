from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path

import click

from windlass.cli.printing import json_option, print_json, print_result
from windlass.projects import recognise
from windlass.projects.making import KINDS_WITH_TEMPLATES, new_project


@click.command
@click.argument("folder", metavar="[PATH]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--kind", type=click.Choice(KINDS_WITH_TEMPLATES), default="crew", show_default=True, help="Kind of the project."
)
@json_option
def command(folder: Path, kind: str, *, json_output: bool) -> None:
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
    steps = [f"windlass check {path}", f"windlass dev {path}   # then type the lines that it prints"]
    framework = recognise(folder).preload
    if framework and find_spec(framework) is None:
        steps.insert(0, f"pip install 'windlass[{framework}]'   # {framework} is not installed beside Windlass")
    return steps
