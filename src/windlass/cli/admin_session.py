"""Opens the database for the commands that read or change tokens, users and deployments of a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from windlass.config import Settings
    from windlass.store.deployments import Deployment, DeploymentStore
    from windlass.wiring.infrastructure import Administration

Answer = TypeVar("Answer")


def administer(settings: Settings, work: Callable[[Administration], Awaitable[Answer]]) -> Answer:
    return asyncio.run(_with_administration(settings, work))


async def _with_administration(settings: Settings, work: Callable[[Administration], Awaitable[Answer]]) -> Answer:
    from windlass import log
    from windlass.wiring.infrastructure import administration

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
        return WindlassError("There is no crew on this server yet.", "Serve one with: windlass dev PATH")
    known = f"The crews of this server are: {', '.join(slugs)}."
    if slug is None:
        return WindlassError("There is more than one crew.", f"Choose one with --deployment. {known}")
    return WindlassError(f"There is no crew {slug!r}.", known)
