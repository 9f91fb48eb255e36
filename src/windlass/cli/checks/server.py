from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

import httpx

from windlass.cli.addresses import local_url
from windlass.cli.checks.finding import Finding
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from windlass.config import Settings

SECONDS = 5.0


def server(settings: Settings) -> Finding:
    """A server that runs is asked whether it is ready; without one, its port must be free."""
    if _is_free(settings.host, settings.port):
        return Finding(f"none runs; {settings.host}:{settings.port} is free for one")
    failing = [name for name, state in _ready(local_url(settings)).items() if state != "ok"]
    if failing:
        raise WindlassError(
            f"the server at {local_url(settings)} is not ready: {', '.join(failing)}.", "Its log says why."
        )
    return Finding(f"the one at {local_url(settings)} is ready")


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise WindlassError(
                f"nobody can listen on {host}:{port}: {error.strerror}.", "Set WINDLASS_HOST or WINDLASS_PORT."
            ) from error
        return False
    return True


def _ready(url: str) -> dict[str, Any]:
    """What the server says of each thing that must hold. Raises WindlassError for another program."""
    try:
        answer = httpx.get(f"{url}/ready", timeout=SECONDS, trust_env=False).json()
        return dict(answer["checks"])
    except (httpx.HTTPError, ValueError, TypeError, KeyError):
        raise WindlassError(
            f"another program than Windlass listens at {url}.", "Stop it, or choose another port with WINDLASS_PORT."
        ) from None
