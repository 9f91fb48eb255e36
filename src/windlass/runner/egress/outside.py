"""What the server knows of hosts: addresses of names, and which addresses are its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from windlass.runner.egress.dns import addresses_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from windlass.ip_addresses import Address

LOOK_UPS_AT_ONCE = 16
ANY_PORT = 9
"""A connection of UDP needs one, and sends nothing."""


class Outside:
    """Looks up names for all runs of a worker. `closed` are hosts and ports of the server, such as its database, that
    no run may connect to.
    """

    def __init__(self, closed: Collection[tuple[str, int]] = ()) -> None:
        self._closed = closed
        self._threads: ThreadPoolExecutor | None = None

    async def addresses(self, name: str) -> list[Address]:
        """Returns the addresses of a name, of the versions that this machine uses. Raises socket.gaierror."""
        loop = asyncio.get_running_loop()
        if self._threads is None:
            # A look-up blocks a thread for seconds. Those of crews must not keep those of the server waiting.
            self._threads = ThreadPoolExecutor(LOOK_UPS_AT_ONCE, "windlass-names")
        return await loop.run_in_executor(self._threads, addresses_of, name)

    async def is_own(self, address: Address, port: int) -> bool:
        """Returns whether the address is one of this machine, or that of a closed host."""
        if is_of_this_machine(address):
            return True
        for host, closed in self._closed:
            if port == closed:
                with contextlib.suppress(OSError):
                    if address in await self.addresses(host):
                        return True
        return False

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


def addresses_of(name: str) -> list[Address]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return addresses_in(str(one[4][0]) for one in found)


def is_of_this_machine(address: Address) -> bool:
    """Returns whether an interface of this machine has the address. Packets to it begin and end at the address."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):  # no route leads to it
        probe.connect((str(address), ANY_PORT))
        return bool(addresses_in([probe.getsockname()[0]]) == [address])
    return False
