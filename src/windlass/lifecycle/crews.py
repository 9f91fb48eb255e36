from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.kickoffs.inputs import InputsCheck
from windlass.lifecycle.known import Known
from windlass.store.listener import DEPLOYMENTS, Listener

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.kickoffs.manifest import Manifest
    from windlass.store.deployments import DeploymentStore


@dataclass(frozen=True, slots=True)
class Crew:
    """A deployment as requests need it: its current version, with the check of its inputs compiled."""

    deployment_id: UUID
    slug: str
    profile: str
    version_id: UUID
    manifest: Manifest
    check: InputsCheck


class Crews:
    def __init__(self, store: DeploymentStore, listener: Listener) -> None:
        self._store = store
        self._crews: Known[str, Crew] = Known(self._load, listener, DEPLOYMENTS)
        self._manifests: Known[UUID, Manifest] = Known(store.manifest, listener, DEPLOYMENTS)

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
        return Crew(found.id, found.slug, found.profile, version.id, version.manifest, check)
