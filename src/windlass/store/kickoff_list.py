"""Lists kickoffs, for the crew API, the control API and the dashboard."""

# See docs/decisions/store.md#a-list-reads-a-bounded-number-of-rows

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from psycopg import sql

from windlass.kickoffs.ids import CLOCKS_APART, FIRST_ID, LAST_ID, first_id, id_after, id_before
from windlass.kickoffs.states import State
from windlass.store.database import Store, filled, queries

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from uuid import UUID

    from windlass.store.database import Row, Statement

SQL = queries("kickoff_list")
DIRECTIONS = {"newest": ("DESC", "ASC"), "oldest": ("ASC", "DESC")}
OPEN = frozenset({State.PENDING, State.STARTED, State.PENDING_HUMAN_INPUT})
MOST_READ = 5000
"""Kickoffs that one search for a page of a list reads at most."""
LONGEST_INPUTS, LONGEST_ERROR = 8000, 500
"""Characters of the inputs and of the error in a preview."""
LARGEST_INPUTS = 200_000
"""Bytes of stored inputs of which a preview has the beginning."""


def _listed(which: sql.SQL, direction: str, opposite: str) -> Statement:
    return filled(SQL["listed"], which=which, direction=sql.SQL(direction), opposite=sql.SQL(opposite))


def _narrowed(which: sql.SQL, states: sql.SQL | None) -> sql.SQL:
    return which if states is None else filled(sql.SQL("{which} AND {states}"), which=which, states=states)


NARROWER: dict[str, sql.SQL | None] = {
    "any": None,
    "open": SQL["open"],
    "queued_or_running": SQL["queued_or_running"],
}
LISTED: dict[tuple[str, str, str], Statement] = {
    (name, narrower, first): _listed(_narrowed(which, states), *directions)
    for name, which in {"all": SQL["of_all"], "one": SQL["of_one"]}.items()
    for narrower, states in NARROWER.items()
    for first, directions in DIRECTIONS.items()
}


@dataclass(frozen=True, slots=True)
class KickoffFilter:
    """Selects kickoffs. Each member narrows the selection when it is set.

    `deployment` is the id, `slug` the name of a deployment, and `part_of_slug` a text that its name has. `owner` is the
    id, `user` the name of a user. The page begins before the id `before`, and ends at the id `after`. Both are left
    out. `ending` are the last characters of the id. `sees` is the user to whose deployments the list is limited.
    """

    deployment: UUID | None = None
    slug: str | None = None
    part_of_slug: str | None = None
    states: Collection[State] | None = None
    owner: UUID | None = None
    user: str | None = None
    version: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: UUID | None = None
    after: UUID | None = None
    ending: str | None = None
    sees: UUID | None = None


@dataclass(frozen=True, slots=True)
class KickoffRow:
    """A kickoff in a list.

    `inputs` is JSON text, cut after LONGEST_INPUTS. It is None without a preview, and for inputs beyond LARGEST_INPUTS.
    `stopping` is whether a stop is requested. `user` is None for an organization token. `started_by` and `stopped_by`
    are words, None if nobody was recorded.
    """

    id: UUID
    slug: str
    version: int | None
    user: str | None
    state: State
    reason: str | None
    error: str | None
    attempt: int
    stopping: bool
    started_by: str | None
    stopped_by: str | None
    waiting_for: str | None
    tokens: int | None
    inputs: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    paused_for: timedelta = timedelta()
    """The time in which it waited for a person without a process."""


@dataclass(frozen=True, slots=True)
class KickoffPage:
    """Kickoffs, newest first. `next` is the `before` of the next page, or the `after` of a page of the oldest. It is
    None after the last page. A page may have fewer kickoffs than the limit, even none, although more follow.
    """

    rows: list[KickoffRow]
    next: UUID | None


class KickoffList(Store):
    async def listed(
        self,
        wanted: KickoffFilter,
        *,
        limit: int,
        first: Literal["newest", "oldest"] = "newest",
        preview: bool = False,
    ) -> KickoffPage:
        """Returns the newest or the oldest kickoffs that match. Reads at most MOST_READ of them with any filter.

        With `preview`, each has the beginning of its inputs and of its error. Otherwise it has its whole error.
        """
        values = {
            "deployment": wanted.deployment,
            "slug": wanted.slug,
            "part_of_slug": wanted.part_of_slug,
            "states": None if wanted.states is None else [str(state) for state in wanted.states],
            "owner": wanted.owner,
            "user": wanted.user,
            "version": wanted.version,
            "since": wanted.since,
            "until": wanted.until,
            "before": min(wanted.before or LAST_ID, first_id(wanted.until, CLOCKS_APART) if wanted.until else LAST_ID),
            "after": max(wanted.after or FIRST_ID, first_id(wanted.since, -CLOCKS_APART) if wanted.since else FIRST_ID),
            "ending": wanted.ending,
            "sees": wanted.sees,
            "limit": limit,
            "preview": preview,
            "most_read": limit + 1 if _takes_all(wanted) else MOST_READ,
            "longest_error": LONGEST_ERROR,
            "longest_inputs": LONGEST_INPUTS,
            "largest_inputs": LARGEST_INPUTS,
        }
        which = "all" if wanted.deployment is None and wanted.slug is None else "one"
        rows = await self._database.rows(LISTED[which, _narrower(wanted.states), first], values, soon=True)
        found = [_row(row) for row in rows if row["id"] is not None]
        if len(found) == limit:
            return KickoffPage(found, found[-1 if first == "newest" else 0].id)
        return KickoffPage(found, None if rows[0]["all_seen"] else rows[0]["last_seen"])

    async def find(self, kickoff: UUID) -> KickoffRow | None:
        page = await self.listed(KickoffFilter(before=id_after(kickoff), after=id_before(kickoff)), limit=1)
        return page.rows[0] if page.rows else None

    async def slugs_with(self, text: str, *, sees: UUID | None = None) -> list[str]:
        """Returns two of the slugs with this text that the user sees, or fewer. A slug that is the text comes first."""
        values = {"text": text, "sees": sees}
        return [row["slug"] for row in await self._database.rows(SQL["slugs_with"], values, soon=True)]


def _takes_all(wanted: KickoffFilter) -> bool:
    """Returns whether every kickoff that the search reads is in the page. One deployment's are all over the table."""
    of_one = KickoffFilter(wanted.deployment, wanted.slug, before=wanted.before, after=wanted.after, sees=wanted.sees)
    return of_one == wanted and (wanted.deployment, wanted.slug) != (None, None)


def _narrower(states: Collection[State] | None) -> str:
    """Returns which part of the kickoffs a search for these states has to read."""
    if states is None or not OPEN.issuperset(states):
        return "any"
    return "open" if State.PENDING_HUMAN_INPUT in states else "queued_or_running"


def _row(row: Row) -> KickoffRow:
    columns = {name: row[name] for name in KickoffRow.__slots__}
    return KickoffRow(**{**columns, "state": State(row["state"])})
