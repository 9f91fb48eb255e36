"""Drops rights of a process before it runs code of crews. Processes that it forks inherit this."""

# See docs/decisions/processes.md#the-death-of-a-parent-resumes-a-process
# See docs/decisions/security.md#each-zygote-and-each-child-is-in-a-landlock-domain
# See docs/decisions/security.md#a-run-has-a-bound-of-processes

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import stat
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from windlass_child.process.places import LIST, READ, SHARE, WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_VERSION = 1
LANDLOCK_PATH_BENEATH, LANDLOCK_NET_PORT = 1, 2
BIND_TCP, CONNECT_TCP = 1, 2
MAKE_BLOCK, REFER = 1 << 11, 1 << 13
EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER, TRUNCATE, DEVICE_CALLS = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CALLS
EVERY = (1 << 16) - 1
RIGHTS = {LIST: READ_FOLDER, READ: EXECUTE | READ_FILE | READ_FOLDER, WRITE: EVERY, SHARE: EVERY & ~READ_FOLDER}
ABSTRACT_SOCKETS, SIGNALS = 1, 2
CONFINES = 2
"""The first version of Landlock that `confine` uses: version 1 forbids every rename from one folder to another."""
SCOPES_SIGNALS = 6
"""The first version of Landlock that can forbid these two."""
CONNECTS = 4
"""The first version of Landlock that can forbid connections of TCP."""
TRUNCATES, CALLS_DEVICES = 3, 5
"""The first versions of Landlock that can forbid to truncate files, and to call devices (ioctl)."""

OOM_SCORE = Path("/proc/self/oom_score_adj")
FIRST_TO_GO = 500
"""The OOM score of crews, of 1000. A machine that runs out of memory ends a crew before the server or its database."""


def harden() -> None:
    """Forbids core files, rights from setuid programs, and access to this process's memory by processes of the same
    user.

    An exec ends the last of these: a program that is started this way calls `harden` again. Until then `confine`
    protects its memory from other crews.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        go_before_the_server()  # first: a process that is not dumpable may not write its OOM score
        control(PR_SET_NO_NEW_PRIVS, 1)
        control(PR_SET_DUMPABLE, 0)


def go_before_the_server() -> None:
    with contextlib.suppress(OSError, ValueError):  # the file is read-only in some containers
        if int(OOM_SCORE.read_text()) < FIRST_TO_GO:
            OOM_SCORE.write_text(str(FIRST_TO_GO))


def become_subreaper() -> None:
    """Makes this process adopt the orphaned processes below it, in place of the machine's init process."""
    if sys.platform == "linux":
        control(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(channel: int) -> None:
    """Makes the kernel kill this process when its parent ends. `channel` is the process's socket: a hangup on it shows
    that the parent has ended already.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    control(PR_SET_PDEATHSIG, signal.SIGKILL)
    poll = select.poll()
    poll.register(channel, 0)  # poll always reports a hangup
    if os.getppid() != parent or poll.poll(0):
        os._exit(os.EX_OK)


def resume_without_parent() -> None:
    """Makes the kernel resume this process, if it is stopped, when its parent ends. Otherwise the process outlives its
    parent, and ends the processes below it before itself. A stopped process would notice nothing, and stay for ever.
    """
    if sys.platform == "linux":
        control(PR_SET_PDEATHSIG, signal.SIGCONT)


def become(uid: int, gid: int) -> None:
    """Makes this process one of another user. The server runs on uvloop, which can't start a process with `user` and
    `group`.
    """
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def bound_tasks(tasks: int) -> None:
    """Bounds the sum of processes and threads of this process's user. The kernel does not enforce it for root."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # a lower bound is in force already
            resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))


def confine(places: Mapping[str, str] | None = None, version: int | None = None, *, port: int | None = None) -> bool:
    """Puts this process, and all that it will start, into a Landlock domain of their own.

    `places` maps the paths that the domain may use to what it may do there (RIGHTS); None for all that its user may.
    Paths that don't exist are left out. With `port`, from CONNECTS on, TCP connects to this port alone, of any host,
    and binds to none. Returns False when the kernel has no usable Landlock, which needs Linux 5.19 or newer with
    Landlock enabled. It needs `no_new_privs`.

    A process of a domain can't access the memory (ptrace, /proc/PID/mem, environ) of a process outside of the domain.
    This holds for all users of the other process, for dumpable processes too, and also just after an exec. Root can
    still read environ on kernels that permit it to whom may watch performance (seen on Linux 6.18). From
    SCOPES_SIGNALS on, it can't send signals to a process outside of the domain either. Processes outside of the domain
    can send signals into it: a zygote to its children, and the server to all. It can't mount file systems.
    """
    if sys.platform != "linux":
        return False
    if version is None:
        version = landlock_version()
    if version < CONFINES:
        return False
    # A domain must forbid something. One without places forbids as little as possible, and only rights that crews do
    # not use. It permits REFER by a rule: where it did not name this right, a domain below it could not rename a file
    # from one folder to another.
    rules = {"/": MAKE_BLOCK | REFER} if places is None else {path: RIGHTS[what] for path, what in places.items()}
    scopes = ABSTRACT_SOCKETS | SIGNALS if version >= SCOPES_SIGNALS else 0
    handled = MAKE_BLOCK | REFER if places is None else all_rights(version)
    connections = BIND_TCP | CONNECT_TCP if port is not None and version >= CONNECTS else 0
    fields = (handled, connections, scopes)[: 3 if scopes else 2 if connections else 1]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    call = ctypes.CDLL(None).syscall
    ruleset = call(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    try:
        for path, rights in rules.items():
            permit(call, ruleset, path, rights & handled)
        if connections:
            call(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_NET_PORT, struct.pack("=QQ", CONNECT_TCP, port), 0)
        return bool(call(LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def all_rights(version: int) -> int:
    """Returns all rights to files that this version of Landlock knows."""
    known = REFER | (REFER - 1)
    if version >= TRUNCATES:
        known |= TRUNCATE
    return known | DEVICE_CALLS if version >= CALLS_DEVICES else known


def permit(call: Callable[..., int], ruleset: int, path: str, rights: int) -> None:
    """Adds a rule for what is at the path now. Without the rule the domain can't use it."""
    with contextlib.suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= OF_A_FILE
            rule = struct.pack("=Qi", rights, place)
            call(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_PATH_BENEATH, rule, 0)
        finally:
            os.close(place)


def landlock_version() -> int:
    """Returns the version of the kernel's Landlock, 0 if it has none or has it switched off."""
    if sys.platform != "linux":
        return 0
    call = ctypes.CDLL(None).syscall
    return max(0, int(call(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_VERSION)))


def control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
