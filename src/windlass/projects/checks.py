"""Checks the pyproject.toml of a project, and recognises the project. It runs none of the project's code."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windlass.errors import ProjectError
from windlass.projects.findings import Finding, Level
from windlass.projects.kept_data import kept_data
from windlass.projects.kinds import (
    Declared,
    Recognised,
    Unrecognised,
    chosen,
    entrypoint_options,
    kind_of,
    options_of,
    read,
    target_of,
)
from windlass.projects.kinds.declared import FILE
from windlass.projects.options import TABLES, Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADER = re.compile(r"\s*\[([^\[\]]+)]")
AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)")
"""The place in a message of tomllib."""


def declared_project(path: Path, entrypoint: str | None = None) -> tuple[Recognised | None, list[Finding]]:
    """Returns the recognised project, or None if it can't be recognised, and the findings in its pyproject.toml.

    `entrypoint` is as of `kinds.recognise`.
    """
    try:
        declared = read(path)
    except ProjectError as error:
        return None, [unreadable(error, path.resolve())]
    if entrypoint:
        declared = replace(declared, target=target_of(entrypoint))
    found = [*wrong_options(declared), *passed_over(declared)]
    try:
        recognised, options = kind_of(declared), usable_options(declared)
        kept = kept_data(declared.code) if options.reuse > 1 else []
        return replace(recognised, options=options), [*found, *kept]
    except Unrecognised as error:
        return None, [*found, of_pyproject(error.code, error, declared.root)]


def usable_options(declared: Declared) -> Options:
    """Returns the options, or the default ones if one of them is wrong, which is a finding."""
    try:
        return options_of(declared)
    except ProjectError:
        return Options()


def unreadable(error: ProjectError, root: Path) -> Finding:
    place = AT_LINE.search(error.message)
    if place is None:
        return of_pyproject("pyproject", error, root)
    words = AT_LINE.sub(rf" (column {place[2]})", error.message)
    return of_pyproject("pyproject", ProjectError(words, "Correct the TOML of this line."), root, line=int(place[1]))


def of_pyproject(code: str, error: ProjectError, root: Path, *, line: int | None = None) -> Finding:
    file = root / FILE
    message = error.message.removeprefix(f"{file}: ").replace(str(file), FILE)
    return Finding(code, Level.ERROR, message, FILE if file.is_file() else None, line, error.hint)


def wrong_options(declared: Declared) -> Iterator[Finding]:
    """Yields a finding for each wrong option, or else one for a wrong combination.

    Each option is parsed alone, because `Options.parse` raises only the first error.
    """
    table, file = declared.table("tool", "windlass"), declared.file
    found = False
    for table_name, key, alone in one_by_one(table):
        if error := fault_of(alone, file):
            found = True
            yield of_pyproject("option", error, declared.root, line=line_of(file, table_name, key))
    if not found and (error := fault_of(table, file)):
        yield of_pyproject("option", error, declared.root)


def passed_over(declared: Declared) -> Iterator[Finding]:
    """Yields a warning for each option that names an entrypoint, except the first. Only the first one is used."""
    options = [option.name for _, option, _ in chosen(declared)]
    for name in options[1:]:
        message = f"in [tool.windlass], {name} has no effect beside {options[0]}."
        line = line_of(declared.file, "tool.windlass", name)
        yield Finding("option", Level.WARNING, message, FILE, line, f"Remove one of them: {options[0]} or {name}.")


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
        Options.parse(options, file, entrypoint_options())
    except ProjectError as error:
        return error if error.hint else ProjectError(error.message, "Correct it, or take it out.")
    return None


def line_of(file: Path, table: str, key: str) -> int | None:
    """Returns the line of a key below its table's header. Returns None if it is written in another form."""
    current = ""
    for number, line in enumerate(file.read_text("utf-8").removeprefix("\ufeff").splitlines(), 1):
        if header := HEADER.match(line):
            current = header[1].replace('"', "").replace(" ", "").strip()
        elif current == table and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*[.=]""", line):
            return number
        if current == f"{table}.{key}":
            return number
    return None
