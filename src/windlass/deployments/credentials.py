"""Credentials: how the server proves to secret managers who it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windlass.secrets.key_ring import Sealed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.store.credentials import CredentialRow


def seal_configuration(key_ring: KeyRing, credential: UUID, configuration: Mapping[str, Any]) -> str:
    """Returns the encrypted configuration of the credential with this id. Its values are plain JSON."""
    return key_ring.seal(json.dumps(dict(configuration)), Sealed.CREDENTIAL.of(credential))


def open_configuration(key_ring: KeyRing, row: CredentialRow) -> dict[str, Any]:
    """Returns the configuration with its secret members, as the model of the method takes it. Raises UnknownKey and
    Damaged.
    """
    found: dict[str, Any] = json.loads(key_ring.open(row.configuration, Sealed.CREDENTIAL.of(row.id)))
    return found
