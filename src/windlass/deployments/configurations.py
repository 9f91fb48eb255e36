"""The configurations of credentials: their models, their secret members, and how they are stored.

Each method of a provider has a model of its configuration. Its secret members are never shown.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, SecretStr, ValidationError

from windlass.secrets.key_ring import Sealed
from windlass.secrets.provider import BadCredential

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.secrets.provider import Provider
    from windlass.store.credentials import CredentialRow

LONGEST_SHOWN = 100
EMPTY = (None, "")


class BadConfiguration(BadCredential):
    """`invalid` maps the names of members to the reasons. No reason quotes a value."""

    def __init__(self, invalid: dict[str, str]) -> None:
        listed = "; ".join(f"{name}: {why}" for name, why in invalid.items())
        super().__init__(f"The configuration of the credential is not valid. {listed}.")
        self.invalid = invalid


def model_of(provider: Provider, method: str) -> type[BaseModel]:
    """Raises BadCredential."""
    if method not in provider.methods:
        raise BadCredential(
            f"{provider.title} has no method {method[:LONGEST_SHOWN]!r}.",
            f"Its methods are {', '.join(provider.methods)}.",
        )
    return provider.methods[method]


def validated(provider: Provider, method: str, given: Mapping[str, Any]) -> BaseModel:
    """Returns the configuration as the model of the method. A member that is None or empty, as forms send it, counts as
    left out. Raises BadCredential.
    """
    model = model_of(provider, method)
    members = {name: value for name, value in given.items() if value not in EMPTY or name not in model.model_fields}
    try:
        return model.model_validate(members)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise BadConfiguration({_place(one["loc"]): _reason(one) for one in found}) from None


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(map(str, loc))[:LONGEST_SHOWN] or "configuration"


def _reason(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "there is no such member"
    return str(fault["msg"]).removeprefix("Value error, ")


# See docs/decisions/secrets.md#a-changed-address-needs-the-secret-members-again
def merged(model: type[BaseModel], stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the stored configuration with the given members, and without stored ones that the model does not have.
    An empty value removes a member, but keeps a secret one.

    Raises BadConfiguration for another place to which a kept secret member would be sent: a person who does not know
    its value could learn it that way.
    """
    kept = {name: value for name, value in stored.items() if name in model.model_fields}
    hidden = secret_members(model)
    new = {name: value for name, value in given.items() if value not in EMPTY or name not in hidden}
    moved = [name for name in getattr(model, "destinations", ()) if new.get(name, kept.get(name)) != kept.get(name)]
    if moved and (unknown := (hidden & kept.keys()) - new.keys()):
        raise BadConfiguration(dict.fromkeys(sorted(unknown), f"must be given again with another {moved[0]}"))
    return {**kept, **new}


@cache
def secret_members(model: type[BaseModel]) -> frozenset[str]:
    """Returns the names of the members that are never shown."""
    members = model.model_json_schema()["properties"]
    return frozenset(name for name, member in members.items() if _is_secret(member))


def _is_secret(member: Mapping[str, Any]) -> bool:
    return bool(member.get("writeOnly")) or any(_is_secret(one) for one in member.get("anyOf", ()))


def plain(configuration: BaseModel) -> dict[str, Any]:
    """Returns the members as plain JSON, with the values of the secret ones."""
    found = configuration.model_dump(mode="json", exclude_none=True)
    for name in found:
        value = getattr(configuration, name)
        if isinstance(value, SecretStr):
            found[name] = value.get_secret_value()
    return found


def seal_configuration(key_ring: KeyRing, credential: UUID, configuration: Mapping[str, Any]) -> str:
    """Returns the encrypted configuration of the credential with this id. Its values are plain JSON."""
    return key_ring.seal(json.dumps(dict(configuration)), Sealed.CREDENTIAL.of(credential))


def open_configuration(key_ring: KeyRing, row: CredentialRow) -> dict[str, Any]:
    """Returns the configuration with its secret members, as the model of the method takes it. Raises UnknownKey and
    Damaged.
    """
    found: dict[str, Any] = json.loads(key_ring.open(row.configuration, Sealed.CREDENTIAL.of(row.id)))
    return found
