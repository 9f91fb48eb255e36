from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.cli.checks.finding import Finding
from windlass.embedded.postgres import EmbeddedPostgres, running_url
from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.store.database import Database

if TYPE_CHECKING:
    from windlass.config import Settings


def database(settings: Settings) -> Finding:
    if settings.database_url:
        asyncio.run(_reach(settings.database_url.get_secret_value()))
        return Finding("the PostgreSQL of WINDLASS_DATABASE_URL answers")
    if url := running_url(settings.home):
        return _running(url, settings.home)
    return _started(settings.home)


def _running(url: str, home: Path) -> Finding:
    try:
        asyncio.run(_reach(url))
    except DatabaseUnavailable as error:
        raise WindlassError(error.message, f"A server runs on {home}; see {home / 'postgres' / 'log'}.") from error
    return Finding("the embedded PostgreSQL of the running server answers")


def _started(home: Path) -> Finding:
    """In a folder beside the real data where there are any, so that the same disk and rights are tried."""
    place = Path(tempfile.mkdtemp(prefix="doctor-", dir=home if home.is_dir() else None))
    place.chmod(0o711)  # as root, PostgreSQL runs as another user
    postgres = EmbeddedPostgres(place)
    try:
        postgres.start()
    finally:
        postgres.stop()
        shutil.rmtree(place, ignore_errors=True)
    return Finding("the embedded PostgreSQL starts, answers and stops")


async def _reach(url: str) -> None:
    """Raises DatabaseUnavailable, which says why, or SettingsError for what is no URL; neither with the password."""
    async with Database(url, connections=2):
        pass
