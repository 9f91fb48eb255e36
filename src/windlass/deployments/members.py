"""The members and owners of a deployment: who sees it, and who may change who sees it."""

# See docs/decisions/security.md#a-deployment-from-before-has-no-members-and-is-visible-to-everybody

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from windlass import log
from windlass.access.tokens import NoSuchUser
from windlass.errors import WindlassError
from windlass.kickoffs.ids import parse_id
from windlass.rights import NOBODY, Role
from windlass.store.audit import Change
from windlass.store.managing import NoSuchDeployment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from windlass.store.audit import Actor
    from windlass.store.members import MemberRow, MemberStore, Standing, Subject

VisibleTo = Literal["everybody", "members"]
EVERYBODY: VisibleTo = "everybody"
MEMBERS: VisibleTo = "members"
SUBJECTS: dict[str, Subject] = {
    "slug": "slug",
    "build_id": "build",
    "build": "build",
    "kickoff_id": "kickoff",
    "kickoff": "kickoff",
    "delivery_id": "delivery",
    "delivery": "delivery",
    "approval_id": "question",
    "question": "question",
}
"""The parameters of paths that name a deployment or something of one. Others name nothing of a deployment."""

logger = log.logger(__name__)


class NothingSeen(WindlassError):  # noqa: N818 - describes what is asked for
    """Reports an id of nothing, or of something of a deployment that the person does not see."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(f"There is no {subject} with this id.")


class NotAnOwner(WindlassError):  # noqa: N818 - describes the person
    """Reports a change that is for the owners of a deployment. Each member can see who they are."""

    def __init__(self, slug: str, owners: list[str]) -> None:
        named = f" or of {slug}: {', '.join(owners)}" if owners else ""
        super().__init__(
            f"Only an owner of the deployment {slug} may change this.", f"Ask an owner of this server{named}."
        )


class NoSuchMember(WindlassError):  # noqa: N818 - describes the user
    pass


@dataclass(frozen=True, slots=True)
class Membership:
    """Who sees a deployment beside the owners of the server. `members` has its owners first."""

    visible_to: VisibleTo
    members: list[MemberRow]


class Members:
    def __init__(self, store: MemberStore) -> None:
        self._store = store

    async def check_path(self, parameters: Mapping[str, str], by: Actor) -> None:
        """Raises NoSuchDeployment or NothingSeen if the path names something of a deployment that the person does not
        see, or of none. Both have one answer, so that it does not reveal whether there is one.
        """
        for name, subject in SUBJECTS.items():
            if name in parameters:
                await self.check(subject, parameters[name], by)

    async def check(self, subject: Subject, given: str, by: Actor) -> None:
        """As `check_path`, for one parameter."""
        if by.sees is None:
            return
        found = await self._standing(subject, given, by.sees)
        if found is None or not found.sees:
            raise NoSuchDeployment(given) if subject == "slug" else NothingSeen(subject)

    async def sees(self, slug: str, by: Actor) -> bool:
        found = await self._standing("slug", slug, by.sees) if by.sees else None
        return by.sees is None or (found is not None and found.sees)

    async def owns(self, slug: str, by: Actor) -> bool:
        """Returns whether the person may do what is for owners of the deployment, or of the server."""
        if by.role is Role.OWNER:
            return True
        found = await self._standing("slug", slug, by.sees) if by.sees else None
        return found is not None and found.owns and by.role is Role.DEVELOPER

    async def check_owner(self, slug: str, by: Actor) -> None:
        """Raises NotAnOwner, which names the owners."""
        if not await self.owns(slug, by):
            raise NotAnOwner(slug, [one.user for one in await self._store.of(slug) if one.is_owner])

    async def of(self, slug: str) -> Membership:
        """Raises NoSuchDeployment."""
        standing = await self._store.standing("slug", slug, NOBODY)
        if standing is None:
            raise NoSuchDeployment(slug)
        return Membership(MEMBERS if standing.members_only else EVERYBODY, await self._store.of(slug))

    async def put(self, slug: str, user: str, by: Actor, *, is_owner: bool) -> None:
        """Makes the user a member of the deployment or, with `is_owner`, an owner. Acts at once on all servers.

        Raises NotAnOwner, NoSuchUser and TooManyMembers.
        """
        await self.check_owner(slug, by)
        change = Change(by, "member.put", slug, {"user": user, "owner": is_owner})
        if not await self._store.put(slug, user, change, is_owner=is_owner):
            raise NoSuchUser(
                f"There is no user {user[:100]!r}.", "An owner of this server adds one: windlass admin users add NAME"
            )
        logger.event("deployment.members_changed", deployment=slug)

    async def remove(self, slug: str, user: str, by: Actor) -> None:
        """Ends a membership, at once on all servers. Members may end their own. Raises NotAnOwner and NoSuchMember."""
        if user != by.user:
            await self.check_owner(slug, by)
        if not await self._store.remove(slug, user, Change(by, "member.remove", slug, {"user": user})):
            raise NoSuchMember(
                f"{user[:100]!r} is no member of {slug}.", f"List the members with: windlass deployments members {slug}"
            )
        logger.event("deployment.members_changed", deployment=slug)

    async def show_to(self, slug: str, visible_to: VisibleTo, by: Actor) -> None:
        """Sets who sees the deployment. Raises NotAnOwner."""
        await self.check_owner(slug, by)
        change = Change(by, "deployment.show_to", slug, {"visible_to": visible_to})
        await self._store.limit_to_members(slug, change, members_only=visible_to == MEMBERS)
        logger.event("deployment.members_changed", deployment=slug)

    async def _standing(self, subject: Subject, given: str, person: UUID) -> Standing | None:
        value = given.replace("\0", "") if subject == "slug" else parse_id(given)
        return await self._store.standing(subject, value, person) if value else None
