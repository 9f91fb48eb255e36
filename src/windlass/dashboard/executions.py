"""The lists of executions: of all crews, and of one. An execution is a kickoff with all that it did."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import UUID

from starlette.responses import StreamingResponse

from windlass.api.crew_api.kickoff_requests import Starter, new_kickoff
from windlass.api.errors import Problem, forbidden_by_role, problem_of
from windlass.dashboard.crew_frame import crew_page
from windlass.dashboard.output import first_input
from windlass.dashboard.routes import Routes, whole_number
from windlass.errors import WindlassError
from windlass.kickoffs.ids import LAST_ID, id_after, id_before, parse_id
from windlass.kickoffs.states import State
from windlass.rights import Role, Scope
from windlass.store import kickoff_list
from windlass.store.kickoff_list import KickoffFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.store.executions import Execution, ExecutionStore, RequestRow
    from windlass.store.kickoff_list import KickoffRow

ROUTES = Routes()
PAGE = 50
MOST_NEW = 50
"""New executions are counted up to this number."""
MOST_IN_CSV = 10_000
CSV_PAGE = 500
LONGEST_SEARCH = 100
LARGEST_VERSION = 2**31 - 1
STATES: dict[str, frozenset[State]] = {
    "queued": frozenset({State.PENDING}),
    "running": frozenset({State.STARTED}),
    "waiting": frozenset({State.PENDING_HUMAN_INPUT}),
    "succeeded": frozenset({State.SUCCESS}),
    "failed": frozenset({State.FAILED, State.TIMED_OUT}),
    "stopped": frozenset({State.CANCELLED}),
}
STATE_WORDS = {"waiting": "Waiting for a person"}
PREPARATIONS = frozenset({"environment", "secrets", "zygote", "import"})
"""What a started execution waits for before its project runs."""
TIMES = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
TIME_WORDS = {"1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days"}
SHORT_ID = re.compile(r"([0-9a-f-]*)(?:…|\.{2,3})([0-9a-f-]*)")
HEX = re.compile(r"[0-9a-f-]+")
BEGINNING_FROM = 8
"""Characters from which on a part of an id is first searched as its beginning: shorter ones are mostly copied ends."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that a spreadsheet would run as a formula."""
COLUMNS = (
    *("id", "crew", "state", "reason", "error", "version", "user"),
    *("created_at", "started_at", "finished_at", "tokens", "inputs", "started_by", "stopped_by"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters as the URL has them."""

    state: str = ""
    since: str = ""
    user: str = ""
    version: str = ""
    id: str = ""
    crew: str = ""
    sees: UUID | None = None
    """The user to whose crews the list is limited."""

    @classmethod
    def by(cls, visit: Visit) -> Asked:
        def text(name: str) -> str:
            return visit.query.get(name, "").strip()[:LONGEST_SEARCH]

        state, since = text("state"), text("since")
        return cls(
            state if state in STATES else "",
            since if since in TIMES else "",
            text("user"),
            text("version"),
            text("id").lower(),
            visit.path.get("slug", text("crew")),
            visit.actor.sees,
        )

    @property
    def narrows(self) -> bool:
        return any((self.state, self.since, self.user, self.version, self.id))

    def query(self, *, with_crew: bool) -> str:
        names = ("state", "since", "user", "version", "id", *(("crew",) if with_crew else ()))
        return urlencode({name: value for name in names if (value := getattr(self, name))})

    async def filter(self, store: ExecutionStore) -> KickoffFilter | None:
        """Returns the filter of the store, None if no execution can match."""
        version = whole_number(self.version, LONGEST_SEARCH)
        if (self.version and version is None) or (version or 0) > LARGEST_VERSION:
            return None
        since = datetime.now(UTC) - TIMES[self.since] if self.since else None
        states = STATES[self.state] if self.state else None
        user = self.user or None
        everywhere = KickoffFilter(states=states, user=user, version=version, since=since, sees=self.sees)
        found = await _of_crew(store, everywhere, self.crew) if self.crew else everywhere
        return await with_id(store, found, self.id) if found is not None and self.id else found


async def _of_crew(store: ExecutionStore, wanted: KickoffFilter, text: str) -> KickoffFilter | None:
    """Returns the filter for the crew with this name, or else for all crews with it as a part of their names."""
    slugs = await store.slugs_with(text, sees=wanted.sees)
    if not slugs:
        return None
    is_one = len(slugs) == 1 or slugs[0] == text.lower()
    return replace(wanted, slug=slugs[0]) if is_one else replace(wanted, part_of_slug=text)


async def with_id(store: ExecutionStore, wanted: KickoffFilter, text: str) -> KickoffFilter | None:
    """Returns the filter for ids with this text, the first of `id_ranges` that finds one. None: no id has this text."""
    found = [replace(wanted, after=after, before=before, ending=ending) for after, before, ending in id_ranges(text)]
    for one in found[:-1]:
        if (await store.listed(one, limit=1)).rows:
            return one
    return found[-1] if found else None


def id_ranges(text: str) -> list[tuple[UUID, UUID, str | None]]:
    """Returns the ids between which an id with this text lies, and its ending. The text is a whole id, its beginning,
    its end, or its beginning and its end with dots between them, as lists show it. A text that can be the beginning or
    the end has two results.
    """
    if (whole := parse_id(text)) is not None:
        return [(id_before(whole), id_after(whole), None)]
    short = SHORT_ID.fullmatch(text)
    if short:
        given = [short.groups()]
    else:
        given = [(text, ""), ("", text)] if len(text) >= BEGINNING_FROM else [("", text), (text, "")]
    return [one for beginning, ending in given if (one := _id_range(beginning, ending)) is not None]


def _id_range(beginning: str, ending: str) -> tuple[UUID, UUID, str | None] | None:
    digits = beginning.replace("-", "")
    if not HEX.fullmatch(beginning + ending) or len(digits) > 32 or len(ending) > 36:  # noqa: PLR2004 - of an id
        return None
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return id_before(first), id_after(last), ending or None


def shown_state(row: KickoffRow | Execution) -> tuple[str, str]:
    """Returns the name of the state's look, and its word."""
    if row.stopping and row.state is State.STARTED:
        return "running", "Stopping"
    if row.state is State.STARTED and row.waiting_for in PREPARATIONS:
        return "running", "Starting"
    if row.state is State.TIMED_OUT:
        return "failed", "Timed out"
    name = next(name for name, states in STATES.items() if row.state in states)
    return name, STATE_WORDS.get(name, name.capitalize())


def short_id(kickoff: UUID) -> str:
    text = str(kickoff)
    return f"{text[:8]}…{text[-4:]}"


def seconds_of(row: KickoffRow | Execution) -> float | None:
    """Returns the seconds from the first start to the end, or to now. None: it has not started."""
    if row.started_at is None:
        return None
    return ((row.finished_at or datetime.now(UTC)) - row.started_at - row.paused_for).total_seconds()


@ROUTES.get("/executions", Role.VIEWER)
async def show_all(visit: Visit) -> Response:
    return visit.page("executions_of_all.html", **await _context(visit))


@ROUTES.get("/crews/{slug}/executions", Role.VIEWER)
async def show_of_crew(visit: Visit) -> Response:
    return await crew_page(visit, "executions_of_crew.html", "Executions", **await _context(visit))


async def _context(visit: Visit) -> dict[str, Any]:
    """`top` in the query is the newest execution of the page when it was loaded: later ones are only counted. Pages of
    older ones end before the id `before`, or begin after the id `after`.
    """
    store, asked = visit.dashboard.control.overview.executions, Asked.by(visit)
    wanted = await asked.filter(store)
    top, before, after = (parse_id(visit.query.get(name, "")) for name in ("top", "before", "after"))
    rows: list[KickoffRow] = []
    following, fresh = None, 0
    if wanted is not None and after and (newer := await _newer(store, wanted, after)):
        rows, before = newer, id_after(newer[0].id)
        following = rows[-1].id
    elif wanted is not None:
        fresh = await _count_new(store, wanted, top) if top and not before else 0
        if edge := before or (id_after(top) if top else None):
            wanted = replace(wanted, before=min(wanted.before or edge, edge))
        page = await store.listed(wanted, limit=PAGE, preview=True)
        rows, following = page.rows, page.next
    path = _path(visit)
    query = asked.query(with_crew="slug" not in visit.path)
    newest = top or (rows[0].id if rows and not before else None)
    live = f"{query}&top={newest}".lstrip("&") if newest else query
    if before:
        live = f"{query}&before={before}".lstrip("&")
    return {
        "rows": [(row, *shown_state(row), first_input(row.inputs), seconds_of(row)) for row in rows],
        "asked": asked,
        "fresh": fresh,
        "incomplete": following is not None and 0 < len(rows) < PAGE,
        "most_read": kickoff_list.MOST_READ,
        "most_new": MOST_NEW,
        "path": path,
        "csv": f"/ui/executions.csv?{asked.query(with_crew=True)}",
        "here": f"{path}?{query}" if query else path,
        "live": f"{path}?{live}" if live else path,
        "older_page": f"{path}?{query}&before={following}".replace("?&", "?") if following else None,
        "newer_page": f"{path}?{query}&after={rows[0].id}".replace("?&", "?") if before and rows else None,
        "before": before,
        "short_id": short_id,
        "state_options": [(name, STATE_WORDS.get(name, name.capitalize())) for name in STATES],
        "time_options": list(TIME_WORDS.items()),
        "may_run": visit.allows(Scope.RUN),
    }


async def _newer(store: ExecutionStore, wanted: KickoffFilter, after: UUID) -> list[KickoffRow]:
    """Returns the page that comes before the id in the list. It is empty if that is the first page."""
    page = await store.listed(
        replace(wanted, after=max(wanted.after or after, after)), limit=PAGE + 1, first="oldest", preview=True
    )
    return page.rows[-PAGE:] if page.next is not None else []


async def _count_new(store: ExecutionStore, wanted: KickoffFilter, top: UUID) -> int:
    newer = await store.listed(replace(wanted, after=max(wanted.after or top, top)), limit=MOST_NEW)
    return len(newer.rows)


def _path(visit: Visit) -> str:
    return f"/ui/crews/{visit.path['slug']}/executions" if "slug" in visit.path else "/ui/executions"


@ROUTES.post("/executions/stop", Role.DEVELOPER)
async def stop_some(visit: Visit) -> Response:
    check_scope(visit, Scope.RUN)
    ids = await _selected(visit)
    stopped = 0
    for kickoff in ids:
        found = await visit.dashboard.control.overview.executions.get(kickoff)
        if found is not None and not found.state.ended:
            await visit.dashboard.crew_api.stops.stop(kickoff, visit.actor)
            stopped += 1
    return visit.redirect(_back(visit), notice=f"{_executions(stopped)} stopped, of {len(ids)} selected.")


@ROUTES.post("/executions/again", Role.DEVELOPER)
async def run_again(visit: Visit) -> Response:
    check_scope(visit, Scope.RUN)
    ids = await _selected(visit)
    started, reason = 0, ""
    for request in await visit.dashboard.control.overview.executions.requests(ids):
        try:
            await start_again(visit, request)
            started += 1
        except (Problem, WindlassError) as error:
            problem = problem_of(error)
            reason = f" {short_id(request.id)}: {problem.message if problem else error}"
    has_own = started and await visit.dashboard.control.overview.executions.own_webhooks(ids)
    without = " Webhooks that only the first ones were started with are not called." if has_own else ""
    return visit.redirect(_back(visit), notice=f"{_executions(started)} started with the same inputs.{without}{reason}")


async def start_again(visit: Visit, request: RequestRow) -> UUID:
    """Starts a kickoff with the inputs of another. Raises Problem and the errors of Acceptor."""
    api = visit.dashboard.crew_api
    crew = await api.crews.get(request.slug)
    if crew is None or request.inputs is None:
        raise Problem(409, "its inputs are too large to start it from a list. Open it, and run it again from there.")
    body = {"inputs": json.loads(request.inputs), "meta": json.loads(request.meta or "null")}
    return await api.acceptor.accept(new_kickoff(body, None, crew, Starter(None, visit.actor), api.rules))


@ROUTES.get("/executions.csv", Role.VIEWER)
async def export(visit: Visit) -> Response:
    """Returns the executions in `ids` as CSV, or all that match the filters, the newest MOST_IN_CSV of them."""
    store = visit.dashboard.control.overview.executions
    wanted = await Asked.by(visit).filter(store)
    ids = _ids(visit.query.get("ids", "").split(","))
    headers = {"Content-Disposition": 'attachment; filename="executions.csv"'}
    return StreamingResponse(
        _csv(store, wanted, ids, visit.actor.sees), media_type="text/csv; charset=utf-8", headers=headers
    )


async def _csv(
    store: ExecutionStore, wanted: KickoffFilter | None, ids: list[UUID], sees: UUID | None
) -> AsyncIterator[str]:
    yield _lines([COLUMNS])
    chosen = [KickoffFilter(before=id_after(one), after=id_before(one), sees=sees) for one in ids]
    filters = chosen or ([wanted] if wanted else [])
    left = MOST_IN_CSV
    for one in filters:
        following: UUID | None = one.before or LAST_ID
        while following is not None and left > 0:
            page = await store.listed(replace(one, before=following), limit=min(CSV_PAGE, left), preview=True)
            yield _lines([cells(row) for row in page.rows])
            left, following = left - len(page.rows), page.next


def cells(row: KickoffRow) -> tuple[str, ...]:
    times = [at.isoformat() if at else "" for at in (row.created_at, row.started_at, row.finished_at)]
    known = (
        row.id,
        row.slug,
        shown_state(row)[1],
        row.reason or "",
        row.error or "",
        row.version or "",
        row.user or "",
    )
    by = (row.started_by or "", row.stopped_by or "")
    return tuple(_cell(str(one)) for one in (*known, *times, row.tokens or "", row.inputs or "", *by))


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


def _lines(rows: list[tuple[str, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def check_scope(visit: Visit, scope: Scope) -> None:
    """Raises Problem 403 if the person's role does not have the scope."""
    if not visit.allows(scope):
        raise forbidden_by_role(scope, visit.person.role)


async def _selected(visit: Visit) -> list[UUID]:
    """Raises Problem 400 if none is selected, and NothingSeen for one of a crew that the person does not see."""
    if not (ids := _ids(json.loads(visit.field("ids[]", "[]")))):
        raise Problem(400, "No execution is selected. Go back, and select some in the first column.")
    for kickoff in ids:
        await visit.dashboard.control.members.check("kickoff", str(kickoff), visit.actor)
    return ids


def _ids(given: list[str]) -> list[UUID]:
    found = [kickoff for one in given if (kickoff := parse_id(one))]
    if len(found) > PAGE:
        raise Problem(400, f"More than {PAGE} executions are selected. Select fewer.")
    return list(dict.fromkeys(found))


def _back(visit: Visit) -> str:
    """Returns the list from which the form came."""
    back = visit.field("back")
    is_list = re.fullmatch(r"/ui/(?:crews/[a-z0-9-]+/)?executions(?:\?[\w=&%.+-]*)?", back)
    return back if is_list else "/ui/executions"


def _executions(count: int) -> str:
    return "1 execution is" if count == 1 else f"{count} executions are"
