"""The signing secrets of deployments: stored encrypted, made when first needed, rotated."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from windlass.store.managing import NoSuchDeployment
from windlass.webhooks import signatures

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.store.audit import Change
    from windlass.store.webhooks import WebhookStore


class SigningSecrets:
    def __init__(self, store: WebhookStore, key_ring: KeyRing) -> None:
        self._store = store
        self._key_ring = key_ring

    async def of(self, slug: str) -> list[signatures.SigningSecret]:
        """Returns the secrets that sign now, the current one first. Makes the first one. Raises NoSuchDeployment."""
        deployment, sealed = await self._found(slug)
        return await self.opened(slug, deployment, sealed)

    async def opened(self, slug: str, deployment: UUID, sealed: str | None) -> list[signatures.SigningSecret]:
        if sealed is None:
            made = signatures.sealed(self._key_ring, deployment, signatures.first())
            await self._store.set_secrets(deployment, made, None)
            _, stored = await self._found(slug)  # that of another server, if it was faster
            sealed = stored or made
        return signatures.opened(self._key_ring, deployment, sealed)

    async def rotate(self, slug: str, change: Change) -> list[signatures.SigningSecret]:
        """Makes a new secret. The former one signs too, for BOTH_FOR seconds. Of two rotations at once, one counts."""
        before = await self.of(slug)
        deployment, sealed = await self._found(slug)
        after = signatures.sealed(self._key_ring, deployment, signatures.rotated(before, time.time()))
        await self._store.set_secrets(deployment, after, sealed, change)
        return await self.of(slug)

    async def _found(self, slug: str) -> tuple[UUID, str | None]:
        found = await self._store.secrets(slug)
        if found is None:
            raise NoSuchDeployment(slug)
        return found
