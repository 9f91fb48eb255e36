"""Puts a process of crews into namespaces of its own, before it runs code of a project.

In a user namespace the process has the rights to set its user and its network, and gives them up when both are set.
"""

# See docs/decisions/security.md#a-run-has-a-user-namespace-without-rights
# See docs/decisions/security.md#each-deployment-has-a-user

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import TYPE_CHECKING

from windlass_child.process.hardening import PR_SET_DUMPABLE, control
from windlass_child.process.network import catch_all

if TYPE_CHECKING:
    import socket

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
CAPABILITY_VERSION_3 = 0x20080522


def enter(door: int | None, user: int | None, ports: list[int] | None = None) -> list[socket.socket]:
    """Enters a user namespace, and with `ports` also a network namespace that leads nowhere else. Returns the sockets
    that take the connections to these ports there (`network.catch_all`).

    With `user` the process becomes this user. The other end of `door` is the server's, which is root: a byte asks it to
    permit this user in the namespace (`windlass.runner.namespaces.admit`), and a byte answers. Without `user` the
    process stays what it is. Root stays in its user namespace.

    Raises OSError. It needs a single thread. The kernel forgets the signal at the end of the parent (PR_SET_PDEATHSIG).
    """
    ids = os.geteuid(), os.getegid()  # a process without a map in its namespace has others
    own_user = user is not None or ids[0] != 0
    unshare((CLONE_NEWUSER if own_user else 0) | (0 if ports is None else CLONE_NEWNET))
    listeners = [] if ports is None else catch_all(ports)
    if not own_user:
        return listeners
    if user is None:
        map_to_itself(*ids)
    else:
        if door is None or os.write(door, b"?") != 1 or os.read(door, 1) != b"!":
            raise OSError(f"the server did not permit the user {user}")
        os.setresuid(user, user, user)
    give_up_rights()
    control(PR_SET_DUMPABLE, 0)
    return listeners


def unshare(flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, f"no namespaces can be made: {os.strerror(number)}")


def map_to_itself(uid: int, gid: int) -> None:
    """Permits the process's own user and group in its user namespace, and no others."""
    control(PR_SET_DUMPABLE, 1)  # the files of a process that is not dumpable are root's
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def give_up_rights() -> None:
    """Gives up all capabilities. They counted in the process's own namespaces only."""
    header, none = struct.pack("Ii", CAPABILITY_VERSION_3, 0), bytes(24)
    if ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "the rights in the namespaces can't be given up")


def main(door: int, user: int | None) -> int:
    """Tries what `enter` does, for the server's question whether this machine permits it."""
    try:
        enter(door, user, [])
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}\n")
        return 1
    return 0
