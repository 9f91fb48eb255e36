"""What a process gives up before it runs code of others. Processes that it forks have given it up too."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

OOM_SCORE = Path("/proc/self/oom_score_adj")
FIRST_TO_GO = 500
"""Of 1000: a machine that runs out of memory ends a crew, and not the server or its database."""


def harden() -> None:
    """No core files, no rights from setuid programs, and no look into its memory for processes of the same user.

    The last does not outlast an exec: a program that is started this way calls it again.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        go_before_the_server()  # first: a process that is not dumpable may not write there
        control(PR_SET_NO_NEW_PRIVS, 1)
        control(PR_SET_DUMPABLE, 0)


def go_before_the_server() -> None:
    with contextlib.suppress(OSError, ValueError):  # some containers have it read-only
        if int(OOM_SCORE.read_text()) < FIRST_TO_GO:
            OOM_SCORE.write_text(str(FIRST_TO_GO))


def become_subreaper() -> None:
    """What is left behind by a process below this one comes to this one, not to the machine's init process."""
    if sys.platform == "linux":
        control(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(channel: int) -> None:
    """From now on the kernel kills this process when its parent ends, whatever it is doing. `channel` is the socket
    that it was given, which tells whether that has happened already.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    control(PR_SET_PDEATHSIG, signal.SIGKILL)
    poll = select.poll()
    poll.register(channel, 0)  # a hangup is told unasked
    if os.getppid() != parent or poll.poll(0):
        os._exit(os.EX_OK)


def outlive_parent() -> None:
    if sys.platform == "linux":
        control(PR_SET_PDEATHSIG, 0)


def control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
