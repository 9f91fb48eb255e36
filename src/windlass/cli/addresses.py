from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.embedded.folder_lock import is_held
from windlass.embedded.places import Places

if TYPE_CHECKING:
    from windlass.config import Settings

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names to translate
"""Where a server is reached from its own machine when it listens on every address."""


def running_server(settings: Settings) -> tuple[str, str] | None:
    """Address and crew of the server that runs on this home. What a killed one left behind is not believed."""
    if not is_held(Places(settings.home).server_lock):
        return None
    try:
        address, slug = settings.address_file.read_text("utf-8").split()
    except (OSError, ValueError):
        return None
    return address, slug


def local_url(settings: Settings) -> str:
    """Where the server of these settings is reached on this machine; of one that runs, as it says itself."""
    if running := running_server(settings):
        return running[0]
    host = ANY.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
