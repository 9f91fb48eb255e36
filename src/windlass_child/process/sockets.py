"""Forbids a process, and all that it will start, most kinds of sockets: by seccomp, which needs no rights.

Where a machine permits no namespaces, the zygotes of crews with a strict egress have such a filter. Their runs reach
the proxy of the worker alone (windlass.runner.egress.run_proxy), or nothing.
"""

# See docs/decisions/security.md#without-namespaces-a-run-reaches-a-proxy-alone

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

from windlass_child.process.hardening import confine

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_SECCOMP, FILTER = 22, 2
INSTRUCTION, PROGRAM = struct.Struct("=HBBI"), struct.Struct("@HP")
LOAD, AND, RETURN = 0x20, 0x54, 0x06
EQUAL, AT_LEAST, HAS_BITS = 0x15, 0x35, 0x45
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in what a filter sees of a system call (struct seccomp_data). Of each argument's 8 bytes the kernel, and so
the filter, reads the lower 4.
"""
PERMIT, REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
OTHER_NUMBERS = 0x40000000
"""The first number of the system calls of x32, which have the architecture of x86_64."""
ANY_PORT = 1
TYPE_OF_SOCKET, MSG_FASTOPEN, TCP_ULP = 0xF, 0x20000000, 31

CLOSED, FILTERED, TO_A_PORT = "closed", "filtered", "to a port"
"""What a machine permits: no filter; a filter; a filter, and a Landlock domain that connects to one port alone."""

Instruction = tuple[int, int, int, int]
"""Its code, the instructions that it skips if its comparison is true, and if it is false, and its operand."""


class Calls(NamedTuple):
    """The numbers of system calls on an architecture."""

    architecture: int
    socket: int
    socketpair: int
    sendto: int
    sendmsg: int
    sendmmsg: int
    setsockopt: int
    io_uring_setup: int = 425


CALLS = {
    "x86_64": Calls(0xC000003E, 41, 53, 44, 46, 307, 54),
    "aarch64": Calls(0xC00000B7, 198, 199, 206, 211, 269, 208),
}


def program(calls: Calls, *, tcp: bool) -> list[Instruction]:
    """Returns the filter. It permits sockets within the machine (AF_UNIX), and with `tcp` those of TCP.

    It refuses system calls in the form of another architecture, and io_uring, whose sockets it would not see. With
    `tcp` it refuses what would connect without a check of Landlock: other protocols with streams (MPTCP, SCTP), data
    that opens a connection (MSG_FASTOPEN), and a change of a socket's protocol (TCP_ULP).
    """
    local = [*argument(0), *when(EQUAL, socket.AF_UNIX, PERMIT)]
    internet = [
        *argument(1), (AND, 0, 0, TYPE_OF_SOCKET), *unless(EQUAL, socket.SOCK_STREAM, REFUSE),
        *argument(2), *when(EQUAL, 0, PERMIT), *when(EQUAL, socket.IPPROTO_TCP, PERMIT), (RETURN, 0, 0, REFUSE),
    ]  # fmt: skip
    of_internet = [one for family in (socket.AF_INET, socket.AF_INET6) for one in block(EQUAL, family, internet)]
    made = [
        (LOAD, 0, 0, ARCHITECTURE), *unless(EQUAL, calls.architecture, REFUSE),
        (LOAD, 0, 0, NUMBER), *when(AT_LEAST, OTHER_NUMBERS, REFUSE), *when(EQUAL, calls.io_uring_setup, REFUSE),
        *block(EQUAL, calls.socket, [*local, *(of_internet if tcp else []), (RETURN, 0, 0, REFUSE)]),
        *block(EQUAL, calls.socketpair, [*local, (RETURN, 0, 0, REFUSE)]),
    ]  # fmt: skip
    if tcp:
        for call, flags in ((calls.sendto, 3), (calls.sendmsg, 2), (calls.sendmmsg, 3)):
            checks = [*argument(flags), *when(HAS_BITS, MSG_FASTOPEN, REFUSE), (RETURN, 0, 0, PERMIT)]
            made += block(EQUAL, call, checks)
        option = [*argument(2), *when(EQUAL, TCP_ULP, REFUSE), (RETURN, 0, 0, PERMIT)]
        made += block(EQUAL, calls.setsockopt, [*argument(1), *block(EQUAL, socket.IPPROTO_TCP, option)])
    return [*made, (RETURN, 0, 0, PERMIT)]


def argument(number: int) -> list[Instruction]:
    return [(LOAD, 0, 0, ARGUMENTS + 8 * number)]


def when(comparison: int, operand: int, answer: int) -> list[Instruction]:
    return block(comparison, operand, [(RETURN, 0, 0, answer)])


def unless(comparison: int, operand: int, answer: int) -> list[Instruction]:
    return [(comparison, 1, 0, operand), (RETURN, 0, 0, answer)]


def block(comparison: int, operand: int, then: list[Instruction]) -> list[Instruction]:
    """Returns instructions of which `then` is skipped if the comparison is false."""
    return [(comparison, 0, len(then), operand), *then]


def forbid(*, tcp: bool) -> None:
    """Puts the filter into force for this process. It needs `no_new_privs`, and a single thread. Raises OSError."""
    calls = CALLS.get(os.uname().machine) if sys.maxsize > 1 << 32 and sys.byteorder == "little" else None
    if sys.platform != "linux" or calls is None:
        raise OSError(errno.ENOSYS, "there is no filter of system calls for this system")
    install(program(calls, tcp=tcp))


def install(filter_of_calls: list[Instruction]) -> None:
    instructions = ctypes.create_string_buffer(b"".join(INSTRUCTION.pack(*one) for one in filter_of_calls))
    given = PROGRAM.pack(len(filter_of_calls), ctypes.addressof(instructions))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, FILTER, given, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"no filter of system calls can be set: {os.strerror(number)}")


def permitted() -> str:
    """Returns what this machine permits, as a trial shows: CLOSED, FILTERED or TO_A_PORT. It changes this process."""
    try:
        forbid(tcp=True)
    except OSError:
        return CLOSED
    confine(port=ANY_PORT)
    if not is_forbidden(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()):
        return CLOSED
    return TO_A_PORT if is_forbidden(connect_to_another_port) else FILTERED


def is_forbidden(attempt: Callable[[], None]) -> bool:
    try:
        attempt()
    except OSError as error:
        return error.errno == errno.EACCES
    return False


def connect_to_another_port() -> None:
    with socket.socket() as trial:
        trial.connect(("127.0.0.1", ANY_PORT + 1))
