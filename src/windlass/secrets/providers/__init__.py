"""The providers of secret managers: one package each, which holds everything that is particular to it.

Importing a provider imports no client of it. `Provider.connect` does.
"""

# See docs/decisions/secrets.md#clients-of-providers-are-imported-late

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

from windlass.secrets.provider import BadCredential, Provider
from windlass.secrets.providers.aws import Aws
from windlass.secrets.providers.azure import Azure
from windlass.secrets.providers.endpoints import Endpoints
from windlass.secrets.providers.google import Google
from windlass.secrets.providers.vault import Vault

if TYPE_CHECKING:
    from collections.abc import Mapping

Providers = Callable[[str], Provider]
"""Returns the provider of this name. Raises BadCredential for a name that none has."""

_PROVIDERS: Mapping[str, Callable[[Endpoints], Provider]] = MappingProxyType(
    {one.name: one for one in (Aws, Google, Azure, Vault)}
)
NAMES = tuple(_PROVIDERS)


def provider(name: str, endpoints: Endpoints | None = None) -> Provider:
    """Returns a provider, whose requests go to these endpoints in place of the public ones. Raises BadCredential."""
    if name not in _PROVIDERS:
        raise BadCredential(f"There is no provider {name[:100]!r}.", f"The providers are {', '.join(NAMES)}.")
    return _PROVIDERS[name](endpoints or Endpoints())
