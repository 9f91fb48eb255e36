"""The scopes of tokens, the roles of people, and who may see a kickoff."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


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
    "personal": (Scope.READ, Scope.RUN, Scope.ADMIN),  # by the role of its user
}


def may_see(asker: UUID | None, owner: UUID | None) -> bool:
    """Returns whether `asker` may see a kickoff that `owner` started.

    None stands for the organization, as asker and as owner. The organization sees all kickoffs. A user sees only the
    kickoffs that this user started.
    """
    return asker is None or asker == owner


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
