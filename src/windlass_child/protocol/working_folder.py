"""Fills the working folder of a child with the files of the project, before a line of the project is imported, and
finds out whether the run has written files.

Projects open their files by paths from the folder that they are started in: `open("data.csv")`, `knowledge/`. Each run
has a folder of its own, so that its files don't collide with those of other runs and the project stays as it is.

- A regular file is copied, so that a run can change its copy. The copy has the size and the modification time of the
  original: `is_unchanged` distinguishes it from a file that the run wrote.
- A large file, a file or folder beyond the limits below, and a file for which the disk has no room, is a symbolic
  link to the original.
- A link within the project stays the same link. A link out of the project is made again, and never followed here.
- Left out are names that begin with a dot, such as .env and .git, environments, caches and results of builds.

The child does this itself, with the rights of the crew user: files that the crew user can't read are not copied.
"""

# See docs/decisions/child.md#the-working-folder-has-copies-of-the-project

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from itertools import islice
from pathlib import Path

MB = 1 << 20
LARGEST_COPY = 4 * MB
MOST_BYTES = 32 * MB
"""The most bytes that are copied. The copies count in the disk_limit of the run."""
MOST_ENTRIES = 2000
"""The most files, folders and links that are made. A folder with more entries than are left becomes a link."""

WORK, HOME, TEMPORARY, STORAGE, PACKAGE = PLACES = ("work", "home", "tmp", "storage", "package")
"""The folders in the folder of a run or a zygote: its working folder, and beside it those for its home, for temporary
files, for the files of frameworks, and for the project as a package.
"""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a write to a full disk, and of a write beyond the quota of a user."""

KNOWLEDGE = "knowledge"
IGNORED_FOLDERS = {"__pycache__", "build", "dist", "env", "htmlcov", "node_modules", "venv"}
"""Folders that are no part of a project, and so are all whose names begin with a dot."""
ENDINGS = (".pyc", ".pyo", ".egg-info")

NOT_ARTIFACTS = {
    "__pycache__",
    ".cache",
    ".git",
    ".hg",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".venv",
    "node_modules",
}
"""Names of caches and of downloaded packages, at any level."""
MOST_EXAMINED = 100
"""The most entries that `has_files` looks at. With more, the server scans the folder."""


def fill(source: str, target: str) -> None:
    """Copies or links the entries of the folder `source` into `target`. Entries that are there already stay.

    An entry that can't be read is left out: the code that opens it gets the error.
    """
    Filling(os.path.realpath(source), os.path.realpath(target)).fill()


def fill_knowledge(folder: Path) -> None:
    """Adds the folder `knowledge` that is beside a declaration. Frameworks read it from the working folder."""
    if (folder / KNOWLEDGE).is_dir():
        Path(KNOWLEDGE).mkdir(mode=0o700, exist_ok=True)
        fill(str(folder / KNOWLEDGE), KNOWLEDGE)


class Filling:
    def __init__(self, source: str, target: str) -> None:
        self._source, self._target = source, target
        self._entries, self._bytes = MOST_ENTRIES, MOST_BYTES
        self._folders: deque[tuple[list[os.DirEntry[str]], str]] = deque()

    def fill(self) -> None:
        with contextlib.suppress(OSError):  # the load reports a project that can't be read
            self._begin(self._listed(self._source)[:MOST_ENTRIES], self._target)
        while self._folders:
            found, target = self._folders.popleft()
            for entry in found:
                with contextlib.suppress(OSError):
                    self._add(entry, f"{target}/{entry.name}")

    def _listed(self, folder: str) -> list[os.DirEntry[str]]:
        """Returns the entries that belong in a working folder, at most one more than there is room for."""
        with os.scandir(folder) as listed:
            wanted = (entry for entry in listed if not is_left_out(entry.name) and not self._holds_target(entry.path))
            return sorted(islice(wanted, self._entries + 1), key=lambda entry: entry.name)

    def _holds_target(self, path: str) -> bool:
        return f"{self._target}/".startswith(f"{path}/")

    def _begin(self, found: list[os.DirEntry[str]], target: str) -> None:
        self._entries -= len(found)
        self._folders.append((found, target))

    def _add(self, entry: os.DirEntry[str], target: str) -> None:
        if entry.is_symlink():
            self._add_link(entry.path, target)
        elif entry.is_dir(follow_symlinks=False):
            self._add_folder(entry.path, target)
        elif entry.is_file(follow_symlinks=False):
            self._bytes -= copy(entry.path, target, min(LARGEST_COPY, self._bytes))

    def _add_link(self, path: str, target: str) -> None:
        named, leads_to = Path(path).readlink(), os.path.realpath(path)
        inside = not named.is_absolute() and f"{leads_to}/".startswith(f"{self._source}/")
        Path(target).symlink_to(named if inside else leads_to)

    def _add_folder(self, path: str, target: str) -> None:
        found = self._listed(path)
        if len(found) > self._entries:
            Path(target).symlink_to(path)
            return
        with contextlib.suppress(FileExistsError):
            os.mkdir(target, 0o700)  # noqa: PTH102 - this runs at the start of each run
        self._begin(found, target)


def rights(original: os.stat_result) -> int:
    """Returns the mode of a copy."""
    return stat.S_IRUSR | stat.S_IWUSR | original.st_mode & stat.S_IXUSR


def is_same(original: os.stat_result, found: os.stat_result) -> bool:
    same = (original.st_size, original.st_mtime_ns) == (found.st_size, found.st_mtime_ns)
    return same and stat.S_ISREG(original.st_mode) and stat.S_ISREG(found.st_mode)


def copy(path: str, target: str, largest: int) -> int:
    """Copies a file, or links to it if it has more bytes than `largest` or the disk is full.

    Returns the number of bytes copied. Removes what it has copied if it raises an OSError.
    """
    source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode):  # it was replaced meanwhile
            return 0
        if found.st_size > largest:
            Path(target).symlink_to(path)
            return 0
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, rights(found))
        try:
            while data := os.read(source, MB):
                while data:
                    data = data[os.write(made, data) :]
        except OSError as error:
            Path(target).unlink()
            if error.errno not in FULL:
                raise
            Path(target).symlink_to(path)
            return 0
        else:
            os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(made)
        return found.st_size
    finally:
        os.close(source)


def is_unchanged(root: str, path: str, found: os.stat_result) -> bool:
    """Returns whether a file of a working folder is still the copy of the project's file at the same path.

    `root` is the project, `path` the file's path in the working folder, `found` its lstat. A project file that is
    changed during the run makes its copy count as changed.
    """
    try:
        original = os.lstat(f"{root}/{path}")
    except (OSError, ValueError):
        return False
    return is_same(original, found)


def has_files(root: str, folder: str) -> bool:
    """Returns whether a working folder may have files that the run wrote. `root` is the project. Follows no links."""
    folders, examined = deque([""]), 0
    try:
        while folders:
            above = folders.popleft()
            with os.scandir(f"{folder}/{above}") as entries:
                for entry in entries:
                    examined += 1
                    if examined > MOST_EXAMINED:
                        return True
                    path = f"{above}{entry.name}"
                    if is_not_stored(entry.name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{path}/")
                    elif entry.is_file(follow_symlinks=False) and not is_unchanged(
                        root, path, entry.stat(follow_symlinks=False)
                    ):
                        return True
    except OSError:
        return True
    return False


def is_not_stored(name: str) -> bool:
    """Returns whether an entry of a working folder is not stored with the run's files."""
    return name in NOT_ARTIFACTS or name.endswith(".pyc")


def is_left_out(name: str) -> bool:
    return name.startswith(".") or name in IGNORED_FOLDERS or name.endswith(ENDINGS)
