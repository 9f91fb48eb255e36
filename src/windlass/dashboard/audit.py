"""The audit log: who changed what, newest first."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import StreamingResponse

from windlass.api.control_api.dependencies import id_cursor
from windlass.api.control_api.people import audit_csv
from windlass.api.errors import bad_request
from windlass.dashboard.routes import HEADERS, Routes, one_line
from windlass.kickoffs.roles import Role
from windlass.store.audit import AuditFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit

ROUTES = Routes()
PAGE = 50
MOST_DETAILS = 12
LONGEST_DETAIL = 200
FILTERS = ("user", "action", "target", "since", "until")
ACTIONS = ("deployment", "variable", "credential", "user", "token", "session", "signing_key", "kickoff")
"""The first words of actions. Each selects all actions that begin with it."""


@ROUTES.get("/audit", Role.OWNER)
async def show(visit: Visit) -> Response:
    given = {name: one_line(visit.query.get(name)) for name in FILTERS}
    wanted = _filter(given, visit.query.get("before"))
    rows = await visit.dashboard.control.audit.listed(wanted, limit=PAGE)
    filters = urlencode({name: value for name, value in given.items() if value})
    following = urlencode({"before": rows[-1].id}) if len(rows) == PAGE else None
    entries = [(row, details(row.details)) for row in rows]
    return visit.page("audit.html", entries=entries, given=given, filters=filters, following=following, actions=ACTIONS)


@ROUTES.get("/audit.csv", Role.OWNER)
async def download(visit: Visit) -> Response:
    wanted = _filter({name: one_line(visit.query.get(name)) for name in FILTERS}, None)
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="audit.csv"'}
    return StreamingResponse(audit_csv(visit.dashboard.control.audit, wanted), media_type="text/csv", headers=headers)


def _filter(given: Mapping[str, str], before: str | None) -> AuditFilter:
    """Returns the filter of a form. Its days are those of UTC, and `until` is the last one. Raises Problem 400."""
    since, until = _day(given["since"]), _day(given["until"])
    return AuditFilter(
        given["user"] or None,
        given["action"] or None,
        given["target"] or None,
        since,
        _day_after(until) if until else None,
        id_cursor(before),
    )


def _day(text: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise bad_request(f"{text[:40]!r} is no day. Give a day such as 2026-01-31.") from None


def _day_after(day: datetime) -> datetime | None:
    """Returns None for the last day that there is."""
    return None if day.date() == date.max else day + timedelta(days=1)


def details(found: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Returns the facts of an entry as pairs of name and text, MOST_DETAILS at most."""
    pairs: list[tuple[str, str]] = []
    for name, value in found.items():
        if isinstance(value, dict):
            pairs += details(value, f"{prefix}{name}.")
        elif value not in (None, "", []):
            pairs.append((f"{prefix}{name}", _words(value)[:LONGEST_DETAIL]))
    return pairs[:MOST_DETAILS]


def _words(value: Any) -> str:
    if isinstance(value, list):
        named = (str(one["name"]) if isinstance(one, dict) and "name" in one else _words(one) for one in value)
        return ", ".join(named)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
