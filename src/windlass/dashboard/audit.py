"""The audit log: who changed what, newest first."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.responses import StreamingResponse

from windlass.api.control_api.dependencies import id_cursor
from windlass.api.control_api.people import audit_csv
from windlass.api.errors import bad_request
from windlass.dashboard.executions import short_id
from windlass.dashboard.routes import HEADERS, Routes, one_line
from windlass.kickoffs.ids import parse_id
from windlass.rights import Role
from windlass.store.audit import AuditFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.store.audit import AuditEntry

ROUTES = Routes()
PAGE = 50
MOST_DETAILS = 12
LONGEST_DETAIL = 200
FILTERS = ("user", "action", "target", "since", "until")
ACTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "kickoff": (
        "Executions",
        {
            "start": "Started an execution",
            "stop": "Stopped an execution",
            "stop_all": "Stopped executions of a crew",
            "answer": "Answered a question",
            "delete": "Deleted an execution",
        },
    ),
    "deployment": (
        "Crews",
        {
            "create": "Created a crew",
            "deploy": "Deployed a version",
            "redeploy": "Redeployed a version",
            "promote": "Promoted a version",
            "rollback": "Rolled back",
            "pause": "Paused a crew",
            "resume": "Resumed a crew",
            "settings": "Changed settings",
            "show_to": "Changed who sees a crew",
            "remove": "Removed a crew",
        },
    ),
    "member": ("Members of crews", {"put": "Set a member", "remove": "Removed a member"}),
    "variable": ("Variables", {"set": "Set variables", "unset": "Removed a variable"}),
    "webhooks": (
        "Webhooks",
        {
            "change": "Changed webhooks",
            "show_secret": "Showed the signing secret",
            "rotate_secret": "Rotated the signing secret",
            "test": "Tested a webhook",
            "redeliver": "Sent a delivery again",
        },
    ),
    "credential": (
        "Credentials",
        {"add": "Added a credential", "change": "Changed a credential", "remove": "Removed a credential"},
    ),
    "user": (
        "Users",
        {
            "add": "Added a user",
            "set_role": "Set a role",
            "disable": "Disabled a user",
            "enable": "Enabled a user",
            "remove": "Removed a user",
            "delete_kickoffs": "Deleted executions of a user",
            "set_password": "Set a password",
            "link": "Linked an account of the provider",
            "make_link": "Made a sign-in link",
        },
    ),
    "session": ("Sign-ins", {"begin": "Signed in", "end_all": "Signed out everywhere"}),
    "token": (
        "Tokens",
        {
            "create": "Created a token",
            "show": "Showed a token",
            "rotate": "Rotated a token",
            "revoke": "Revoked a token",
        },
    ),
    "identity": ("Signing keys", {"rotate": "Rotated the signing key"}),
    "keys": (
        "Master keys",
        {"prepare": "Prepared a master key", "rotate": "Rotated the master key", "drop": "Dropped a master key"},
    ),
}
"""The groups of actions by their first word: a title, and what each action is called on the page."""
WORDS = {f"{group}.{action}": words for group, (_, actions) in ACTIONS.items() for action, words in actions.items()}


@ROUTES.get("/audit", Role.OWNER)
async def show(visit: Visit) -> Response:
    given = {name: one_line(visit.query.get(name)) for name in FILTERS}
    wanted = _filter(given, visit.query.get("before"))
    rows = await visit.dashboard.control.audit.listed(wanted, limit=PAGE)
    filters = urlencode({name: value for name, value in given.items() if value})
    following = rows[-1].id if len(rows) == PAGE else None
    return visit.page(
        "audit.html",
        entries=[(row, *target_of(row), details(row.details)) for row in rows],
        given=given,
        filters=filters,
        following=following,
        words=WORDS,
        actions=[
            (title, group, [(f"{group}.{name}", words) for name, words in names.items()])
            for group, (title, names) in ACTIONS.items()
        ],
        is_known=given["action"] in {*ACTIONS, *WORDS},
    )


def target_of(row: AuditEntry) -> tuple[str, str | None]:
    """Returns the target as the page shows it, and the path of its page, None for one without a page."""
    group, _, action = row.action.partition(".")
    kickoff = parse_id(row.target) if group == "kickoff" else None
    if kickoff is not None:
        return short_id(kickoff), None if action == "delete" else f"/ui/executions/{kickoff}"
    quoted = quote(row.target, safe="")
    of_crew = (
        group in {"deployment", "member", "variable", "kickoff", "webhooks"}
    ) and row.action != "deployment.remove"
    if of_crew or (group == "token" and row.details.get("deployment") == row.target):
        return row.target, f"/ui/crews/{quoted}"
    if group == "credential" and action != "remove":
        return row.target, f"/ui/credentials/{quoted}"
    if group in {"user", "session"} and action != "remove":
        return row.target, f"/ui/people/user?name={quoted}"
    return row.target, None


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
