"""The operations on deployments that the control API offers. Each change is in the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.deployments import crews
from windlass.errors import WindlassError
from windlass.store.overview import DeploymentFilter

if TYPE_CHECKING:
    from windlass.access.tokens import ShownTokens, Tokens
    from windlass.store.audit import Actor
    from windlass.store.deployments import Deployment, DeploymentStore
    from windlass.store.overview import DeploymentRow, OverviewStore


class NoSuchDeployment(WindlassError):  # noqa: N818 - describes the deployment
    def __init__(self, slug: str) -> None:
        super().__init__(
            f"There is no deployment {slug!r}.", "`windlass deployments list` and GET /deployments list them."
        )


class Management:
    def __init__(self, store: DeploymentStore, overview: OverviewStore, tokens: Tokens) -> None:
        self._store = store
        self._overview = overview
        self._tokens = tokens

    async def deployments(self, wanted: DeploymentFilter, *, limit: int) -> list[DeploymentRow]:
        return await self._overview.deployments(wanted, limit=limit)

    async def show(self, slug: str) -> DeploymentRow:
        """Raises NoSuchDeployment, as all methods with a slug."""
        found = await self._overview.deployments(DeploymentFilter(slug=slug), limit=1)
        if not found:
            raise NoSuchDeployment(slug)
        return found[0]

    async def pause(self, slug: str, by: Actor) -> DeploymentRow:
        """Stops further starts of kickoffs. Of two calls at once, both succeed: the deployment is paused."""
        if not await crews.pause(self._store, slug, by=by):
            raise NoSuchDeployment(slug)
        return await self.show(slug)

    async def resume(self, slug: str, by: Actor) -> DeploymentRow:
        if not await crews.resume(self._store, slug, by=by):
            raise NoSuchDeployment(slug)
        return await self.show(slug)

    async def tokens(self, slug: str) -> ShownTokens:
        return await self._tokens.show(await self.get(slug))

    async def get(self, slug: str) -> Deployment:
        found = await self._store.get(slug)
        if found is None:
            raise NoSuchDeployment(slug)
        return found
