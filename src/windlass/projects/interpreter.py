"""Chooses the interpreter of a project, and decides which projects a worker may run (docs/concepts/interpreters.md)."""

# See docs/decisions/security.md#a-worker-finds-the-interpreter-and-checks-its-owner

from __future__ import annotations

import os
import pwd
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import ROOT
from windlass.errors import ProjectError, SettingsError
from windlass.foreign_files import read_file
from windlass_child.process.error_text import setup_command

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

OLDEST, NEWEST = (3, 10), (3, 13)
"""The versions of Python that crews run on."""
ENVIRONMENTS = (".venv", "venv")
CONFIGURATION = "pyvenv.cfg"
VERSION = re.compile(r"\d+(?:\.\d+){0,2}")
LARGEST_VERSION = 1 << 10
PREFERRED = ".python-version"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter, and the reason why it was chosen."""

    path: Path
    reason: str

    def __str__(self) -> str:
        version = version_of(self.path)
        return f"{self.path}{f' (Python {version[0]}.{version[1]})' if version else ''}, {self.reason}"

    def supported(self, project: Path) -> Interpreter:
        """Returns the interpreter. Raises ProjectError when its version is known and crews don't run on it."""
        version = version_of(self.path)
        if version is None or self.path == Path(sys.executable) or OLDEST <= version <= NEWEST:
            return self
        raise ProjectError(
            f"{self.path}, {self.reason}, is Python {version[0]}.{version[1]}, and crews run on Python "
            f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}.",
            f"Name another one with --python, or make the project's environment on one: {setup_command(project)}",
        )


@dataclass(frozen=True, slots=True)
class Interpreters:
    """Chooses the interpreter of each project.

    `given` is the interpreter of --python. `active` is the environment that $VIRTUAL_ENV names.
    """

    given: Path | None = None
    active: Path | None = None

    @classmethod
    def of_command(cls, python: str | None, virtual_env: str | None) -> Interpreters:
        """Takes the texts of --python and $VIRTUAL_ENV. Raises ProjectError when --python names no interpreter."""
        active = Path(virtual_env) if virtual_env else None
        is_ours = active is not None and active.resolve() == Path(sys.prefix).resolve()
        given = python_named(python, Path.cwd(), "--python") if python else None
        return cls(given, None if is_ours else active)

    def of(self, project: Path, declared: str | None = None) -> Interpreter:
        """Returns the interpreter of the project. `declared` is its option `python`.

        Raises ProjectError when the interpreter that comes first can't be started.
        """
        root = project.resolve()
        if self.given is not None:
            return Interpreter(self.given, "named by --python")
        if declared is not None:
            return Interpreter(python_named(declared, root, "[tool.windlass] python"), "[tool.windlass] python")
        for name in ENVIRONMENTS:
            if is_environment(root / name):
                return Interpreter(started_in(root / name, root), f"the project's {name}")
        if self.active is not None:
            return Interpreter(python_in(self.active, "Unset VIRTUAL_ENV, or activate another."), "$VIRTUAL_ENV")
        return Interpreter(Path(sys.executable), "Windlass's own, as the project has no .venv")


def is_environment(folder: Path) -> bool:
    """Returns whether this is an environment, maybe a broken one. A folder `venv` may also be code of the project."""
    return os.path.lexists(folder) and (folder.name == ".venv" or os.path.lexists(folder / CONFIGURATION))


def started_in(environment: Path, project: Path) -> Path:
    return python_in(
        environment, f"Make it again: {setup_command(project)}. Or remove it, to run on Windlass's own interpreter."
    )


def python_in(environment: Path, hint: str) -> Path:
    python = environment / "bin" / "python"
    if python.exists():
        return python
    fault = f"its link leads to {python.readlink()}, which is missing" if python.is_symlink() else "it is missing"
    raise ProjectError(f"the environment {environment} has no Python that can be started: bin/python, {fault}.", hint)


def python_named(named: str, folder: Path, by: str) -> Path:
    """Returns the interpreter that a path, relative to `folder`, or a version names. Raises ProjectError."""
    if VERSION.fullmatch(named):
        if found := next(with_version(named), None):
            return found
        raise ProjectError(
            f"{by} is {named}, and no Python {named} was found on this machine.",
            f"There are: {', '.join(versions_here()) or 'none'}. Name one, or install Python {named}.",
        )
    path = folder / Path(named).expanduser()
    python = path / "bin" / "python" if path.is_dir() else path
    if not python.is_file() or not os.access(python, os.X_OK):
        raise ProjectError(
            f"{by} is {named}, and {python} is not an executable file.",
            "Name an interpreter, the folder of an environment, or a version such as 3.12.",
        )
    return Path(os.path.abspath(python))  # noqa: PTH100 - `resolve` would leave the environment


def with_version(version: str) -> Iterator[Path]:
    """Yields the interpreters of this version, such as "3.12", on this machine."""
    wanted = tuple(map(int, version.split(".")))
    for python in on_this_machine():
        found = version_of(python)
        exact = re.search(rf"[/-]{re.escape(version)}[/-]", str(python)) is not None
        if found and (exact if len(wanted) > len(found) else found[: len(wanted)] == wanted):
            yield python


def on_this_machine() -> list[Path]:
    """Returns the interpreters of this machine that crews can run on: Windlass's own first, then those on PATH.

    pyenv's shims are left out, because they start nothing unless pyenv has chosen their version.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.expanduser fails for a user without a home
    folders = [Path(folder) for folder in os.get_exec_path() if folder and not folder.endswith("/shims")]
    kept = [home / ".pyenv" / "versions", home / ".local" / "share" / "uv" / "python"]
    folders += [bins for place in kept for bins in sorted(place.glob("*/bin"), reverse=True)]
    own = Path(os.path.realpath(sys.executable))
    named = [folder / f"python3.{minor}" for folder in folders for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    found = [path for path in [own, *named] if os.path.isfile(path) and os.access(path, os.X_OK)]  # noqa: PTH113 - `is_file` fails in a closed folder
    once: dict[str, Path] = {}
    for path in found:
        once.setdefault(os.path.realpath(path), path)
    return list(once.values())


def versions_here() -> list[str]:
    """Returns the versions of the interpreters of this machine. Their paths are not for people who deploy."""
    return list(dict.fromkeys(f"{found[0]}.{found[1]}" for one in on_this_machine() if (found := version_of(one))))


def version_of(python: Path) -> tuple[int, int] | None:
    """Returns the version of an interpreter without starting it, from its environment or its name. None if neither
    has it.
    """
    if found := re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", configuration_of(python), re.MULTILINE):
        return int(found[1]), int(found[2])
    named = re.search(r"python(\d)\.(\d+)$", os.path.realpath(python))
    return (int(named[1]), int(named[2])) if named else None


def configuration_of(python: Path) -> str:
    """Returns the text of the environment's pyvenv.cfg. It opens no pipe, which would block."""
    try:
        descriptor = os.open(python.parent.parent / CONFIGURATION, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace") if stat.S_ISREG(os.fstat(descriptor).st_mode) else ""
    except OSError:
        return ""


def preferred_python(root: Path) -> str | None:
    """Returns the version in the first line of the project's `.python-version`. None if it names something else, such
    as a program, or can't be read.
    """
    try:
        text = read_file(root, PREFERRED, LARGEST_VERSION) or b""
    except ProjectError:
        return None
    named = text.decode("utf-8", "replace").partition("\n")[0].strip()
    return named if VERSION.fullmatch(named) else None


@dataclass(frozen=True, slots=True)
class TrustedProjects:
    """The folders from which a worker runs code.

    A kickoff names a folder, and everyone with write access to the database can write a kickoff. So the folder must
    belong to root, to the server's user or to one of `owners`. The folders that were `given` at the start are
    trusted, and so are their owners.
    """

    owners: frozenset[int]
    given: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, owners: Collection[str], given: Collection[Path] = ()) -> TrustedProjects:
        """Takes names or numbers of system users. Raises SettingsError for a user that does not exist."""
        theirs = {number_of(owner) for owner in owners} | {path.stat().st_uid for path in given}
        return cls(frozenset({ROOT, os.geteuid(), *theirs}), frozenset(path.resolve() for path in given))

    def checked(self, root: Path) -> Path:
        """Returns the folder with its links resolved. Raises ProjectError if it is not trusted."""
        try:
            place = root.resolve(strict=True)
            if place in self.given:
                return place
            folders = [place, *place.parents] if os.geteuid() == ROOT else [place]
            for folder in folders:
                if fault := self._fault(folder.lstat()):
                    raise ProjectError(
                        f"the project {root} is not run: {folder} {fault}.",
                        "A worker runs projects of root, of its own user and of the users in WINDLASS_PROJECT_OWNERS, "
                        "in folders that not everyone can write to.",
                    )
        except OSError as error:
            raise ProjectError(f"{root} can't be read: {error.strerror}.", "Check that the project exists.") from error
        return place

    def _fault(self, found: os.stat_result) -> str:
        if not stat.S_ISDIR(found.st_mode):
            return "is no folder"
        if found.st_uid not in self.owners:
            return f"belongs to another user (number {found.st_uid})"
        # in a sticky folder, such as /tmp, no user can replace the files of another user
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return "can be written by everyone"
        return ""


def number_of(user: str) -> int:
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise SettingsError(f"There is no user {user}.", "Correct WINDLASS_PROJECT_OWNERS.") from None
