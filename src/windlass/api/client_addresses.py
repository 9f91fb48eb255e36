"""The address of a client: for the audit log, and the name under which its requests are counted."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING

from windlass.access.authentication import Source

if TYPE_CHECKING:
    from starlette.types import Scope

IPV6_CLIENT_PREFIX = 64
"""Leading bits of an IPv6 address that identify one client. The client can choose the other bits freely."""
LONGEST_SOURCE = 64
"""Characters of an address, or of the text that a proxy sends in its place."""


def address_of(scope: Scope) -> str:
    """Returns the address of the client for the audit log."""
    client = scope.get("client")
    return str(client[0])[:LONGEST_SOURCE] if client else source_of(None).name


# See docs/decisions/api.md#no-limit-counts-by-the-address-of-a-proxy
def source_of_request(scope: Scope) -> Source:
    client = scope.get("client")
    return source_of(client[0] if client else None)


@lru_cache(maxsize=4096)
def source_of(host: str | None) -> Source:
    """Returns the name under which a client's requests are counted. An IPv6 client is counted by its network.

    Addresses of this machine and unknown addresses are not limited.
    """
    if host is None:
        return Source("unknown", limited=False)
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return Source(host[:LONGEST_SOURCE], limited=True)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((int(address), IPV6_CLIENT_PREFIX), strict=False)
            return Source(str(network), limited=not address.is_loopback)
        address = address.ipv4_mapped
    return Source(str(address), limited=not address.is_loopback)
