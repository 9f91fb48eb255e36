"""Finds the server of this machine, and opens its database for commands that read or change tokens, users and crews."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from windlass.cli.exit_codes import OUT_OF_REACH
from windlass.embedded_postgres.home import Paths
from windlass.errors import WindlassError
from windlass.files import is_locked
from windlass.loopback import http_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from windlass.administration.opening import Administration
    from windlass.config import Settings
    from windlass.store.deployments import Deployment, DeploymentStore


Answer = TypeVar("Answer")


NO_CREW = "Deploy one with: windlass deploy PATH. `windlass dev` has its crew once it has printed the crew's URL."


def administer(settings: Settings, work: Callable[[Administration], Awaitable[Answer]]) -> Answer:
    return asyncio.run(_with_administration(settings, work))


async def _with_administration(settings: Settings, work: Callable[[Administration], Awaitable[Answer]]) -> Answer:
    from windlass import log
    from windlass.administration.opening import administration

    log.configure(settings.log_format, "WARNING")
    async with administration(settings) as opened:
        return await work(opened)


async def chosen_deployment(deployments: DeploymentStore, slug: str | None) -> Deployment:
    """Returns the deployment `slug`, or the only one when `slug` is None. Raises WindlassError when there is none."""
    slugs = [row["slug"] for row in await deployments.all()]
    if slug is None and len(slugs) == 1:
        slug = slugs[0]
    found = await deployments.get(slug) if slug else None
    if found is None:
        raise _not_one(slug, slugs)
    return found


def _not_one(slug: str | None, slugs: list[str]) -> WindlassError:
    if not slugs:
        return WindlassError("There is no crew on this server yet.", NO_CREW)
    known = f"The crews of this server are: {', '.join(slugs)}."
    if slug is None:
        return WindlassError("There is more than one crew.", f"Choose one with --deployment. {known}")
    return WindlassError(f"There is no crew {slug!r}.", known)


def running_server(settings: Settings) -> tuple[str, list[str]] | None:
    """Returns the address and the crews of the server that runs on this home, None when no server runs.

    The lock on the home decides whether a server runs: a killed server leaves its address file behind. A server with a
    database of its own (WINDLASS_DATABASE_URL) has no lock, so the file alone counts.
    """
    if settings.database_url is None and not _is_locked(settings.home):
        return None
    try:
        address, *slugs = settings.address_file.read_text("utf-8").split()
    except (OSError, ValueError):
        return None
    return address, slugs


def _is_locked(home: Path) -> bool:
    try:
        return is_locked(Paths(home).server_lock)
    except PermissionError:
        raise WindlassError(
            f"This user can't read {home}, so a server that runs there can't be found.",
            "Run the command as the user of the server, or set WINDLASS_HOME to another folder.",
        ) from None


def local_url(settings: Settings) -> str:
    """Returns the URL at which this machine reaches the server of these settings.

    For a running server it is the address that the server has written to its address file.
    """
    if running := running_server(settings):
        return running[0]
    return http_url(settings.host, settings.port)


class NoServerHere(WindlassError):  # noqa: N818 - a state of the server
    exit_code = OUT_OF_REACH
