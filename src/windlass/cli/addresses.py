from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.embedded_postgres.home import Paths
from windlass.files import is_locked
from windlass.loopback import http_url

if TYPE_CHECKING:
    from windlass.config import Settings


def running_server(settings: Settings) -> tuple[str, str] | None:
    """Returns the address and the crew of the server that runs on this home, None when no server runs.

    The lock on the home decides whether a server runs: a killed server leaves its address file behind.
    """
    if not is_locked(Paths(settings.home).server_lock):
        return None
    try:
        address, slug = settings.address_file.read_text("utf-8").split()
    except (OSError, ValueError):
        return None
    return address, slug


def local_url(settings: Settings) -> str:
    """Returns the URL at which this machine reaches the server of these settings.

    For a running server it is the address that the server has written to its address file.
    """
    if running := running_server(settings):
        return running[0]
    return http_url(settings.host, settings.port)
