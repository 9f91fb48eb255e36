"""What the tests know of each secret manager: one that behaves as the provider does, on a loopback address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from secrets_managers.serving import Faults
    from windlass.secrets.providers.endpoints import Endpoints


class ManagerOfTests(Protocol):
    """`endpoints` lead the adapter here, and `unreachable` to a port where nothing listens."""

    name: str
    endpoints: Endpoints
    faults: Faults

    def trust(self, issuer: str, subject: str) -> None:
        """Lets in the tokens of this issuer with this subject."""

    def configuration(self, method: str) -> dict[str, Any]:
        """Returns the configuration of a credential that may read all secrets."""

    def put(self, name: str, value: str) -> None:
        """Adds a secret, or a version of it. The value is a JSON object."""

    def forbidden(self) -> AbstractContextManager[None]:
        """Takes the permission to read secrets from all credentials, which are still accepted."""

    def end_tokens(self) -> None:
        """Ends all tokens that were given, before their time."""

    def unreachable(self, port: int) -> Endpoints:
        """Returns endpoints at this port."""
