"""The addresses of this machine."""

from __future__ import annotations

import ipaddress

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names to translate
"""Maps a host that means every address to the address at which the same machine reaches the server."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def http_url(host: str, port: int) -> str:
    """Returns the URL at which this machine reaches a server that listens on `host`."""
    named = ANY.get(host, host)
    return f"http://{f'[{named}]' if ':' in named and not named.startswith('[') else named}:{port}"
