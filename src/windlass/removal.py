"""Removes folders of runs, with all that crew code has left in them.

Root uses no path below a folder that another user may write to. Each folder is opened by descriptor and never through
a link. The content of a folder of another user is removed with the rights of that user.
"""

# See docs/decisions/security.md#root-acts-on-foreign-folders-with-the-rights-of-their-owner

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from windlass import log
from windlass.accounts import ROOT, owner_of, with_rights_of

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0
"""The time limit for one folder. Another run of the same user may fill the folder faster than it is emptied."""

PASSES = 3
"""Attempts to remove one folder. Processes of the run that are still ending may make files while it is emptied."""

MOST_NAMES = 10_000
"""The most names of subfolders that are held at once for one folder. A run may make millions of subfolders."""

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
O_PATH = getattr(os, "O_PATH", 0)

logger = log.logger(__name__)


def remove(folder: Path) -> None:
    """Removes the folder with its content. Logs an event when something can't be removed.

    Only the server's user may have the right to write to the folder's parent.
    """
    with_rights_of(None, partial(remove_here, folder)).result()


async def removed(folder: Path) -> None:
    """Removes the folder as `remove` does, without a thread of the event loop's shared pool."""
    await asyncio.wrap_future(with_rights_of(None, partial(remove_here, folder)))


def remove_here(folder: Path) -> None:
    """Removes the folder as `remove` does, in a thread of `with_rights_of`."""
    deadline = time.monotonic() + SECONDS
    for _ in range(PASSES):
        removal = _Removal(deadline)
        try:
            removal.remove(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            removal.note(error)
        if removal.why is None or removal.late:
            break
    if removal.why is not None:
        logger.event("folder.not_removed", folder=folder, why=removal.why)


@dataclass(slots=True)
class _Level:
    """A folder on the path from the top to the current folder.

    `folders` are the names of its subfolders that are still to be emptied. `more` means that the list is
    incomplete: the folder has further subfolders. They are listed once some of the listed ones are removed. `shrunk`
    records that this has happened.
    """

    name: str
    identity: tuple[int, int]
    folders: list[str] = field(default_factory=list)
    more: bool = False
    shrunk: bool = False


class _Removal:
    """Walks the tree with one descriptor, so that no depth of folders exhausts the descriptors or the stack."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.why: OSError | None = None

    @property
    def late(self) -> bool:
        return time.monotonic() > self._deadline

    def note(self, error: OSError) -> None:
        self.why = self.why or error

    def remove(self, folder: Path) -> None:
        above = os.open(folder.parent, os.O_RDONLY | FOLDER)
        try:
            os.stat(folder.name, dir_fd=above, follow_symlinks=False)
            self._walk(above, _Level("", _identity(above), [folder.name]))
        finally:
            os.close(above)

    def _walk(self, top: int, level: _Level) -> None:
        """Removes the subfolders of this level with their content."""
        here, above = os.dup(top), list[_Level]()
        try:
            while True:
                self._check_time()
                if level.folders:
                    name = level.folders.pop()
                    if (below := self._entered(name, here, level)) is not None:
                        os.close(here)
                        here = below
                        above.append(level)
                        level = self._listed(name, here)
                elif level.more and level.shrunk:
                    level = self._listed(level.name, here)
                elif above:
                    here = _out_of(here, above[-1].identity)
                    name, level = level.name, above.pop()
                    level.shrunk |= self._attempt(partial(os.rmdir, name, dir_fd=here))
                else:
                    return
        finally:
            os.close(here)

    def _entered(self, name: str, parent: int, level: _Level) -> int | None:
        """Returns a descriptor of a folder that the caller must empty, or None when nothing is left to do for it."""
        try:
            folder = _opened(name, parent)
        except OSError as error:  # for example, it was replaced by a link
            self.note(error)
            return None
        owner = os.fstat(folder).st_uid
        if os.geteuid() != ROOT or owner == ROOT:
            return folder
        try:
            with_rights_of(owner_of(owner), partial(self._empty, folder)).result()
        finally:
            os.close(folder)
        level.shrunk |= self._attempt(partial(os.rmdir, name, dir_fd=parent))
        return None

    def _empty(self, folder: int) -> None:
        try:
            self._walk(folder, self._listed("", folder))
        except OSError as error:
            self.note(error)

    def _listed(self, name: str, folder: int) -> _Level:
        """Removes all files of a folder, and returns the names of its folders."""
        found = os.fstat(folder)
        level = _Level(name, (found.st_dev, found.st_ino))
        if found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            self._attempt(partial(os.fchmod, folder, stat.S_IRWXU))
        with os.scandir(folder) as entries:
            for entry in entries:
                self._check_time()
                if not entry.is_dir(follow_symlinks=False):
                    self._attempt(partial(os.unlink, entry.name, dir_fd=folder))
                elif len(level.folders) < MOST_NAMES:
                    level.folders.append(entry.name)
                else:
                    level.more = True
                    break
        return level

    def _attempt(self, change: partial[None]) -> bool:
        try:
            change()
        except FileNotFoundError:  # another process has removed it
            return True
        except OSError as error:
            self.note(error)
            return False
        return True

    def _check_time(self) -> None:
        if self.late:
            raise TimeoutError(errno.ETIMEDOUT, f"the folder was not empty after {SECONDS:.0f} s")


def _opened(name: str, parent: int) -> int:
    """Opens a folder, even when its mode gives its owner no access."""
    try:
        return os.open(name, os.O_RDONLY | FOLDER, dir_fd=parent)
    except PermissionError:
        _make_accessible(name, parent)
        return os.open(name, os.O_RDONLY | FOLDER, dir_fd=parent)


def _make_accessible(name: str, parent: int) -> None:
    if not O_PATH:  # macOS changes the mode of a name without following it; Linux needs a descriptor
        os.chmod(name, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
        return
    folder = os.open(name, O_PATH | FOLDER, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{folder}", stat.S_IRWXU)  # noqa: PTH101 - the path of a descriptor
    finally:
        os.close(folder)


def _out_of(folder: int, identity: tuple[int, int]) -> int:
    """Closes the folder and returns a descriptor of its parent. Raises OSError if the parent has changed meanwhile."""
    above = os.open("..", os.O_RDONLY | FOLDER, dir_fd=folder)
    if _identity(above) != identity:
        os.close(above)
        raise OSError(errno.ESTALE, "a subfolder was moved elsewhere while it was emptied")
    with suppress(OSError):
        os.close(folder)
    return above


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino
