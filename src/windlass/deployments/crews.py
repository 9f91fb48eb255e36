"""Finds the crew of an address, with its current version, for requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.inputs import InputsCheck
from windlass.store.listener import DEPLOYMENTS, Listener, NotifyCache

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from windlass.kickoffs.manifest import Manifest
    from windlass.store.deployments import DeploymentStore


@dataclass(frozen=True, slots=True)
class Crew:
    """Holds the data of a deployment that requests need: its current version, and the compiled check of its inputs.

    Web pages of `cors_origins` may use its API. `rate_limit` is in requests a second of each token, None for no limit.
    """

    deployment_id: UUID
    slug: str
    profile: str
    version_id: UUID
    manifest: Manifest
    check: InputsCheck
    cors_origins: frozenset[str]
    rate_limit: float | None
    webhooks: Mapping[str, Any] = field(default_factory=dict)
    """Those of all its kickoffs: hook -> the id of its endpoint, and options."""
    members: frozenset[UUID] | None = None
    """The users who see it beside the owners of the server. None: everybody."""

    def is_visible(self, person: UUID | None) -> bool:
        """Returns whether a person sees the crew. None stands for an owner of the server."""
        return person is None or self.members is None or person in self.members


class Crews:
    def __init__(self, store: DeploymentStore, listener: Listener) -> None:
        self._store = store
        self._crews: NotifyCache[str, Crew] = NotifyCache(self._load, listener, DEPLOYMENTS)
        self._manifests: NotifyCache[UUID, Manifest] = NotifyCache(store.manifest, listener, DEPLOYMENTS)

    async def get(self, slug: str) -> Crew | None:
        return await self._crews.get(slug)

    async def manifest(self, version: UUID) -> Manifest | None:
        return await self._manifests.get(version)

    async def _load(self, slug: str) -> Crew | None:
        found = await self._store.get(slug)
        if found is None or found.version is None:
            return None
        version = found.version
        check = InputsCheck.of(version.manifest.inputs_schema)
        origins = frozenset(found.settings.get("cors_origins", ()))
        return Crew(
            found.id,
            found.slug,
            found.profile,
            version.id,
            version.manifest,
            check,
            origins,
            found.settings.get("rate_limit"),
            found.webhooks,
            found.members,
        )
