"""The operations on deployments that the control API offers. Each change is in the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass import log
from windlass.deployments.settings import check_role, merged, shown_settings
from windlass.store.audit import Change
from windlass.store.managing import NoSuchDeployment
from windlass.store.overview import DeploymentFilter, WarningRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from windlass.access.tokens import MaskedToken, ShownTokens, Tokens
    from windlass.deployments.members import Members
    from windlass.deployments.settings import ShownSettings
    from windlass.deployments.variables import GivenVariable, Variable, Variables
    from windlass.kickoffs.retention import Retention
    from windlass.projects.options import Options
    from windlass.rights import Role
    from windlass.secrets.secret import Secret, TokenKind
    from windlass.store.audit import Actor
    from windlass.store.deployments import Deployment, DeploymentStore
    from windlass.store.overview import DeploymentRow, OverviewStore


logger = log.logger(__name__)


class Management:
    def __init__(
        self,
        store: DeploymentStore,
        overview: OverviewStore,
        tokens: Tokens,
        variables: Variables,
        members: Members,
        server: Options,
    ) -> None:
        self._store = store
        self._overview = overview
        self._tokens = tokens
        self._variables = variables
        self._members = members
        self._server = server

    @property
    def retention(self) -> Retention:
        """Returns the retention of deployments that set none."""
        return self._server.retention

    async def deployments(self, wanted: DeploymentFilter, *, limit: int) -> list[DeploymentRow]:
        return await self._overview.deployments(wanted, limit=limit)

    async def show(self, slug: str) -> DeploymentRow:
        """Raises NoSuchDeployment, as all methods with a slug."""
        found = await self._overview.deployments(DeploymentFilter(slug=slug), limit=1)
        if not found:
            raise NoSuchDeployment(slug)
        return found[0]

    async def warnings(self, slug: str) -> list[WarningRow]:
        """Returns the warnings of the current version, then those that only the newest kickoffs have."""
        deployment = await self.get(slug)
        of_kickoffs = await self._overview.warnings(deployment.id)
        counts = {one.code: one.kickoffs for one in of_kickoffs}
        found = deployment.version.manifest.warnings if deployment.version else ()
        of_version = [WarningRow(one["code"], one["message"], None, counts.get(one["code"], 0)) for one in found]
        known = {one.code for one in of_version}
        return [*of_version, *(one for one in of_kickoffs if one.code not in known)]

    async def pause(self, slug: str, by: Actor) -> DeploymentRow:
        """Stops further starts of kickoffs. Of two calls at once, both succeed: the deployment is paused."""
        if not await self._store.pause(slug, Change(by, "deployment.pause", slug)):
            raise NoSuchDeployment(slug)
        logger.event("deployment.paused", deployment=slug)
        return await self.show(slug)

    async def resume(self, slug: str, by: Actor) -> DeploymentRow:
        if not await self._store.resume(slug, Change(by, "deployment.resume", slug)):
            raise NoSuchDeployment(slug)
        logger.event("deployment.resumed", deployment=slug)
        return await self.show(slug)

    async def tokens(self, slug: str, by: Actor) -> ShownTokens:
        return await self._tokens.show(await self.get(slug), by=by)

    async def masked_tokens(self, slug: str) -> list[MaskedToken]:
        return await self._tokens.masked(await self.get(slug))

    async def show_token(self, slug: str, kind: TokenKind, by: Actor) -> Secret:
        return await self._tokens.show_one(await self.get(slug), kind, by=by)

    async def rotate_token(self, slug: str, kind: TokenKind, by: Actor) -> None:
        await self._tokens.rotate_shown(await self.get(slug), kind, by=by)

    async def settings(self, slug: str) -> ShownSettings:
        deployment = await self.get(slug)
        return await self._with_warnings(shown_settings(deployment, deployment.settings, self._server))

    async def change_settings(self, slug: str, patch: Mapping[str, Any], by: Actor, role: Role) -> ShownSettings:
        """Merges `patch` into the own settings. They act from the next kickoff on. `role` is that of the person. Raises
        BadSettings and OwnersOnly.

        Two changes at once are both made, one after the other; where both set the same member, the later one stays.
        """
        check_role(patch, role)
        change = Change(by, "deployment.settings", slug, {"settings": patch})
        own = await self._store.change_settings(slug, lambda own: merged(own, patch), change)
        if own is None:
            raise NoSuchDeployment(slug)
        logger.event("deployment.settings_changed", deployment=slug, members=",".join(sorted(patch)))
        return await self._with_warnings(shown_settings(await self.get(slug), own, self._server))

    async def _with_warnings(self, found: ShownSettings) -> ShownSettings:
        return found.with_users(await self._tokens.known_names(found.approvers))

    async def variables(self, slug: str) -> list[Variable]:
        return await self._variables.of(await self.get(slug))

    async def set_variables(self, slug: str, given: Sequence[GivenVariable], by: Actor) -> list[Variable]:
        """Sets all of these variables, or none, and keeps the others. Returns all variables of the deployment.

        Where only members see the deployment, its owners choose sources of values: raises NotAnOwner for others.
        """
        deployment = await self.get(slug)
        if deployment.members is not None and any(one.source.is_managed for one in given):
            await self._members.check_owner(slug, by)
        await self._variables.set(deployment, given, by)
        logger.event("variables.set", deployment=slug, count=len(given))
        return await self._variables.of(deployment)

    async def unset_variable(self, slug: str, name: str, by: Actor) -> None:
        await self._variables.unset(await self.get(slug), name, by)
        logger.event("variables.unset", deployment=slug)

    async def get(self, slug: str) -> Deployment:
        found = await self._store.get(slug)
        if found is None:
            raise NoSuchDeployment(slug)
        return found
