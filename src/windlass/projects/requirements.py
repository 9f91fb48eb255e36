"""Reads the versions that a project wants, for `windlass check`: of Python and of its packages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier
from packaging.version import InvalidVersion

from windlass.errors import ProjectError
from windlass.projects import poetry
from windlass.projects.packages import document_of
from windlass.projects.uv_inputs import PYPROJECT, REQUIREMENTS, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PYTHON = "python"
LARGEST = 1 << 20
MOST = 500

Wanted = dict[str, Any]
"""A requirement: `name`, `specifier` of PEP 440, the text as `shown`, `file` and `line`."""


def wanted_versions(root: Path) -> list[Wanted]:
    """Returns the requirements that `[project] dependencies` does not have. Leaves out those that can't be read."""
    try:
        document = document_of(root / PYPROJECT)
    except ProjectError:  # another check reports the file
        return []
    found = [*of_project(document), *of_poetry(document)]
    if not table(document, "project").get("dependencies") and not table(document, "tool", "poetry", "dependencies"):
        found += of_requirements(root / REQUIREMENTS)
    text = text_of(root / PYPROJECT)
    return [one if one["line"] else one | {"line": line_of(text, one)} for one in found[:MOST]]


def of_project(document: dict[str, Any]) -> Iterator[Wanted]:
    wanted = table(document, "project").get("requires-python")
    if isinstance(wanted, str):
        yield from requirement(PYTHON, wanted, f'requires-python = "{wanted}"', "requires-python")


def of_poetry(document: dict[str, Any]) -> Iterator[Wanted]:
    for name, value in table(document, "tool", "poetry", "dependencies").items():
        constraint = value.get("version") if isinstance(value, dict) else value
        optional = isinstance(value, dict) and value.get("optional")
        if isinstance(constraint, str) and not optional:
            yield from requirement(name, constraint, f'{name} = "{constraint}"', name)


def of_requirements(file: Path) -> Iterator[Wanted]:
    for number, line in enumerate(text_of(file).splitlines(), 1):
        text = line.partition(" #")[0].strip()
        try:
            read = Requirement(text)
        except InvalidRequirement:  # also an option of pip, a comment and an empty line
            continue
        if read.marker is None or read.marker.evaluate():
            specifier = str(read.specifier)
            yield {"name": read.name, "specifier": specifier, "shown": text, "file": REQUIREMENTS, "line": number}


def requirement(name: str, constraint: str, shown: str, key: str) -> Iterator[Wanted]:
    """Yields a requirement, unless its constraint has alternatives or can't be read."""
    try:
        alternatives = poetry.specifiers(constraint)
    except (InvalidSpecifier, InvalidVersion, ValueError):
        return
    if len(alternatives) == 1:
        specifier = str(alternatives[0])
        yield {"name": name, "specifier": specifier, "shown": shown, "file": PYPROJECT, "line": None, "key": key}


def line_of(text: str, one: Wanted) -> int | None:
    key = re.compile(rf"""\s*["']?{re.escape(one["key"])}["']?\s*=""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if key.match(line)), None)


def text_of(file: Path) -> str:
    try:
        if not file.is_file() or file.stat().st_size > LARGEST:
            return ""
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
