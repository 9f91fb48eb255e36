"""Makes a network namespace in which each address is a local one, and the sockets that take the connections in it.

The server accepts these connections from outside, and forwards those that are permitted (windlass.runner.egress).
"""

# See docs/decisions/security.md#a-run-has-a-network-of-its-own

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

SET_FLAGS, IS_UP = 0x8914, 1
INTERFACE, INTERFACE_FLAGS = "lo", struct.Struct("16sh")
MESSAGE, ROUTE, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBBBBBBBI"), struct.Struct("=HHI")
NEW_ROUTE, REQUEST_ANSWERED_CREATE = 24, 0x0405
TABLE_LOCAL, BY_BOOT, SCOPE_HOST, TYPE_LOCAL, OUTPUT_INTERFACE = 255, 3, 254, 2, 4
DNS = 53
IP_PKTINFO = 8
BACKLOG = 128


def catch_all(ports: list[int]) -> list[socket.socket]:
    """Sets up the network of this process, which is a new namespace, and returns the sockets for these ports: one for
    connections on each, and one for look-ups.

    Raises OSError. It needs the rights in the namespace.
    """
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, INTERFACE_FLAGS.pack(INTERFACE.encode(), IS_UP))
    add_local_route(socket.AF_INET)
    with contextlib.suppress(OSError):  # a machine without IPv6: its addresses are not reachable then
        add_local_route(socket.AF_INET6)
    family = family_of_sockets()
    return [listener(family, port) for port in ports] + [datagrams(family)]


def add_local_route(family: int) -> None:
    """Makes each address of a family a local one, as `ip route add local default dev lo` does."""
    route = ROUTE.pack(family, 0, 0, 0, TABLE_LOCAL, BY_BOOT, SCOPE_HOST, TYPE_LOCAL, 0)
    body = route + ATTRIBUTE.pack(ATTRIBUTE.size, OUTPUT_INTERFACE, socket.if_nametoindex(INTERFACE))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(MESSAGE.pack(MESSAGE.size + len(body), NEW_ROUTE, REQUEST_ANSWERED_CREATE, 1, 0) + body)
        (code,) = struct.unpack_from("=i", kernel.recv(4096), MESSAGE.size)
    if code:
        raise OSError(-code, f"no route can be set: {os.strerror(-code)}")


def family_of_sockets() -> socket.AddressFamily:
    """Returns IPv6, whose sockets take connections of IPv4 too, where the kernel has it."""
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM).close()
    except OSError:
        return socket.AF_INET
    return socket.AF_INET6


def listener(family: socket.AddressFamily, port: int) -> socket.socket:
    """Returns a socket for connections to this port of each address."""
    made = bound(family, socket.SOCK_STREAM, port)
    made.listen(BACKLOG)
    return made


def datagrams(family: socket.AddressFamily) -> socket.socket:
    """Returns a socket for look-ups. Each comes with the address that it was sent to."""
    made = bound(family, socket.SOCK_DGRAM, DNS)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    else:
        made.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    return made


def bound(family: socket.AddressFamily, kind: socket.SocketKind, port: int) -> socket.socket:
    made = socket.socket(family, kind)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.bind(("", port))
    return made
