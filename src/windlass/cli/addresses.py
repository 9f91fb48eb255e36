from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.embedded_postgres.folder_lock import is_held
from windlass.embedded_postgres.paths import Paths

if TYPE_CHECKING:
    from windlass.config import Settings

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names to translate
"""Maps a host that means every address to the address at which the same machine reaches the server."""


def running_server(settings: Settings) -> tuple[str, str] | None:
    """Returns the address and the crew of the server that runs on this home, None when no server runs.

    The lock on the home decides whether a server runs: a killed server leaves its address file behind.
    """
    if not is_held(Paths(settings.home).server_lock):
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
    host = ANY.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
