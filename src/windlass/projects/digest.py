"""What a project is made of: in which state its files are, and which of them changed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from fnmatch import translate
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

IGNORED_FOLDERS = {
    "__pycache__", "build", "dist", "env", "htmlcov", "node_modules", "venv",
}  # fmt: skip
"""And all whose names begin with a dot."""

DATABASES = tuple(
    f"{kind}{part}" for kind in (".db", ".sqlite", ".sqlite3") for part in ("", "-journal", "-wal", "-shm")
)
IGNORED_ENDINGS = (".pyc", ".pyo", ".log", ".pid", ".tmp", ".egg-info", "~", *DATABASES)
CODE = (".py", ".pyi", ".toml", ".yaml", ".yml", ".jsonc")
"""Endings of what people write, and programs hardly ever."""

VARIABLES = ".env"
PROJECT_FILE = "pyproject.toml"

WHOLE = 8 * 1024 * 1024
"""Bytes; of a larger file only size and time of change count."""

Glance = dict[str, tuple[int, int, int]]
"""Size, time of change and inode of each file, by its path in the project."""


def digest(project: Path, ignore: Collection[str] = ()) -> str:
    """SHA-256 of what the project's code is made of, as hex: another one means that the project has changed.

    Names and contents of its files count, not what tools and runs leave behind, nor what `ignore` names (patterns of
    paths in the project); nor does .env, which is no code.
    """
    found = hashlib.sha256()
    for name, path in sorted(Files(project, ignore)):
        found.update(f"{name}\0".encode("utf-8", "surrogateescape"))
        found.update(identity(path))
    return found.hexdigest()


def glance(project: Path, ignore: Collection[str] = ()) -> Glance:
    """Changes whenever `digest` does, or .env, and takes far less: nothing is read."""
    found = {name: facts for name, path in Files(project, ignore) if (facts := facts_of(path))}
    if facts := facts_of(os.path.join(project, VARIABLES)):  # noqa: PTH118 - like those of the others
        found[VARIABLES] = facts
    return found


def changes(before: Glance, now: Glance) -> set[str]:
    """Paths of what is new, gone, or another."""
    if before == now:
        return set()
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


class Files:
    """Each file that counts: its path in the project, and where it is.

    A link to a folder is followed, each folder once, unless the project is in that folder; of what is in it only code
    counts, for data are linked because they are large. Any other link to a folder, or to nothing, is like a file.
    """

    def __init__(self, project: Path, ignore: Collection[str]) -> None:
        self._root = os.path.realpath(project)
        self._followed: set[str] = set()
        self._left_out = re.compile("|".join(translate(pattern.rstrip("/")) for pattern in ignore) or r"(?!)").match

    def __iter__(self) -> Iterator[tuple[str, str]]:
        folders = [(self._root, "", False)]
        while folders:
            folder, prefix, linked = folders.pop()
            for entry in listed(folder):
                name = prefix + entry.name
                if self._is_left_out(entry.name, name):
                    continue
                if self._is_folder(entry):
                    folders.append((entry.path, f"{name}/", linked or entry.is_symlink()))
                elif (entry.is_symlink() or entry.is_file()) and (not linked or name.endswith(CODE)):
                    yield name, entry.path

    def _is_left_out(self, base: str, name: str) -> bool:
        if base.startswith(".") or base.endswith(IGNORED_ENDINGS):
            return True
        return self._left_out(name) is not None and name != PROJECT_FILE

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        """One whose files count."""
        if entry.name in IGNORED_FOLDERS:
            return False
        if not entry.is_symlink():
            return entry.is_dir()
        if not is_folder(entry):
            return False
        place = os.path.realpath(entry.path)
        if place in self._followed or Path(self._root).is_relative_to(place):
            return False
        self._followed.add(place)
        return True


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, say
        return False


def listed(folder: str) -> list[os.DirEntry[str]]:
    """In order of their names; none of a folder that went meanwhile, or is closed to us."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def facts_of(path: str) -> tuple[int, int, int] | None:
    """None for what went meanwhile."""
    facts = regular(path)
    if facts is None:
        try:
            facts = os.lstat(path)
        except OSError:
            return None
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def identity(path: str) -> bytes:
    """32 bytes for the contents of a file; for a link to anything else, or to nothing, of where it leads."""
    facts = regular(path)
    if facts is None:
        return hashlib.sha256(target_of(path)).digest()
    if facts.st_size > WHOLE:
        return hashlib.sha256(f"{facts.st_size} {facts.st_mtime_ns}".encode()).digest()
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - see below
            return hashlib.sha256(file.read()).digest()
    except OSError as error:
        return hashlib.sha256(f"{error.errno}".encode()).digest()


def regular(path: str) -> os.stat_result | None:
    """None for what is no regular file, nor a link to one: a pipe must not be waited for."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - a Path for each of many thousand files takes longer than all else
    except OSError:
        return None
    return facts if stat.S_ISREG(facts.st_mode) else None


def target_of(link: str) -> bytes:
    try:
        return os.fsencode(os.readlink(link))  # noqa: PTH115 - see above
    except OSError:  # it went meanwhile
        return b""
