"""The folders of runs, and the disk space that runs use in them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from windlass.accounts import ROOT
from windlass.files import is_locked
from windlass.kickoffs.limits import WHERE, Limits
from windlass.removal import remove, remove_here
from windlass_child.protocol.sizes import size_in_words
from windlass_child.protocol.working_folder import PLACES

if TYPE_CHECKING:
    from windlass.accounts import Account


LOCK = ".lock"
BLOCK = 512
"""Bytes of a block in st_blocks, on every file system."""
SECONDS_AT_ONCE = 0.025
"""How long one folder is measured before the next folder's turn."""
DEEPEST = 100
"""Levels of folders that are measured. The time to reach a folder grows with its level."""
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """The folders of one runner's kickoffs, in a folder of the runner. `close` removes it.

    A runner that was killed leaves its folder. The next runner that starts under the same `base` removes the folder:
    each runner holds a lock on its own folder as long as it lives.
    """

    def __init__(self, base: Path) -> None:
        if not base.is_dir():
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            base.chmod(passable())
        with locked(base / LOCK):
            for left in base.iterdir():
                # without a lock: its runner was killed before it took the lock, or another one removes the folder now
                if left.is_dir() and not left.is_symlink() and not is_locked(left / LOCK):
                    remove(left)
            self._folder = Path(tempfile.mkdtemp(dir=base, prefix="r-"))
            self._folder.chmod(passable())
            self._lock = open_lock(self._folder / LOCK)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def folder(self, kind: str, within: Path | None = None) -> Path:
        """Makes a folder that only the server's user can read."""
        return Path(tempfile.mkdtemp(dir=within or self._folder, prefix=kind))

    def shared_folder(self, name: str) -> Path:
        """Makes a folder of the server, in which crews can reach folders whose names they know."""
        folder = self._folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(passable())
        return folder

    def folder_for_crews(self, kind: str, account: Account | None, within: Path | None = None) -> Path:
        """Makes a folder of the server, with the folders PLACES in it, which only this user can read; None for the
        server's own user. Another user can't replace one of these folders by another one.

        Its path is short: crews may have sockets in it, whose paths have 107 bytes at most.
        """
        folder = self.folder(kind, within)
        try:
            for place in (folder / name for name in PLACES):
                place.mkdir(mode=0o700)
                if account is not None:
                    account.give(place)
            if account is not None:
                folder.chmod(0o755)
        except OSError:
            remove_here(folder)
            raise
        return folder

    def close(self) -> None:
        remove(self._folder)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def passable() -> int:
    """Returns the mode of folders that hold those of crews. Crews of root's server may run as another user."""
    return 0o711 if os.geteuid() == ROOT else 0o700


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of all runners under one base. A runner holds it only while it removes and makes folders."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Below(NamedTuple):
    """A folder below the run's folder. `parent` is the folder that holds it, None for the run's folder itself."""

    name: str
    parent: Below | None
    depth: int

    def path(self) -> list[str]:
        return [*(self.parent.path() if self.parent else ()), self.name]


class Entries(Iterator[os.DirEntry[str]], Protocol):
    """The type of the iterator that os.scandir returns."""

    def close(self) -> None: ...


class Open(NamedTuple):
    """The folder whose entries are being read."""

    folder: Below | None
    descriptor: int
    entries: Entries


@dataclass(slots=True)
class DiskUse:
    """Measures the content of one folder, repeatedly.

    A measurement goes through the folder in steps, because a run may make millions of files meanwhile. `used` (bytes)
    and `files` are the sums of the measurement in progress. They only grow until it is complete, so a sum above its
    limit needs no complete measurement. `deleted` is the bytes of deleted files that the run's processes hold open;
    SharedMemory sets it. No link is followed. A file with several names counts once. A sparse file counts by its
    blocks.
    """

    descriptor: int
    device: int
    limits: Limits
    used: int = 0
    files: int = 0
    deleted: int = 0
    too_deep: bool = False
    closed: bool = False
    _open: Open | None = None
    _waiting: list[Below | None] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, folder: Path, limits: Limits) -> Self | None:
        """Returns None when neither `disk_limit` nor `file_limit` is set, or when the folder can't be opened."""
        if limits.disk_limit is None and limits.file_limit is None:
            return None
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, OPEN_FOLDER)
            return cls(descriptor, os.fstat(descriptor).st_dev, limits)
        return None

    def close(self) -> None:
        """Waits for a measurement in another thread, then closes all descriptors."""
        with self._lock:
            self._leave()
            os.close(self.descriptor)
            self.closed = True

    def over_a_limit(self) -> str | None:
        """Measures a bounded part of the folder. Returns the error of the limit that was exceeded, or None."""
        with self._lock:
            return None if self.closed else self._measure()

    def _measure(self) -> str | None:
        if self._open is None and not self._waiting:
            self.used = self.files = 0
            self._seen.clear()
            self._waiting.append(None)
        deadline = time.monotonic() + SECONDS_AT_ONCE
        while time.monotonic() < deadline:
            self._step()
            error = self._passed()
            if error or (self._open is None and not self._waiting):
                return error
        return None

    def _passed(self) -> str | None:
        size, count = self.limits.disk_limit, self.limits.file_limit
        if self.too_deep:
            return (
                f"the run's folder has more than {DEEPEST} levels of folders, so its disk use can't be measured. "
                "Look for code that makes folders in a loop."
            )
        if size is not None and (used := self.used + self.deleted) > size:
            return (
                f"the run used {size_in_words(used)} of disk space in its folder, more than its disk_limit of "
                f"{size_in_words(size)}. Write less, or raise disk_limit {WHERE}."
            )
        if count is not None and self.files > count:
            return (
                f"the run made more than {count} files in its folder, its file_limit. Make fewer, or raise file_limit "
                f"{WHERE}."
            )
        return None

    def _step(self) -> None:
        """Counts the next entry, or opens the next folder."""
        if self._open is None:
            with contextlib.suppress(OSError):  # it was removed meanwhile, or this server's user can't open it
                self._enter(self._waiting.pop())
            return
        try:
            entry = next(self._open.entries, None)
        except OSError:
            entry = None
        if entry is None:
            self._leave()
            return
        with contextlib.suppress(OSError):
            self._count(entry, entry.stat(follow_symlinks=False))

    def _count(self, entry: os.DirEntry[str], found: os.stat_result) -> None:
        assert self._open is not None  # noqa: S101 - entries come from an open folder
        if found.st_ino in self._seen or found.st_dev != self.device:
            return
        self._seen.add(found.st_ino)
        self.files += 1
        self.used += found.st_blocks * BLOCK
        if stat.S_ISDIR(found.st_mode):
            depth = self._open.folder.depth + 1 if self._open.folder else 1
            self.too_deep |= depth > DEEPEST
            if not self.too_deep:
                self._waiting.append(Below(entry.name, self._open.folder, depth))

    def _enter(self, folder: Below | None) -> None:
        descriptor = os.open(".", OPEN_FOLDER, dir_fd=self.descriptor)
        try:
            for name in folder.path() if folder else ():
                parent, descriptor = descriptor, os.open(name, OPEN_FOLDER, dir_fd=descriptor)
                os.close(parent)
            self._open = Open(folder, descriptor, os.scandir(descriptor))
        except OSError:
            os.close(descriptor)
            raise

    def _leave(self) -> None:
        if self._open is not None:
            self._open.entries.close()
            os.close(self._open.descriptor)
            self._open = None
