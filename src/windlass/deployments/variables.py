"""The variables of deployments. All values are stored encrypted, also those that are not secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.secrets.key_ring import Sealed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.store.variables import SealedVariable


def seal_value(key_ring: KeyRing, deployment: UUID, name: str, value: str) -> str:
    return key_ring.seal(value, Sealed.VARIABLE.of(f"{deployment}/{name}"))


def open_values(key_ring: KeyRing, deployment: UUID, sealed: Iterable[SealedVariable]) -> dict[str, str]:
    """Returns the values by name. Raises UnknownKey and Damaged."""
    return {one.name: key_ring.open(one.value, Sealed.VARIABLE.of(f"{deployment}/{one.name}")) for one in sealed}
