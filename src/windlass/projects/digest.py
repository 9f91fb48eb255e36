"""Detects changes of a project's files."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from fnmatch import translate
from pathlib import Path
from typing import TYPE_CHECKING

from windlass_child.protocol.working_folder import IGNORED_FOLDERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

DATABASES = tuple(
    f"{kind}{part}" for kind in (".db", ".sqlite", ".sqlite3") for part in ("", "-journal", "-wal", "-shm")
)
IGNORED_ENDINGS = (".pyc", ".pyo", ".log", ".pid", ".tmp", ".egg-info", "~", *DATABASES)
CODE = (".py", ".pyi", ".toml", ".yaml", ".yml", ".jsonc")
"""Endings of files that people write and programs rarely write."""

VARIABLES = ".env"
BESIDE = {VARIABLES, ".venv/pyvenv.cfg", "venv/pyvenv.cfg"}
"""Files that are no part of a version, and whose change has effects: the variables, and the environment."""
PROJECT_FILE = "pyproject.toml"

WHOLE = 8 * 1024 * 1024
"""The size limit, in bytes, up to which contents are read. Of a larger file only size and modification time count."""

Snapshot = dict[str, tuple[int, int, int]]
"""The size, modification time and inode of each file, by its path in the project."""

Folders = dict[str, int]
"""The inode of each folder with files that count, by its path. A folder that replaces another has another inode."""


def digest(project: Path, ignore: Collection[str] = ()) -> str:
    """Returns the SHA-256 of the project's files as hex. Another digest means that the project has changed.

    The digest covers names and contents. It excludes .env, which is no code, and files that tools and runs write. It
    also excludes the paths in the project that match a pattern in `ignore`.
    """
    found = hashlib.sha256()
    for name, path in sorted(Files(project, ignore)):
        found.update(f"{name}\0".encode("utf-8", "surrogateescape"))
        found.update(identity(path))
    return found.hexdigest()


def glance(project: Path, ignore: Collection[str] = ()) -> Snapshot:
    """Returns a snapshot that differs whenever `digest`, .env or the project's environment changes.

    It is much cheaper than `digest`, because no file is read.
    """
    return look(project, ignore)[0]


def look(project: Path, ignore: Collection[str] = ()) -> tuple[Snapshot, Folders]:
    """Returns the snapshot of `glance`, and the folders in which a change may change the snapshot."""
    files = Files(project, ignore)
    found = {name: facts for name, path in files if (facts := facts_of(path))}
    for name in BESIDE:
        if facts := facts_of(os.path.join(project, name)):  # noqa: PTH118 - like those of the others
            found[name] = facts
    return found, {folder: inode for folder in files.folders if (inode := inode_of(folder))}


def changes(before: Snapshot, now: Snapshot) -> set[str]:
    """Returns the paths of new, removed and changed files."""
    if before == now:
        return set()
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


class Files:
    """Iterates over the files that count, as (path in the project, path to open).

    A link to a folder is followed once per folder, unless the folder contains the project. In a linked folder only code
    counts, because data folders are linked for their size. Any other link to a folder, and a broken link, count as
    files.
    """

    def __init__(self, project: Path, ignore: Collection[str]) -> None:
        self._root = os.path.realpath(project)
        self._followed: set[str] = set()
        self.folders: set[str] = set()
        """The folders that were listed so far, and those with the targets of links to files."""
        self._left_out = re.compile("|".join(translate(pattern.rstrip("/")) for pattern in ignore) or r"(?!)").match

    def __iter__(self) -> Iterator[tuple[str, str]]:
        folders = [(self._root, "", False)]
        while folders:
            folder, prefix, linked = folders.pop()
            self.folders.add(folder)
            for entry in listed(folder):
                name = prefix + entry.name
                if self._is_left_out(entry.name, name):
                    continue
                if self._is_folder(entry):
                    folders.append((entry.path, f"{name}/", linked or entry.is_symlink()))
                elif (entry.is_symlink() or entry.is_file()) and (not linked or name.endswith(CODE)):
                    if entry.is_symlink():
                        self.folders.add(os.path.dirname(os.path.realpath(entry.path)))  # noqa: PTH120 - see `regular`
                    yield name, entry.path

    def _is_left_out(self, base: str, name: str) -> bool:
        if base.startswith(".") or base.endswith(IGNORED_ENDINGS):
            return True
        return self._left_out(name) is not None and name != PROJECT_FILE

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        """Returns whether this is a folder whose files count."""
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
    except OSError:  # for example a link to itself
        return False


def listed(folder: str) -> list[os.DirEntry[str]]:
    """Returns the entries sorted by name, or [] if the folder was removed meanwhile or can't be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def facts_of(path: str) -> tuple[int, int, int] | None:
    """Returns size, modification time and inode of a file, or None if it was removed meanwhile."""
    facts = regular(path)
    if facts is None:
        try:
            facts = os.lstat(path)
        except OSError:
            return None
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def identity(path: str) -> bytes:
    """Returns a 32-byte hash of a file's contents. For any other link, and a broken one, hashes the link's target."""
    facts = regular(path)
    if facts is None:
        return hashlib.sha256(target_of(path)).digest()
    if facts.st_size > WHOLE:
        return hashlib.sha256(f"{facts.st_size} {facts.st_mtime_ns}".encode()).digest()
    try:
        with open(path, "rb", opener=at_once) as file:
            return hashlib.sha256(file.read(WHOLE)).digest()
    except OSError as error:
        return hashlib.sha256(f"{error.errno}".encode()).digest()


def at_once(path: str, flags: int) -> int:
    """Opens a path without blocking, because the file may have been replaced by a pipe since."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def regular(path: str) -> os.stat_result | None:
    """Returns the facts of a regular file or of a link to one. Returns None for others: reading a pipe would block."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - Path objects for many thousand files would take most of the time
    except OSError:
        return None
    return facts if stat.S_ISREG(facts.st_mode) else None


def inode_of(folder: str) -> int | None:
    try:
        return os.stat(folder).st_ino  # noqa: PTH116 - see above
    except OSError:  # the folder was removed meanwhile
        return None


def target_of(link: str) -> bytes:
    try:
        return os.fsencode(os.readlink(link))  # noqa: PTH115 - see above
    except OSError:  # the link was removed meanwhile
        return b""
