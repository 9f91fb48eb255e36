"""The namespaces of children: whether this machine permits them, and the server's part in them."""

# See docs/decisions/security.md#a-run-has-a-user-namespace-without-rights

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.runner.spawning import PROGRAM
from windlass_child.process.sockets import CLOSED

if TYPE_CHECKING:
    from windlass.accounts import Account

SECONDS = 20.0
"""How long the machine may take to show whether it permits namespaces."""


def admit(pid: int, user: int, group: int) -> None:
    """Permits a user and a group, and no others, in the user namespace of a process. It needs root. Raises OSError."""
    for name, number in (("uid_map", user), ("gid_map", group)):
        Path(f"/proc/{pid}/{name}").write_text(f"{number} {number} 1")


async def answer(door: socket.socket, pid: int, user: int, group: int) -> None:
    """Admits the user when the process asks at its door. Returns at once for a process that ends before it asks."""
    loop = asyncio.get_running_loop()
    if await loop.sock_recv(door, 1) != b"?":
        return
    try:
        admit(pid, user, group)
    except OSError:  # the process ends with the reason
        return
    await loop.sock_sendall(door, b"!")


def refused(crews: Account | None, user: int | None) -> str:
    """Returns why this machine permits no namespaces to a process of crews, "" if it permits them.

    Starts such a process. `crews` is the user of crews, None for the server's own. `user` is a user that a process of
    crews would become there, None for a server that is not root.
    """
    if sys.platform != "linux":
        return "namespaces are a part of Linux"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(SECONDS)
        own = [str(theirs.fileno()), *((str(crews.uid), str(crews.gid)) if crews else ("", "")), str(user or "")]
        with subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", str(PROGRAM), "probe", *own],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={}, cwd="/",
            pass_fds=[theirs.fileno()],
        ) as process:  # fmt: skip
            theirs.close()
            try:
                if crews is not None and user is not None and ours.recv(1):
                    admit(process.pid, user, crews.gid)
                    ours.send(b"!")
                _, errors = process.communicate(timeout=SECONDS)
            except (OSError, subprocess.TimeoutExpired) as error:
                process.kill()
                return str(error)
    if process.returncode == os.EX_OK:
        return ""
    return errors.decode("utf-8", "replace").strip().rpartition("\n")[2] or f"its trial ended with {process.returncode}"


def sockets_permitted() -> str:
    """Returns how far a process of crews can be kept from sockets here, as a trial shows (sockets.permitted)."""
    if sys.platform != "linux":
        return CLOSED
    try:
        found = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", str(PROGRAM), "sockets"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, cwd="/",
            timeout=SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return CLOSED
    return found.stdout.decode("ascii", "replace")
