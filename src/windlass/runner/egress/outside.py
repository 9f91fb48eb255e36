"""What the server knows of hosts: addresses of names, and which addresses are its own."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.runner.egress.dns import addresses_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from windlass.ip_addresses import Address
    from windlass.runner.egress.proxy import Proxy

RESOLVER, DNS = Path("/etc/resolv.conf"), 53
NAMESERVER = re.compile(r"^nameserver[ \t]+(\S+)", re.MULTILINE)
SEARCHED = re.compile(r"^(?:search|domain)[ \t]+(.+)", re.MULTILINE)
PRIVATE_DOMAINS = ("internal", "local", "localhost")
ANSWER_SECONDS, LARGEST_ANSWER = 5.0, 4096
LOOK_UPS_AT_ONCE = 16
ANY_PORT = 9
"""A connection of UDP needs one, and sends nothing."""


class Outside:
    """Looks up names for all runs of a worker. `closed` are hosts and ports of the server, such as its database, that
    no run may connect to. Connections to others go through `proxy`, if the server has one. `resolver` is the file that
    names the nameservers of this machine.
    """

    def __init__(
        self,
        closed: Collection[tuple[str, int]] = (),
        proxy: Proxy | None = None,
        resolver: Path = RESOLVER,
        port: int = DNS,
    ) -> None:
        self.proxy = proxy
        self._closed = closed
        self.resolver = resolver
        self._port = port
        self._threads: ThreadPoolExecutor | None = None

    async def addresses(self, name: str) -> list[Address]:
        """Returns the addresses of a name, of the versions that this machine uses. Raises socket.gaierror."""
        loop = asyncio.get_running_loop()
        if self._threads is None:
            # A look-up blocks a thread for seconds. Those of crews must not keep those of the server waiting.
            self._threads = ThreadPoolExecutor(LOOK_UPS_AT_ONCE, "windlass-names")
        return await loop.run_in_executor(self._threads, addresses_of, name)

    async def passed_on(self, question: bytes) -> bytes | None:
        """Returns the answer of the first nameserver of this machine to a question of DNS, which is passed on as it
        is; None without an answer in time. So clients find services (SRV) and texts (TXT).
        """
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            host = NAMESERVER.search(self.resolver.read_text("utf-8", "replace"))
            address = ip_address(host[1] if host else "127.0.0.1")
            family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.setblocking(False)
                asking.connect((str(address), self._port))
                asking.send(question)
                async with asyncio.timeout(ANSWER_SECONDS):
                    while (answer := await loop.sock_recv(asking, LARGEST_ANSWER + 1))[:2] != question[:2]:
                        pass
                    return answer if len(answer) <= LARGEST_ANSWER else None
        return None

    async def only_the_proxy_knows(self, name: str) -> bool:
        """Returns whether a name that this machine can't look up may be one that the proxy of the server can."""
        if self.proxy is None or "." not in name or self.proxy.is_direct([name]):
            return False
        found: list[str] = []
        with contextlib.suppress(OSError):
            found = SEARCHED.findall(self.resolver.read_text("utf-8", "replace").lower())
        # A resolver makes names of these domains. An answer to one of them would hide the name that is meant.
        domains = [one for line in found for one in line.split()]
        return not any(name.endswith(f".{one}") for one in (*PRIVATE_DOMAINS, *domains))

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
