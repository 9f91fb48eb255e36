from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from windlass.errors import ProjectError
from windlass.projects.checks.finding import Finding, Level
from windlass.projects.kinds import Declared, Recognised, kind_of, read
from windlass.projects.options import TABLES, Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "pyproject.toml"
AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)")


def declared_project(path: Path) -> tuple[Recognised | None, list[Finding]]:
    """Returns the recognised project, or None if it can't be recognised, and the findings in its pyproject.toml."""
    try:
        declared = read(path)
    except ProjectError as error:
        return None, [unreadable(error, path.resolve())]
    found = [*wrong_options(declared), *passed_over(declared)]
    try:
        return kind_of(declared), found
    except ProjectError as error:
        code = "several_crews" if " has more than one " in error.message else "no_crew"
        return None, [*found, of_pyproject(code, error, declared.root)]


def unreadable(error: ProjectError, root: Path) -> Finding:
    there = (root / FILE).is_file()
    place = AT_LINE.search(error.message)
    if place is None:
        return of_pyproject("pyproject", error, root, there=there)
    words = AT_LINE.sub(rf" (column {place[2]})", error.message)
    return of_pyproject("pyproject", ProjectError(words, "Correct it there."), root, line=int(place[1]))


def of_pyproject(code: str, error: ProjectError, root: Path, *, there: bool = True, line: int | None = None) -> Finding:
    message = error.message.removeprefix(f"{root / FILE}: ").replace(f"{root / FILE}", FILE)
    return Finding(code, Level.ERROR, message, FILE if there else None, line, error.hint)


def wrong_options(declared: Declared) -> Iterator[Finding]:
    """Yields a finding for each wrong option, or else one for a wrong combination.

    Each option is parsed alone, because `Options.parse` raises only the first error.
    """
    table, file = declared.table("tool", "windlass"), declared.root / FILE
    found = False
    for table_name, key, alone in one_by_one(table):
        if error := fault_of(alone, file):
            found = True
            yield of_pyproject("option", error, declared.root, line=line_of(file, table_name, key))
    if not found and (error := fault_of(table, file)):
        yield of_pyproject("option", error, declared.root)


def passed_over(declared: Declared) -> Iterator[Finding]:
    """Yields a warning for each option that names an entrypoint, except the first. Only the first one is used."""
    for choice, _ in declared.choices[1:]:
        first = declared.choices[0][0]
        message = f"in [tool.windlass], {choice} counts for nothing beside {first}."
        line = line_of(declared.root / FILE, "tool.windlass", choice)
        yield Finding("option", Level.WARNING, message, FILE, line, f"Take one of them out: {first} or {choice}.")


def one_by_one(table: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields for each option its table, its name, and the options with this one alone."""
    for key, value in table.items():
        if key in TABLES and isinstance(value, dict):
            for name, inner in value.items():
                yield f"tool.windlass.{key}", name, {key: {name: inner}}
        else:
            yield "tool.windlass", key, {key: value}


def fault_of(options: dict[str, Any], file: Path) -> ProjectError | None:
    try:
        Options.parse(options, file)
    except ProjectError as error:
        return error if error.hint else ProjectError(error.message, "Correct it, or take it out.")
    return None


def line_of(file: Path, table: str, key: str) -> int | None:
    """Returns the line of a key below its table's header. Returns None if it is written in another form."""
    current = ""
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*]", line):
            current = header[1].replace('"', "").replace(" ", "")
        elif current == table and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*[.=]""", line):
            return number
        if current == f"{table}.{key}":
            return number
    return None
