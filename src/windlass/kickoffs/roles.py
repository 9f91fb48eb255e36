"""The roles of people, and the scopes that a role has on every crew."""

from __future__ import annotations

from enum import StrEnum

from windlass.kickoffs.states import Scope


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
