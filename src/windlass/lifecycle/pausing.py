from __future__ import annotations

from typing import TYPE_CHECKING

from windlass import log

if TYPE_CHECKING:
    from windlass.store.deployments import DeploymentStore

logger = log.logger(__name__)


async def pause(store: DeploymentStore, slug: str) -> bool:
    """From now on none of its kickoffs is started; those that run go on. False when there is no such deployment."""
    if found := await store.pause(slug):
        logger.event("deployment.paused", deployment=slug)
    return found


async def resume(store: DeploymentStore, slug: str) -> bool:
    """False when there is no such deployment."""
    if found := await store.resume(slug):
        logger.event("deployment.resumed", deployment=slug)
    return found
