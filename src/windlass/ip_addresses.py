"""Decides whether an IP address is one of the public internet."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.ip_network("64:ff9b::/96")
NOT_PUBLIC = tuple(
    ipaddress.ip_network(one)
    for one in (
        "192.0.0.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.175.48.0/24",
        "64:ff9b:1::/48",
        "100:0:0:1::/64",
        "2001::/23",
        "2620:4f:8000::/48",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    )
)
"""Networks of the registries of special addresses that some releases of Python take for public ones."""


def contained(address: str) -> Iterator[Address]:
    """Yields the address, and each IPv4 address that it contains."""
    found = ipaddress.ip_address(address)
    yield found
    if isinstance(found, ipaddress.IPv4Address):
        return
    if found in NAT64:
        yield ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
    yield from (one for one in (found.ipv4_mapped, found.sixtofour, *(found.teredo or ())) if one)


def is_public(address: str) -> bool:
    """Returns whether the address, and each IPv4 address that it contains, is of the public internet."""
    return all(map(_is_public, contained(address)))


def _is_public(address: Address) -> bool:
    is_carrier = isinstance(address, ipaddress.IPv6Address) and (address in NAT64 or address.ipv4_mapped is not None)
    special = any(address in network for network in NOT_PUBLIC if network.version == address.version)
    return is_carrier or (address.is_global and not address.is_multicast and not special)
