"""The system users that processes and threads of the server run as."""

# See docs/decisions/runner.md#a-thread-keeps-the-rights-of-its-user

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
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

IDLE_SECONDS = 2.0
OLDEST_SECONDS = 60.0
MOST_IDLE = 8
"""When a thread of `with_rights_of` ends: after this time without work, after this time in all, or when so many others
have no work. A new thread has the groups that its user has by then.
"""

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
_idle: list[_FileThread] = []
_idle_lock = threading.Lock()


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
    """Returns the user with its own group. A user without an account gets NO_GROUP, which grants no rights.

    Remembers an account for OLDEST_SECONDS. A look-up takes a hundred system calls on some machines.
    """
    return _owner_of(uid, os.geteuid(), int(time.monotonic() // OLDEST_SECONDS))


@lru_cache(maxsize=16)
def _owner_of(uid: int, ours: int, _time: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Account(uid, NO_GROUP, str(uid), is_ours=uid == ours)
    return Account(uid, entry.pw_gid, entry.pw_name, is_ours=uid == ours)


def with_rights_of(account: Account | None, work: Callable[[], T]) -> Future[T]:
    """Runs `work` in a thread that opens and changes files with the rights of this user.

    None and the server's own user change no rights. The thread keeps root as its real user, so that processes of
    `account` can't send it signals. `work` must not start threads or processes and must not import modules.
    No thread waits for another one that a file system blocks: a thread that has done its work is used again, and when
    there is none, a new one is started. The threads are daemons: a blocked one does not delay the exit of the process.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a caller that is cancelled can't cancel the work

    def run() -> None:
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            future.set_exception(error)
        else:
            future.set_result(found)

    other = None if account is None or account.is_ours else account
    if (thread := _idle_thread(other)) is not None:
        thread.todo.put(run)
    else:
        _FileThread(other, run, future).start()
    return future


class _FileThread(threading.Thread):
    """Does one piece of work after the other with the rights of `account`, until it has been idle for IDLE_SECONDS.

    It ends after a piece of work that took other rights, because a thread can't get its former rights again.
    """

    def __init__(self, account: Account | None, first: Callable[[], None], future: Future[Any]) -> None:
        super().__init__(name="windlass-files", daemon=True)
        self.todo: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.account = account
        self._first: tuple[Callable[[], None], Future[Any]] | None = (first, future)
        self._until = time.monotonic() + OLDEST_SECONDS
        self.keeps_its_rights = True

    def run(self) -> None:
        assert self._first is not None  # noqa: S101 - a thread runs once
        (first, future), self._first = self._first, None
        try:
            if self.account is not None:
                take_rights_of(self.account)
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            future.set_exception(error)
            return
        self.keeps_its_rights = True
        work: Callable[[], None] | None = first
        del first, future  # what the work refers to is not kept while the thread is idle
        while work is not None:
            work()
            work = None
            work = self._next()

    def _next(self) -> Callable[[], None] | None:
        with _idle_lock:
            if not self.keeps_its_rights or len(_idle) >= MOST_IDLE or time.monotonic() > self._until:
                return None
            _idle.append(self)
        try:
            return self.todo.get(timeout=IDLE_SECONDS)
        except Empty:
            with _idle_lock:
                if self in _idle:
                    _idle.remove(self)
                    return None
            return self.todo.get()  # it was taken just now


def _forget_threads() -> None:
    """Is called in a process that was forked from this one: it has none of its threads."""
    global _idle_lock  # noqa: PLW0603 - another thread may have held it
    _idle.clear()
    _idle_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_threads)


def _idle_thread(account: Account | None) -> _FileThread | None:
    """Takes the thread with the rights of this user that was idle for the shortest time."""
    with _idle_lock:
        for place in range(len(_idle) - 1, -1, -1):
            if _idle[place].account == account:
                return _idle.pop(place)
    return None


def take_rights_of(account: Account) -> None:
    """Gives the calling thread the rights of this user permanently, without any capability of root. Raises OSError."""
    calls = SYSTEM_CALLS.get(platform.machine())
    if sys.platform != "linux" or calls is None or sys.maxsize < 1 << 32:
        raise OSError(errno.ENOSYS, f"threads can't act as another user on {sys.platform}, {platform.machine()}")
    if isinstance(thread := threading.current_thread(), _FileThread):
        thread.keeps_its_rights = False
    groups = _groups_of(account)
    setgroups, setresuid, setresgid = calls
    _call(setgroups, len(groups), (ctypes.c_uint32 * len(groups))(*groups))
    _call(setresgid, *map(ctypes.c_long, (KEPT, account.gid, KEPT)))
    _call(setresuid, *map(ctypes.c_long, (KEPT, account.uid, KEPT)))
    if (os.geteuid(), os.getegid(), set(os.getgroups())) != (account.uid, account.gid, set(groups)):
        raise OSError(errno.EPERM, f"the thread could not get the rights of the user {account.name}")


def become(account: Account) -> None:
    """Gives the whole process the rights of this user for good. Only root can do so."""
    os.setgroups(_groups_of(account))
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)


def _groups_of(account: Account) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(account.uid).pw_name, account.gid)
    except KeyError:
        return [account.gid]


def _call(number: int, *arguments: object) -> None:
    if _C_LIBRARY.syscall(ctypes.c_long(number), *arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
