"""Starts a program that can't make some system calls, as in a container: python refused_calls.py CALLS PROGRAM ..."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from windlass_child.process.hardening import harden
from windlass_child.process.sockets import (
    CALLS,
    EQUAL,
    LOAD,
    NUMBER,
    PERMIT,
    PR_SET_SECCOMP,
    RETURN,
    argument,
    block,
    install,
    when,
)

if TYPE_CHECKING:
    from windlass_child.process.sockets import Instruction

NUMBERS = {"unshare": (272, 97), "landlock": (444, 444), "prctl": (157, 167)}
"""The numbers on x86_64 and aarch64. Of prctl only that is refused which sets a filter."""
NOT_PERMITTED = 0x00050000 | errno.EPERM


def filter_of(calls: list[str]) -> list[Instruction]:
    made: list[Instruction] = [(LOAD, 0, 0, NUMBER)]
    for name in calls:
        refused: list[Instruction] = [(RETURN, 0, 0, NOT_PERMITTED)]
        if name == "prctl":
            refused = [*argument(0), *when(EQUAL, PR_SET_SECCOMP, NOT_PERMITTED), (RETURN, 0, 0, PERMIT)]
        made += block(EQUAL, NUMBERS[name][os.uname().machine == "aarch64"], refused)
    return [*made, (RETURN, 0, 0, PERMIT)]


def refusing(*calls: str) -> tuple[str, ...]:
    """Returns the beginning of a command that starts another one so."""
    return (sys.executable, str(Path(__file__)), ",".join(calls))


def is_possible() -> bool:
    return sys.platform == "linux" and os.uname().machine in CALLS


if __name__ == "__main__":
    harden()
    install(filter_of(sys.argv[1].split(",")))
    os.execv(sys.argv[2], sys.argv[2:])
