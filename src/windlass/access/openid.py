"""The person that an OpenID Connect provider has authenticated, and the role that their groups give them."""

# See docs/decisions/dashboard.md#openid-connect-is-authlibs

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.errors import SettingsError, WindlassError
from windlass.rights import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windlass.secrets.secret import Secret

LONGEST_NAME = 100
LONGEST_SUBJECT = 255
EMAIL = "email"


class SignInRefused(WindlassError):  # noqa: N818 - describes the attempt
    pass


@dataclass(frozen=True, slots=True)
class Identity:
    """A person whom the provider has authenticated. `issuer` and `subject` identify them for good."""

    issuer: str
    subject: str
    name: str
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class RoleRules:
    """Roles by group, and the role of a new user without such a group, None for no access."""

    by_group: Mapping[str, Role] = field(default_factory=dict)
    default: Role | None = None

    @classmethod
    def parse(cls, given: Sequence[str], default: str | None) -> RoleRules:
        """Reads rules such as `platform=owner`. Raises SettingsError."""
        found: dict[str, Role] = {}
        for one in given:
            group, _, role = one.rpartition("=")
            if not group.strip() or role.strip() not in set(Role):
                raise SettingsError(
                    f"WINDLASS_SIGN_IN_ROLES has {one!r}.", "It needs a group and a role, such as platform=owner."
                )
            found[group.strip()] = Role(role.strip())
        return cls(found, Role(default) if default else None)

    def role_of(self, groups: frozenset[str]) -> Role | None:
        """Returns the highest role that the groups give."""
        ranks = list(Role)
        return max((role for group, role in self.by_group.items() if group in groups), key=ranks.index, default=None)


@dataclass(frozen=True, slots=True)
class OpenId:
    """The provider with which people sign in, and what its claims mean."""

    issuer: str
    client_id: str
    client_secret: Secret
    name_claim: str
    groups_claim: str
    roles: RoleRules

    def identity(self, claims: Mapping[str, Any]) -> Identity:
        """Returns the person that the claims of a verified ID token name. Raises SignInRefused."""
        name, subject, groups = claims.get(self.name_claim), claims.get("sub"), claims.get(self.groups_claim)
        if not _is_text(name, LONGEST_NAME) or not _is_text(subject, LONGEST_SUBJECT):
            raise SignInRefused(
                f"Your provider sent no usable `{self.name_claim}` with your sign-in.",
                "Ask the person who runs this server: docs/how-to/sign-in.md has the claims that it needs.",
            )
        if self.name_claim == EMAIL and claims.get("email_verified") is not True:
            raise SignInRefused(
                "Your provider has not verified your e-mail address.", "Verify it there, and sign in again."
            )
        listed = groups if isinstance(groups, list) else [groups]
        return Identity(self.issuer, str(subject), str(name), frozenset(one for one in listed if isinstance(one, str)))


def _is_text(value: object, longest: int) -> bool:
    return isinstance(value, str) and value.strip() == value != "" and value.isprintable() and len(value) <= longest
