"""The table of docs/reference/crewai-versions.md: what each release of crewai can do, as its own process finds out."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from projects_for_tests.driver import value_of
from projects_for_tests.making import function_project
from windlass_child.crewai.capabilities import CAPABILITIES
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from projects_for_tests.driver import DrivenZygote
    from projects_for_tests.environments import Environment

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "crewai-versions.md"
FOUND = os.environ.get("CREWAI_FOUND", "")  # noqa: TID251 - as every_version.py sets it for these tests
"""A file for what was found. Without one, it is compared with the page."""
PAGE_IS_WRITTEN = bool(FOUND)
NAMES = [one.name for one in CAPABILITIES]
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)

Rows = dict[str, tuple[list[str], dict[str, bool]]]
"""By release: the versions of Python that it was tested on, and its capabilities."""

ASK = """
    def run():
        from windlass_child.crewai import capabilities
        return capabilities.found()
"""


def capabilities_of(zygote: DrivenZygote, folder: Path) -> dict[str, bool]:
    project = Project("function", str(function_project(folder / "asking", ASK)), "work:run")
    found: dict[str, bool] = value_of(zygote.run(project, folder).answer())
    return found


def capabilities_on_the_page(version: str) -> dict[str, bool]:
    return rows()[version][1]


def rows() -> Rows:
    found = TABLE.search(PAGE.read_text("utf-8"))
    assert found is not None
    lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in found[0].splitlines() if line][2:]
    return {
        version: (pythons.split(", "), {name: cell == "yes" for name, cell in zip(NAMES, cells, strict=True)})
        for version, pythons, *cells in lines
    }


def note_capabilities(environment: Environment, version: str, found: dict[str, bool]) -> None:
    with Path(FOUND).open("a") as file:
        file.write(json.dumps([environment.name, version, found]) + "\n")


def write(noted: list[tuple[str, str, dict[str, bool]]]) -> None:
    """Adds these rows to the table, in place of those of the same releases. The names are those of environments."""
    by_version: dict[str, list[tuple[str, dict[str, bool]]]] = defaultdict(list)
    for name, version, found in noted:
        by_version[version].append((name.partition("-")[2] or "3.11", found))
    table = rows()
    for version, several in by_version.items():
        before = table.get(version, ([], {}))[0]
        pythons = {python for python, _ in several} | set(before)
        table[version] = (sorted(pythons, key=numbers), several[0][1])
    text = "".join(line(version, *table[version]) for version in sorted(table, key=numbers))
    PAGE.write_text(TABLE.sub(lambda _: head() + text, PAGE.read_text("utf-8")), "utf-8")


def head() -> str:
    names = ["crewai", "Python", *(name.replace("_", " ") for name in NAMES)]
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n"


def line(version: str, pythons: list[str], found: dict[str, bool]) -> str:
    cells = ["yes" if found[name] else "no" for name in NAMES]
    return f"| {' | '.join([version, ', '.join(pythons), *cells])} |\n"


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]
