"""The system users that processes and threads of the server run as."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pwd
import stat
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

OLDEST_SECONDS = 60.0
"""Seconds that an account and its groups are remembered. A look-up takes a hundred system calls on some machines."""

ROOT = 0
NO_GROUP = 65_534
"""The group of a user without an account.

A folder's own group is no substitute: it may have rights that the folder's owner does not have.
"""

KEPT = -1
"""The argument of setresuid and setresgid that leaves the real or the saved id unchanged."""

GENERIC = (159, 147, 149)
SYSTEM_CALLS = {
    "x86_64": (116, 117, 119),
    "aarch64": GENERIC,
    "riscv64": GENERIC,
    "loongarch64": GENERIC,
    "ppc64le": (81, 164, 169),
    "s390x": (206, 208, 210),
}
"""Numbers of setgroups, setresuid and setresgid on 64-bit Linux.

The functions of the C library change all threads of the process. The system calls change only the calling thread.
"""

_C_LIBRARY = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int
    name: str
    is_ours: bool

    @property
    def switch(self) -> tuple[int, int] | tuple[None, None]:
        """The arguments `user` and `group` of subprocess."""
        return (None, None) if self.is_ours else (self.uid, self.gid)

    @property
    def groups(self) -> list[int] | None:
        return None if self.is_ours else []

    def give(self, path: Path) -> None:
        if not self.is_ours:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def may_enter(self, folder: os.stat_result) -> bool:
        if self.uid == folder.st_uid:
            return bool(folder.st_mode & stat.S_IXUSR)
        return bool(folder.st_mode & (stat.S_IXGRP if self.gid == folder.st_gid else stat.S_IXOTH))

    def first_closed(self, folder: Path) -> Path | None:
        """Returns the topmost folder on the path to `folder` that the account can't enter, or None."""
        if self.is_ours:
            return None
        whole = folder.resolve()
        way = [*reversed(whole.parents), whole]
        return next((place for place in way if not self.may_enter(place.stat())), None)


def owner_of(uid: int) -> Account:
    """Returns the user with its own group. A user without an account gets NO_GROUP, which grants no rights."""
    return _owner_of(uid, os.geteuid(), _period())


def _period() -> int:
    return int(time.monotonic() // OLDEST_SECONDS)


@lru_cache(maxsize=16)
def _owner_of(uid: int, ours: int, _time: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Account(uid, NO_GROUP, str(uid), is_ours=uid == ours)
    return Account(uid, entry.pw_gid, entry.pw_name, is_ours=uid == ours)


def with_rights_of(account: Account | None, work: Callable[[], T]) -> Future[T]:
    """Runs `work` in a thread of its own that opens and changes files with the rights of this user.

    None and the server's own user change no rights. The thread keeps root as its real user, so that processes of
    `account` can't send it signals. `work` must not start threads or processes and must not import modules.
    Work that a file system blocks holds up no other work. The threads are daemons: a blocked one does not delay the
    exit of the process.
    """
    other = None if account is None or account.is_ours else account
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a caller that is cancelled can't cancel the work

    def run() -> None:
        try:
            if other is not None:
                take_rights_of(other)
            found = work()
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=run, name="windlass-files", daemon=True).start()
    return future


def take_rights_of(account: Account) -> None:
    """Gives the calling thread the rights of this user permanently, without any capability of root. Raises OSError."""
    calls = SYSTEM_CALLS.get(platform.machine())
    if sys.platform != "linux" or calls is None or sys.maxsize < 1 << 32:
        raise OSError(errno.ENOSYS, f"threads can't act as another user on {sys.platform}, {platform.machine()}")
    groups = _groups_of(account.uid, account.gid, _period())
    setgroups, setresuid, setresgid = calls
    _call(setgroups, len(groups), (ctypes.c_uint32 * len(groups))(*groups))
    _call(setresgid, *map(ctypes.c_long, (KEPT, account.gid, KEPT)))
    _call(setresuid, *map(ctypes.c_long, (KEPT, account.uid, KEPT)))
    if (os.geteuid(), os.getegid(), set(os.getgroups())) != (account.uid, account.gid, set(groups)):
        raise OSError(errno.EPERM, f"the thread could not get the rights of the user {account.name}")


def become(account: Account) -> None:
    """Gives the whole process the rights of this user for good. Only root can do so."""
    os.setgroups(_groups_of(account.uid, account.gid, _period()))
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)


@lru_cache(maxsize=16)
def _groups_of(uid: int, gid: int, _time: int) -> tuple[int, ...]:
    try:
        return tuple(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid))
    except KeyError:
        return (gid,)


def _call(number: int, *arguments: object) -> None:
    if _C_LIBRARY.syscall(ctypes.c_long(number), *arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
