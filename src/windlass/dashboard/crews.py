"""The list of crews."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlencode

from windlass.api.errors import bad_request
from windlass.dashboard.charts import Sparkline, sparkline
from windlass.dashboard.executions import HEX, SHORT_ID, short_id, with_id
from windlass.dashboard.routes import Routes
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.states import Reason
from windlass.rights import Role
from windlass.store.kickoff_list import KickoffFilter
from windlass.store.overview import DeploymentFilter, DeploymentOrder, DeploymentState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.store.kickoff_list import KickoffRow
    from windlass.store.overview import DeploymentRow
    from windlass.store.statistics import CrewStatistics

ROUTES = Routes()
PAGE = 50
LONGEST_SEARCH = 100
SHORTEST_ID, MOST_FOUND = 4, 5
"""Characters from which on a search is also one for ids of executions, and the executions that are listed."""
ORDERS: dict[DeploymentOrder, str] = {
    "slug": "By name",
    "-slug": "By name, Z to A",
    "-created_at": "Newest first",
    "created_at": "Oldest first",
}


WHY: dict[str, str] = {
    Reason.TIMED_OUT: "timed out",
    Reason.LIMIT: "over a limit",
    Reason.CRASHED: "crashed",
    Reason.LOST: "worker lost",
    Reason.SECRETS: "secret not read",
}
"""Short words for the reasons of failures. All others are errors of the crew."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of the list: a deployment, what its kickoffs did in the last 24 hours, and their bars."""

    crew: DeploymentRow
    day: CrewStatistics
    bars: Sparkline

    @property
    def rate(self) -> str | None:
        return rate_of(self.day)

    @property
    def why(self) -> str | None:
        failure = self.day.last_failure
        return WHY.get(failure.reason or "", "error") if failure else None


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over the crews of a page."""

    running: int
    waiting: int
    day: CrewStatistics
    bars: Sparkline

    @classmethod
    def of(cls, listed: Sequence[Listed]) -> Totals | None:
        """Returns None for no crews."""
        if not listed:
            return None
        days = [one.day for one in listed]
        day = replace(
            days[0],
            ended=tuple(sum(hour) for hour in zip(*(one.ended for one in days), strict=True)),
            failed=tuple(sum(hour) for hour in zip(*(one.failed for one in days), strict=True)),
            succeeded=sum(one.succeeded for one in days),
            last_ended_at=None,
            last_failure=None,
        )
        running, waiting = (sum(getattr(one.crew, name) for one in listed) for name in ("running", "waiting"))
        return cls(running, waiting, day, sparkline(day))

    @property
    def rate(self) -> str | None:
        return rate_of(self.day)


def rate_of(day: CrewStatistics) -> str | None:
    """Returns the success rate, rounded down: only a day without a failure has 100 %."""
    rate = day.success_rate
    return None if rate is None else f"{math.floor(1000 * rate) / 10:g} %"


@ROUTES.get("/", Role.VIEWER)
async def show(visit: Visit) -> Response:
    wanted = wanted_of(visit)
    control = visit.dashboard.control
    rows, states = await asyncio.gather(
        control.management.deployments(wanted, limit=PAGE),
        control.overview.states(wanted.search, sees=wanted.sees),
    )
    executions = await executions_of(visit, wanted.search or "")
    if len(executions) == 1 and not rows:
        return visit.redirect(f"/ui/crews/{executions[0].slug}/executions/{executions[0].id}")
    found = await control.statistics.crews([row.id for row in rows])
    listed = [Listed(row, found[row.id], sparkline(found[row.id])) for row in rows]
    chosen = {"search": wanted.search or "", "order": "" if wanted.order == "slug" else wanted.order}
    return visit.page(
        "crews.html",
        listed=listed,
        totals=Totals.of(listed),
        executions=[(one, short_id(one.id)) for one in executions],
        wanted=wanted,
        orders=ORDERS,
        chips=[(state, count, address(chosen, state)) for state, count in counted(states)],
        following=after_of(rows, wanted.order) if len(rows) == PAGE else None,
    )


async def executions_of(visit: Visit, search: str) -> list[KickoffRow]:
    """Returns the newest executions whose id has the text, if it can be that of an id."""
    text = search.lower()
    if len(text) < SHORTEST_ID or not (HEX.fullmatch(text) or SHORT_ID.fullmatch(text)):
        return []
    store = visit.dashboard.control.overview.executions
    wanted = await with_id(store, KickoffFilter(sees=visit.actor.sees), text)
    return (await store.listed(wanted, limit=MOST_FOUND, preview=True)).rows if wanted else []


def wanted_of(visit: Visit) -> DeploymentFilter:
    """Returns what the query selects. Ignores unknown values, as those of an older link. Raises Problem 400."""
    search = visit.query.get("search", "").strip()[:LONGEST_SEARCH]
    state = next((one for one in get_args(DeploymentState) if one == visit.query.get("state")), None)
    order: DeploymentOrder = next((one for one in ORDERS if one == visit.query.get("order")), "slug")
    after = visit.query.get("after") or None
    if after and order.endswith("created_at") and parse_id(after) is None:
        raise bad_request("The address of this page is not complete. Go back to the list of crews.")
    return DeploymentFilter(search=search or None, state=state, order=order, after=after, sees=visit.actor.sees)


def after_of(rows: list[DeploymentRow], order: DeploymentOrder) -> str:
    return str(rows[-1].id) if order.endswith("created_at") else rows[-1].slug


def counted(states: dict[DeploymentState, int]) -> list[tuple[DeploymentState | None, int]]:
    """Returns the numbers of all crews and of each state, in the order of the filter."""
    order: tuple[DeploymentState, ...] = ("online", "building", "failed", "paused")
    return [(None, sum(states.values())), *((state, states.get(state, 0)) for state in order)]


def address(chosen: dict[str, str], state: str | None) -> str:
    """Returns the path of the list with these choices. Members without a value are left out."""
    query = urlencode({name: value for name, value in {**chosen, "state": state}.items() if value})
    return f"/ui/?{query}" if query else "/ui/"
