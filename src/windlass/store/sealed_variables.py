"""A variable of a deployment with its encrypted value, as the stores read it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class SealedVariable:
    """A variable of a deployment, with its encrypted value.

    The value of one with a `secret_name` comes from a secret manager, with the default credential of `provider` or with
    the credential `credential_id`. `value` is then the one that was read at the latest deploy, None if there is none.
    """

    name: str
    value: str | None
    secret: bool
    provider: str | None = None
    credential_id: UUID | None = None
    secret_name: str | None = None

    @property
    def source(self) -> tuple[str | None, UUID | None, str | None]:
        return self.provider, self.credential_id, self.secret_name


def sealed_variables(rows: Iterable[dict[str, Any]]) -> tuple[SealedVariable, ...]:
    """Returns the variables of rows, or of JSON objects."""
    found = [SealedVariable(**row) for row in rows]
    return tuple(
        replace(one, credential_id=UUID(one.credential_id)) if isinstance(one.credential_id, str) else one
        for one in found
    )
