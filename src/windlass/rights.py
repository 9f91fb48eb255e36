"""The scopes of tokens, the roles of people, and who may see a kickoff."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Collection


PERSONAL = "personal"


class Scope(StrEnum):
    """Names the rights of a token.

    `read`: inputs, status, list, attempts, events, files. `run`: kickoff and stop. `admin`: delete.
    """

    READ = "read"
    RUN = "run"
    ADMIN = "admin"


SCOPES_OF_KIND: dict[str, tuple[Scope, ...]] = {
    "organization": (Scope.READ, Scope.RUN, Scope.ADMIN),
    "user": (Scope.READ, Scope.RUN),
    PERSONAL: (Scope.READ, Scope.RUN, Scope.ADMIN),  # by the role of its user
}


def may_see(asker: UUID | None, owner: UUID | None) -> bool:
    """Returns whether `asker` may see a kickoff that `owner` started.

    None stands for the organization, as asker and as owner. The organization sees all kickoffs. A user sees only the
    kickoffs that this user started.
    """
    return asker is None or asker == owner


NOBODY = UUID(int=0)


def limit_of(user: UUID | None, role: Role | None) -> UUID | None:
    """Returns the user to whose deployments a person is limited, None for an owner of the server, who sees all."""
    return None if role is Role.OWNER else user or NOBODY


ORGANIZATION, USERS, WEBHOOK = "organization", "users", "webhook"
"""Words of the setting `approvers`, beside roles and names of users: organization tokens, user tokens, and the receiver
of the crew's webhook, which has a `callback_url`.
"""


def may_answer(approvers: Collection[str], *, user: str | None, role: Role | None, kind: str) -> bool:
    """Returns whether somebody may answer the questions of a crew with this setting `approvers`.

    `kind` is that of the token, "personal" for a person, and WEBHOOK for a `callback_url`. `role` is that of a person.
    """
    if not approvers:
        return kind != PERSONAL or (role is not None and role.includes(Role.DEVELOPER))
    if user is not None and user in approvers:
        return True
    if role is not None:
        return any(word in approvers and role.includes(Role(word)) for word in Role)
    return (kind if kind in {ORGANIZATION, WEBHOOK} else USERS) in approvers


class Role(StrEnum):
    """Names what a person may do through the control API, from the fewest rights to the most.

    A viewer reads. A developer deploys and changes deployments too. An owner manages users, all tokens and the audit
    log too.
    """

    VIEWER = "viewer"
    DEVELOPER = "developer"
    OWNER = "owner"

    def includes(self, other: Role) -> bool:
        """Returns whether this role has all rights of the other role."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


SCOPES_OF_ROLE: dict[Role, tuple[Scope, ...]] = {
    Role.VIEWER: (Scope.READ,),
    Role.DEVELOPER: (Scope.READ, Scope.RUN),
    Role.OWNER: (Scope.READ, Scope.RUN, Scope.ADMIN),
}
"""The scopes of a personal token in the API of each crew."""


APPROVERS = (USERS, *Role, ORGANIZATION, WEBHOOK)
"""The words of the setting `approvers`. Any other one is the name of a user."""
