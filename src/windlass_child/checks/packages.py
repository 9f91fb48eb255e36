"""Compares the project's declared dependencies with the packages that are installed in its interpreter."""

from __future__ import annotations

import platform
import re
import sys
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from windlass_child.masking.server_paths import PYTHON, is_deployed
from windlass_child.process.error_text import in_interpreter, interpreter, setup_command
from windlass_child.project_files.found import Found, warning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "pyproject.toml"
TOML = "tomllib" if sys.version_info >= (3, 11) else "tomli"
"""The reader of TOML. Older Pythons have none, and the frameworks install this one there."""

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def findings(root: Path) -> Iterator[Found]:
    """Yields warnings, because a project that can be loaded may never need the package.

    A package that the code imports at load is reported by the failed import.
    """
    text = (root / FILE).read_text("utf-8").removeprefix("\ufeff") if (root / FILE).is_file() else ""
    reader = toml()
    if not text or reader is None:
        return
    hint, place = how_to_install(root), in_interpreter(root)
    for wanted in dependencies(reader.loads(text)):
        if (name := NAME.match(wanted)) is None or not asked_for(wanted):
            continue
        line = next((number for number, line in enumerate(text.splitlines(), 1) if wanted in line), None)
        if (found := installed(name[0])) is None:
            message = f"the package {name[0]!r} is not installed{place}."
            yield warning("missing_package", message, FILE, line, hint)
        elif not fits(wanted, found):
            message = f"{name[0]} {found} is installed{place}, and the project wants {wanted!r}."
            yield warning("package_version", message, FILE, line, hint)


def how_to_install(root: Path) -> str:
    if is_deployed(root):
        return "Update the project's lock file, if it has one, and deploy the project again."
    return f"Install the project's packages into an environment of its own: {setup_command(root)}"


def toml() -> Any:
    """Returns the reader of TOML, or None on a Python 3.10 whose environment has none."""
    try:
        return import_module(TOML)
    except ImportError:
        return None


def of_wanted(root: Path, wanted: list[dict[str, Any]]) -> Iterator[Found]:
    """Yields warnings for requirements that the server has read: those of poetry, of requirements.txt and on Python."""
    hint, where = how_to_install(root), in_interpreter(root)
    for one in wanted:
        place = one["file"], one["line"]
        if one["name"] == "python":
            version = platform.python_version()
            if not within(one["specifier"], version) and not within(one["specifier"], version.rpartition(".")[0]):
                python = PYTHON if is_deployed(root) else interpreter()
                message = f"{python} is Python {version}, and the project wants {one['shown']}."
                yield warning("python_version", message, *place, hint)
        elif (found := installed(one["name"])) is None:
            message = f"the package {one['name']!r} is not installed{where}."
            yield warning("missing_package", message, *place, hint)
        elif not within(one["specifier"], found):
            message = f"{one['name']} {found} is installed{where}, and the project wants {one['shown']}."
            yield warning("package_version", message, *place, hint)


def within(specifier: str, version: str) -> bool:
    """Returns whether a version fits. Without `packaging`, every version does."""
    try:
        return bool(import_module("packaging.specifiers").SpecifierSet(specifier).contains(version, prereleases=True))
    except (ImportError, ValueError):
        return True


def dependencies(declared: dict[str, Any]) -> list[str]:
    project = declared.get("project")
    named = project.get("dependencies") if isinstance(project, dict) else None
    return [one for one in named if isinstance(one, str)] if isinstance(named, list) else []


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirement(wanted: str) -> Any:
    """Parses a requirement. Returns None if `packaging` is not installed, or if the text is no requirement."""
    try:
        return import_module("packaging.requirements").Requirement(wanted)
    except (ImportError, ValueError):
        return None


def asked_for(wanted: str) -> bool:
    """Returns whether the requirement is for this machine and this Python. One with an unreadable marker is ignored."""
    read = requirement(wanted)
    return ";" not in wanted if read is None else read.marker is None or bool(read.marker.evaluate())


def fits(wanted: str, version: str) -> bool:
    read = requirement(wanted)
    return read is None or bool(read.specifier.contains(version, prereleases=True))
