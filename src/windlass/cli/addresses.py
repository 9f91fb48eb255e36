from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.config import Settings

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names to translate
"""Where a server is reached from its own machine when it listens on every address."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def local_url(settings: Settings) -> str:
    """Where the server of these settings is reached on this machine; of one that runs, as it says itself."""
    with suppress(OSError):
        return settings.address_file.read_text()
    host = ANY.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
