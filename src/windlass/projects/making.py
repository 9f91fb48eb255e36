"""Makes new projects from templates/KIND. `$name`, `$package` and `$camel` in them come from the folder's name."""

from __future__ import annotations

import keyword
import os
import re
import sys
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from windlass.errors import ProjectError
from windlass.projects.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path

TEMPLATES = files("windlass.projects") / "templates"
KINDS_WITH_TEMPLATES = tuple(kind.name for kind in KINDS if (TEMPLATES / kind.name).is_dir())

TAKEN = sys.stdlib_module_names | {
    "build", "config", "dist", "env", "httpx", "openai", "pydantic", "src", "tests", "tools", "venv", "windlass",
    "windlass_child", "yaml", *KINDS_WITH_TEMPLATES, *(package for kind in KINDS for package in kind.packages),
}  # fmt: skip
"""Names that a project's package must not have.

Such a package would hide the package that is meant, or would not be recognised as the project's. The same applies to
the names of other installed packages.
"""

LONGEST = 60
ENDING = ".tmpl"


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a new project: `package` for its package, `name` for the project, and `camel` for its class."""

    package: str
    name: str
    camel: str

    @classmethod
    def of(cls, folder: str, kind: str) -> Names:
        plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode().lower()
        package = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:LONGEST].strip("_")
        if not package:
            package = f"my_{kind}"
        elif package[0].isdigit():
            package = f"{kind}_{package}"
        elif keyword.iskeyword(package) or package in TAKEN or package in installed():
            package = f"my_{package}"
        camel = "".join(part.capitalize() for part in package.split("_"))
        ending = kind.capitalize()
        return cls(package, package.replace("_", "-"), camel if camel.endswith(ending) else f"{camel}{ending}")


@cache
def installed() -> Collection[str]:
    return packages_distributions().keys()


def new_project(folder: Path, kind: str) -> list[Path]:
    """Writes the files of a new project and returns their paths.

    Raises ProjectError before it writes anything, if a file is in the way.
    """
    wanted = {folder / name: text for name, text in contents(folder.resolve().name, kind).items()}
    if taken := list(in_the_way(folder, wanted)):
        listed = ", ".join(str(path) for path in taken)
        raise ProjectError(
            f"{folder} has files already that would be written, or that are a crew: {listed}.",
            "Nothing is written. Name a new folder.",
        )
    try:
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ProjectError(
            f"{error.filename or folder} can't be written: {error.strerror}.",
            "Name a folder that this user can write to.",
        ) from error
    return list(wanted)


def in_the_way(folder: Path, wanted: dict[Path, str]) -> Iterator[Path]:
    """Yields existing files that would be written or are a crew, and files and broken links in place of a folder."""
    for path in dict.fromkeys([*wanted, *(folder / name for one in KINDS for name in one.files)]):
        if os.path.lexists(path):
            yield path
    above = {parent for path in wanted for parent in path.parents if parent == folder or folder in parent.parents}
    yield from sorted(path for path in above if os.path.lexists(path) and not path.is_dir())


def contents(folder: str, kind: str) -> dict[str, str]:
    """Returns the files of a new project in a folder of this name: path -> text."""
    names = Names.of(folder, kind)
    return {
        path.removesuffix(ENDING).replace("/package/", f"/{names.package}/"): Template(
            source.read_text("utf-8")
        ).substitute(name=names.name, package=names.package, camel=names.camel)
        for path, source in templates(TEMPLATES / kind)
    }


def templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            yield from templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(ENDING):
            yield f"{prefix}{entry.name}", entry
