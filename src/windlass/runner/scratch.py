from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from windlass.accounts import ROOT
from windlass.removal import remove

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.accounts import Account

LOCK = ".lock"


class Scratch:
    """The folders of one runner's kickoffs, in a folder of the runner. `close` removes it.

    A runner that was killed leaves its folder. The next runner that starts under the same `base` removes the folder:
    each runner holds a lock on its own folder as long as it lives.
    """

    def __init__(self, base: Path) -> None:
        passable = 0o711 if os.geteuid() == ROOT else 0o700  # crews of root's server may run as another user
        if not base.is_dir():
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            base.chmod(passable)
        with locked(base / LOCK):
            for left in base.iterdir():
                if left.is_dir() and not left.is_symlink() and not in_use(left):
                    remove(left)
            self._folder = Path(tempfile.mkdtemp(dir=base, prefix="r-"))
            self._folder.chmod(passable)
            self._lock = open_lock(self._folder / LOCK)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def folder(self, kind: str, account: Account | None = None) -> Path:
        """Makes a folder that only this user can read; None for the server's own user. Its path is short: crews may
        have sockets in it, whose paths have 107 bytes at most.
        """
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix=kind))
        if account is not None:
            account.give(folder)
        return folder

    def close(self) -> None:
        remove(self._folder)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def in_use(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (
        FileNotFoundError
    ):  # the runner was killed before it locked the folder, or another one removes the folder now
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
