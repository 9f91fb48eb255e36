"""Checks the database, and a running server of this home."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from windlass.cli.checks.machine import Finding, Level
from windlass.cli.this_server import running_server
from windlass.embedded_postgres.postgres import EmbeddedPostgres, running_url
from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.loopback import http_url
from windlass.store.database import Database, check_url, demand_session_defaults, refuse_transaction_pooling
from windlass.store.write_checks import write_fault

if TYPE_CHECKING:
    from windlass.config import Settings


def database(settings: Settings) -> Finding:
    if settings.database_url:
        given = settings.database_url.get_secret_value()
        if settings.database_direct_url:
            asyncio.run(_reach(settings.database_direct_url.get_secret_value(), given))
        else:
            asyncio.run(_reach(given))
        return Finding("the PostgreSQL of WINDLASS_DATABASE_URL answers and accepts writes")
    if url := running_url(settings.home):
        return _running(url, settings.home)
    return _started(settings.home)


def _running(url: str, home: Path) -> Finding:
    try:
        asyncio.run(_reach(url))
    except DatabaseUnavailable as error:
        raise WindlassError(error.message, f"A server runs on {home}; see {home / 'postgres' / 'log'}.") from error
    return Finding("the embedded PostgreSQL of the running server answers and accepts writes")


def _started(home: Path) -> Finding:
    """Starts a database in a temporary folder of the home, if there is one.

    The test then uses the same disk and permissions as the real data.
    """
    place = Path(tempfile.mkdtemp(prefix="doctor-", dir=home if home.is_dir() else None))
    place.chmod(0o711)  # as root, PostgreSQL runs as another user
    postgres = EmbeddedPostgres(place)
    try:
        postgres.start()
    finally:
        postgres.stop()
        shutil.rmtree(place, ignore_errors=True)
    return Finding("the embedded PostgreSQL starts, answers and stops")


async def _reach(url: str, pooler: str | None = None) -> None:
    """Connects to the database, and writes to it. Raises DatabaseUnavailable with the cause.

    Raises SettingsError when `url` is no URL or leads to a pooler that can't be used. No message has the password.
    """
    check_url(url)
    await refuse_transaction_pooling(url)
    if pooler:
        check_url(pooler)
        await demand_session_defaults(pooler)
    async with Database(url, pooler=pooler, connections=2) as database:
        if fault := await write_fault(database):
            raise DatabaseUnavailable(fault)


SECONDS = 15.0
"""A server that waits for its database and its disks answers within these."""


def server(settings: Settings) -> Finding:
    """Checks that the server of this home is ready, on any port. If none runs, checks that the port is free."""
    url = _running_url(settings)
    if url is None and _is_free(settings.host, settings.port):
        place = f"{settings.host}:{settings.port}"
        return Finding(
            f"none runs on {settings.home}, and {place} is free for one (WINDLASS_HOME, WINDLASS_HOST, WINDLASS_PORT)"
        )
    url = url or http_url(settings.host, settings.port)
    answer = _ready(url)
    if failing := [name for name, state in answer["checks"].items() if state != "ok"]:
        problems = [str(text) for text in dict(answer.get("problems", {})).values()]
        state = "is ready, but not all of it works" if answer.get("status") == "ok" else "is not ready"
        raise WindlassError(
            f"the server at {url} {state}: {', '.join(failing)}. {' '.join(problems)}".strip(),
            "See its log for the cause.",
        )
    if degraded := answer.get("degraded"):
        codes = ", ".join(map(str, degraded))
        return Finding(
            f"the one at {url} is ready, and can't do all with the frameworks of its crews: {codes} "
            "(docs/reference/errors.md). "
            "Install newer releases in their environments.",
            Level.WARN,
        )
    return Finding(f"the one at {url} is ready")


def _running_url(settings: Settings) -> str | None:
    """Returns the address of the server that runs on this home.

    With WINDLASS_DATABASE_URL only the address file names it, which a killed server leaves behind. So it must accept
    connections.
    """
    running = running_server(settings)
    if running is None or settings.database_url is None:
        return running[0] if running else None
    place = urlsplit(running[0])
    try:
        socket.create_connection((place.hostname or "", place.port or 80), SECONDS).close()
    except OSError:
        return None
    return running[0]


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise WindlassError(
                f"a server can't listen on {host}:{port}: {error.strerror}.", "Set WINDLASS_HOST or WINDLASS_PORT."
            ) from error
        return False
    return True


def _ready(url: str) -> dict[str, Any]:
    """Returns the answer of the server's `/ready`. Raises WindlassError when another program answers."""
    try:
        answer = httpx.get(f"{url}/ready", timeout=SECONDS, trust_env=False).json()
        return {**answer, "checks": dict(answer["checks"])}
    except (httpx.HTTPError, ValueError, TypeError, KeyError):
        raise WindlassError(
            f"another program than Windlass listens at {url}.", "Stop it, or choose another port with WINDLASS_PORT."
        ) from None
