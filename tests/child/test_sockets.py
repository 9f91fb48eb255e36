"""What the filter of system calls permits on each architecture, as the kernel would execute it."""

from __future__ import annotations

import socket

import pytest

from windlass_child.process.sockets import (
    AND,
    ARCHITECTURE,
    ARGUMENTS,
    AT_LEAST,
    CALLS,
    EQUAL,
    HAS_BITS,
    LOAD,
    MSG_FASTOPEN,
    NUMBER,
    OTHER_NUMBERS,
    PERMIT,
    REFUSE,
    RETURN,
    TCP_ULP,
    Calls,
    Instruction,
    program,
)

pytestmark = pytest.mark.unit
ANY_CALL, NONBLOCKING = 0, 0x800
STREAM, DATAGRAM, RAW = 1, 2, 3
TCP, MPTCP, SCTP = 6, 262, 132
INTERNET = [(one, STREAM | NONBLOCKING, protocol) for one in (socket.AF_INET, socket.AF_INET6) for protocol in (0, TCP)]
OTHERS = [
    (socket.AF_INET, DATAGRAM, 0),
    (socket.AF_INET6, DATAGRAM | NONBLOCKING, 17),
    (socket.AF_INET, RAW, 1),
    (socket.AF_INET, STREAM, MPTCP),
    (socket.AF_INET6, STREAM, SCTP),
    (16, RAW, 0),
    (17, RAW, 0),
    (40, STREAM, 0),
]
"""The last ones: netlink, packets, and the host of a virtual machine."""
each_architecture = pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)


def permits(calls: Calls, number: int, *arguments: int, tcp: bool = True, architecture: int | None = None) -> bool:
    given = {NUMBER: number, ARCHITECTURE: calls.architecture if architecture is None else architecture}
    given |= {ARGUMENTS + 8 * at: value for at, value in enumerate((*arguments, *[0] * 6)[:6])}
    answer = executed(program(calls, tcp=tcp), given)
    assert answer in (PERMIT, REFUSE)
    return answer == PERMIT


def executed(made: list[Instruction], given: dict[int, int]) -> int:
    at = value = 0
    while True:
        code, if_true, if_false, operand = made[at]
        at += 1
        if code == RETURN:
            return operand
        if code == LOAD:
            value = given[operand]
        elif code == AND:
            value &= operand
        else:
            is_true = {EQUAL: value == operand, AT_LEAST: value >= operand, HAS_BITS: bool(value & operand)}[code]
            at += if_true if is_true else if_false


@each_architecture
def test_only_sockets_of_tcp_and_of_the_machine_are_made(calls: Calls) -> None:
    assert all(permits(calls, calls.socket, *one) for one in [*INTERNET, (socket.AF_UNIX, DATAGRAM, 0)])
    assert not any(permits(calls, calls.socket, *one) for one in OTHERS)
    assert permits(calls, calls.socketpair, socket.AF_UNIX, STREAM)
    assert not permits(calls, calls.socketpair, 30, STREAM)


@each_architecture
def test_without_tcp_only_those_of_the_machine_are_made(calls: Calls) -> None:
    assert permits(calls, calls.socket, socket.AF_UNIX, STREAM, tcp=False)
    assert not any(permits(calls, calls.socket, *one, tcp=False) for one in [*INTERNET, *OTHERS])
    assert not permits(calls, calls.socketpair, socket.AF_INET, STREAM, tcp=False)


@each_architecture
def test_what_landlock_does_not_check_is_refused(calls: Calls) -> None:
    for call, before in ((calls.sendto, 3), (calls.sendmsg, 2), (calls.sendmmsg, 3)):
        assert permits(calls, call, *[MSG_FASTOPEN] * before, socket.MSG_DONTWAIT, MSG_FASTOPEN)
        assert not permits(calls, call, *[0] * before, socket.MSG_DONTWAIT | MSG_FASTOPEN)
    assert not permits(calls, calls.setsockopt, 3, TCP, TCP_ULP)
    assert permits(calls, calls.setsockopt, 3, TCP, socket.TCP_NODELAY)
    assert permits(calls, calls.setsockopt, TCP, socket.SOL_SOCKET, TCP_ULP)
    assert not permits(calls, calls.io_uring_setup)
    assert not permits(calls, calls.io_uring_setup, tcp=False)


@each_architecture
@pytest.mark.parametrize("tcp", [True, False])
def test_no_call_has_another_form(calls: Calls, tcp: bool) -> None:
    assert permits(calls, ANY_CALL, tcp=tcp)
    assert not permits(calls, ANY_CALL, tcp=tcp, architecture=0x40000003)
    assert not permits(calls, OTHER_NUMBERS + calls.socket, socket.AF_INET, STREAM, tcp=tcp)


@each_architecture
def test_the_kernel_accepts_the_length_of_its_jumps(calls: Calls) -> None:
    made = program(calls, tcp=True)
    assert all(0 <= one < 256 for _, *jumps, _ in made for one in jumps)
    assert len(made) < 4096
