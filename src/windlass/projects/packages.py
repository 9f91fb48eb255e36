"""Finds the file of a project that names its packages, and how uv installs them (docs/concepts/interpreters.md)."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.errors import ProjectError
from windlass.projects import poetry
from windlass.projects.interpreter import NEWEST, OLDEST
from windlass.projects.requirement_lines import RequirementLines
from windlass.projects.uv_inputs import (
    PYPROJECT,
    REQUIREMENTS,
    UV_LOCK,
    Inputs,
    Settings,
    of_poetry,
    of_pyproject,
    of_requirements,
    of_uv_lock,
    path_of,
    places_of,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POETRY_LOCK, UV_TOML = "poetry.lock", "uv.toml"
FILES = (PYPROJECT, UV_LOCK, POETRY_LOCK, UV_TOML)
LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages of a project, as one of its files names them.

    `python` are the constraints on the Python. `inputs` is what uv gets for them, None if that depends on the
    interpreter too: then `poetry` has the contents of poetry's files.
    """

    root: Path
    file: str
    python: list[str]
    settings: Settings
    inputs: Inputs | None = None
    poetry: PoetryFiles | None = None
    digest: str = field(default="", repr=False)

    def inputs_on(self, markers: Mapping[str, str]) -> Inputs:
        """Returns what uv gets on an interpreter with these environment markers. Raises ProjectError."""
        if self.poetry is None:
            assert self.inputs is not None  # noqa: S101 - one of them is there
            return self.inputs
        found = of_poetry(
            self.poetry.pins(self.root, markers), self.root, self.settings, locked=self.poetry.lock is not None
        )
        if found.is_own and not self.is_own:
            raise ProjectError(
                f"{self.file} names a package in a way that can't be read: {', '.join(found.own)[:200]}.", "Correct it."
            )
        return found

    @property
    def is_own(self) -> bool:
        """Whether other files of the project than those that name packages decide on the packages."""
        if self.poetry is not None:
            return bool(self.poetry.own or self.settings.own or self.settings.indexes)
        return self.inputs is not None and self.inputs.is_own

    @property
    def own(self) -> Sequence[str]:
        """The files and folders of which packages are made."""
        return self.poetry.own if self.poetry is not None else self.inputs.own if self.inputs is not None else ()

    def outside(self) -> str | None:
        """Returns a file or folder that is made into a package and is not in the project, if there is one."""
        whole = self.root.resolve()
        return next((place for place in self.own if not path_of(whole, place).is_relative_to(whole)), None)

    @property
    def content(self) -> object:
        """All that decides on what uv gets."""
        given = [self.inputs.files, self.inputs.arguments] if self.inputs is not None else None
        return [self.file, given, self.poetry and self.poetry.content, self.settings.values]

    def runs_on(self, version: str) -> bool:
        return all(poetry.satisfies(version, constraint) for constraint in self.python)

    @property
    def any_python(self) -> str:
        """The versions of Python that fit, as uv takes them."""
        own = map(poetry.newest_range, self.python)
        return ",".join([f">={OLDEST[0]}.{OLDEST[1]}", f"<{NEWEST[0]}.{NEWEST[1] + 1}", *filter(None, own)])

    @property
    def wanted_python(self) -> str:
        return " and ".join(dict.fromkeys(self.python)) or f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


def packages_of(root: Path) -> Packages:
    """Returns the packages by the first of uv.lock, poetry.lock, pyproject.toml and requirements.txt that names some.

    Raises ProjectError when no file does, or when the file can't be read.
    """
    if found := packages_in(root):
        return found
    raise ProjectError(
        f"No file in {root} names the packages of the project: there is no {UV_LOCK}, {POETRY_LOCK} or {REQUIREMENTS}, "
        f"and no dependencies in a {PYPROJECT}.",
        f"Write a {REQUIREMENTS} with a package on each line. Without an environment the project runs on Windlass's "
        "own interpreter.",
    )


def packages_in(root: Path) -> Packages | None:
    """Returns the same as `packages_of`, but None when no file names packages."""
    document = document_of(root / PYPROJECT)
    project, of_poetry = table(document, "project"), table(document, "tool", "poetry")
    own = [text for text in (project.get("requires-python"), table(of_poetry, "dependencies").get("python")) if text]
    python, settings = [str(one) for one in own], Settings.of(root, document_of(root / UV_TOML), document)
    found = partial(Packages, root, settings=settings, digest=digest_of(root))
    if (root / UV_LOCK).is_file():
        lock = document_of(root / UV_LOCK)
        locked = [str(lock["requires-python"])] if lock.get("requires-python") else []
        return found(UV_LOCK, [*python, *locked], inputs=of_uv_lock(root, lock, document, settings))
    if (root / POETRY_LOCK).is_file():
        files = PoetryFiles(document_of(root / POETRY_LOCK), document)
        constraint = str(table(files.lock or {}, "metadata").get("python-versions", "*"))
        return found(POETRY_LOCK, [*python, constraint], poetry=files)
    if of_poetry.get("dependencies") and not project.get("dependencies"):
        return found(PYPROJECT, python, poetry=PoetryFiles(None, document))
    if project.get("dependencies") or "dependencies" in list_in(project, "dynamic"):
        return found(PYPROJECT, python, inputs=of_pyproject(root, document, settings))
    if (root / REQUIREMENTS).is_file():
        return found(REQUIREMENTS, python, inputs=of_requirements(root, settings))
    return None


@dataclass(frozen=True, slots=True)
class PoetryFiles:
    """The contents of a poetry.lock, which may be missing, and of the pyproject.toml beside it."""

    lock: Mapping[str, Any] | None
    document: Mapping[str, Any]

    def pins(self, root: Path, markers: Mapping[str, str]) -> list[str]:
        if self.lock is None:
            return poetry.requirements(self.document, markers)
        lock = poetry.Lock.of(root / POETRY_LOCK, self.lock)
        return lock.pins(poetry.own_dependencies(self.document, markers), markers)

    @property
    def content(self) -> object:
        """All of these files from which pins are made."""
        return [self.lock, table(self.document, "tool", "poetry").get("dependencies"), self._dependencies]

    @property
    def own(self) -> list[str]:
        """The files and folders of which packages are made."""
        lines = RequirementLines(Path("/"))
        for text in self._dependencies:
            lines.requirement(text, f"dependencies of {PYPROJECT}")
        return [*lines.own, *places_of(self.content)]

    @property
    def _dependencies(self) -> list[Any]:
        return list_in(table(self.document, "project"), "dependencies")


def list_in(values: Mapping[str, Any], name: str) -> list[Any]:
    found = values.get(name)
    return found if isinstance(found, list) else []


def document_of(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > LARGEST:
            raise ProjectError(
                f"{file} is larger than {LARGEST >> 20} MB.", "Check that it is the file that it should be."
            )
        return tomllib.loads(file.read_text("utf-8").removeprefix("\ufeff"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise ProjectError(
            f"{file} can't be read: {error}.", "Correct the TOML of this line, or make the file again."
        ) from None
    except OSError as error:
        raise ProjectError(f"{file} can't be read: {error.strerror}.") from None


def digest_of(root: Path) -> str:
    """Returns a digest of the files that name packages. An environment is made again when it changes."""
    found = hashlib.sha256()
    for path in sorted({root / name for name in FILES} | set(root.glob("*requirements*.txt"))):
        if path.is_file() and path.stat().st_size <= LARGEST:
            found.update(f"{path.name}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def explained(printed: list[str], packages: Packages) -> ProjectError:
    """Returns the error for what uv printed when it failed: its reason in a few lines, and what to do."""
    begins = next((number for number, line in enumerate(printed) if BEGINS.match(line)), 0)
    lines = [DRAWN.sub("", line).strip() for line in printed[begins:]]
    reason = " ".join(line for line in lines if line and not line.startswith("hint:"))[:LONGEST_REASON]
    hint = next((hint for pattern, hint in REMEDIES.items() if re.search(pattern, reason, re.IGNORECASE)), OTHERWISE)
    return ProjectError(
        f"the packages in {packages.file} can't be installed: {reason or 'uv printed no reason.'}",
        hint.format(file=packages.file),
    )


BEGINS, DRAWN = re.compile(r"\s*(error|\u00d7)"), re.compile(r"^[\s\u00d7\u2570\u2500\u25b6\u2502\u251c]+")
"""The start of uv's reason, and the lines that uv draws before its parts."""
LONGEST_REASON = 900
OTHERWISE = "Correct {file}, then run the command again."
REMEDIES = {
    r"inspect python interpreter": (
        "That Python can't be started. Repair it, or choose another one with --python or .python-version."
    ),
    r"hash mismatch": "The package in the index is not that of {file}. Make the lock again if you trust the index.",
    r"no solution found|unsatisfiable": (
        "Change the versions in {file} that exclude each other, or choose another Python with --python or "
        ".python-version."
    ),
    r"failed to build|build backend": (
        "The package has no wheel for this Python. Choose another one with --python or .python-version, or install "
        "what its build needs."
    ),
    r"dns|connect|timed? ?out|network|certificate": "Check the network, and the settings of uv for the package index.",
    r"no space left": "Make room on the disk.",
    r"not found in the (package )?registry|no version": "Check the names and versions in {file}.",
    r"requires-python|python requirement": "Choose another Python with --python or .python-version.",
}
"""What to do by the reason of uv."""
