"""Finds the file of a project that names its packages, and how uv installs them (docs/interpreters.md)."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.errors import ProjectError
from windlass.projects import poetry
from windlass.projects.interpreter import NEWEST, OLDEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PYPROJECT, UV_LOCK, POETRY_LOCK, REQUIREMENTS = "pyproject.toml", "uv.lock", "poetry.lock", "requirements.txt"
FILES = (PYPROJECT, UV_LOCK, POETRY_LOCK)
LARGEST = 64 << 20
PINS = "pins.txt"
SYNC = ("sync", "--frozen", "--no-dev", "--no-install-project")


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages of a project, as one of its files names them.

    `python` are the constraints on the Python. `install` are the arguments of uv that install the packages. With `pins`
    they install from a file PINS whose lines `pins` returns for the environment markers of an interpreter.
    """

    file: str
    python: list[str]
    install: tuple[str, ...]
    pins: Callable[[Mapping[str, str]], list[str]] | None = None
    digest: str = field(default="", repr=False)

    def runs_on(self, version: str) -> bool:
        return all(poetry.satisfies(version, constraint) for constraint in self.python)

    @property
    def any_python(self) -> str:
        """The versions of Python that fit, as uv takes them."""
        own = map(poetry.newest_range, self.python)
        return ",".join([f">={OLDEST[0]}.{OLDEST[1]}", f"<{NEWEST[0]}.{NEWEST[1] + 1}", *filter(None, own)])

    @property
    def wanted_python(self) -> str:
        return " and ".join(self.python) or f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


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
    python, digest = [str(one) for one in own], digest_of(root)
    if (root / UV_LOCK).is_file():
        locked = document_of(root / UV_LOCK).get("requires-python")
        return Packages(UV_LOCK, [*python, *([str(locked)] if locked else [])], SYNC, None, digest)
    if (root / POETRY_LOCK).is_file():
        lock = poetry.Lock.of(root / POETRY_LOCK, document_of(root / POETRY_LOCK))

        def pins(environment: Mapping[str, str]) -> list[str]:
            return lock.pins(poetry.own_dependencies(document, environment), environment)

        # the lock has all packages, so uv must not look for more
        return Packages(POETRY_LOCK, [*python, lock.python], ("--no-deps", "-r", PINS), pins, digest)
    if of_poetry.get("dependencies") and not project.get("dependencies"):
        return Packages(
            PYPROJECT, python, ("-r", PINS), lambda environment: poetry.requirements(document, environment), digest
        )
    if project.get("dependencies") or "dependencies" in project.get("dynamic", ()):
        return Packages(PYPROJECT, python, ("-r", PYPROJECT), None, digest)
    if (root / REQUIREMENTS).is_file():
        return Packages(REQUIREMENTS, python, ("-r", REQUIREMENTS), None, digest)
    return None


def table(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    found: Any = document
    for name in names:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def document_of(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > LARGEST:
            raise ProjectError(
                f"{file} is larger than {LARGEST >> 20} MB.", "Check that it is the file that it should be."
            )
        return tomllib.loads(file.read_text("utf-8"))
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
    r"hash mismatch": "The package in the index is not that of {file}. Make the lock again if you trust the index.",
    r"no solution found|unsatisfiable": (
        "Change the versions in {file} that exclude each other, or choose another Python with --python."
    ),
    r"failed to build|build backend": (
        "The package has no wheel for this Python. Choose another one with --python, or install what its build needs."
    ),
    r"dns|connect|timed? ?out|network|certificate": "Check the network, and the settings of uv for the package index.",
    r"no space left": "Make room on the disk.",
    r"not found in the (package )?registry|no version": "Check the names and versions in {file}.",
    r"requires-python|python requirement": "Choose another Python with --python.",
}
"""What to do by the reason of uv."""
