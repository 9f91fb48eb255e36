"""The versions of a crew: what each changed, promote and roll back."""

# See docs/decisions/dashboard.md#the-live-build-log-asks-for-the-lines-after-the-last

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.api.control_api.dependencies import id_cursor
from windlass.api.errors import bad_request
from windlass.dashboard.crew_frame import crew_page
from windlass.dashboard.routes import Routes, whole_number
from windlass.rights import Role
from windlass.store.managing import LARGEST_NUMBER

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.store.builds import Build
    from windlass.store.managing import VersionRow
    from windlass.store.overview import DeploymentRow

ROUTES = Routes()
PAGE = 20
LONGEST_NUMBER = len(str(LARGEST_NUMBER))
MOST_NAMED = 12
"""Names of each kind of change that are listed."""
SIGNS = (("added", "+"), ("removed", "\N{MINUS SIGN}"), ("changed", "~"))


@dataclass(frozen=True, slots=True)
class Entry:
    """A version, or a build that has made none. `changes` are lines such as ("Inputs", "+", [names], more)."""

    number: int | None
    current: bool
    at: datetime
    build: Build | None
    changes: list[tuple[str, str, list[str], int]] | None


@ROUTES.get("/crews/{slug}/versions", Role.VIEWER)
async def show(visit: Visit) -> Response:
    control = visit.dashboard.control
    row = await control.management.show(visit.path["slug"])
    before = id_cursor(visit.query.get("before"))
    builds = await control.deploys.builds_of(row.id, before=before, limit=PAGE)
    entries = [Entry(one.version, _is_current(one.version, row), one.created_at, one, _changes(one)) for one in builds]
    if before is None and len(builds) < PAGE:
        versions = await control.deploys.versions(row.id, below=None, limit=PAGE)
        entries += [
            Entry(one.number, one.current, one.created_at, None, _changes(one)) for one in versions if one.build is None
        ]
    return await crew_page(
        visit,
        "versions.html",
        "Versions",
        crew=row,
        entries=sorted(entries, key=lambda one: one.at, reverse=True),
        earlier=await control.deploys.version_before(row.id),
        following=builds[-1].id if len(builds) == PAGE else None,
    )


@ROUTES.post("/crews/{slug}/promote", Role.DEVELOPER)
async def promote(visit: Visit) -> Response:
    slug = visit.path["slug"]
    number = await visit.dashboard.control.deploys.promote(
        slug, _number(visit, "version"), _number(visit, "current"), visit.actor
    )
    return visit.redirect(f"/ui/crews/{slug}/versions", notice=f"Version {number} is the current one.")


@ROUTES.post("/crews/{slug}/roll-back", Role.DEVELOPER)
async def roll_back(visit: Visit) -> Response:
    slug = visit.path["slug"]
    number = await visit.dashboard.control.deploys.roll_back(slug, _number(visit, "current"), visit.actor)
    return visit.redirect(f"/ui/crews/{slug}/versions", notice=f"Version {number} is the current one again.")


def _number(visit: Visit, name: str) -> int:
    number = whole_number(visit.field(name), LONGEST_NUMBER)
    if number is None or not 1 <= number <= LARGEST_NUMBER:
        raise bad_request("The number of the version is missing. Load the page again.")
    return number


def _is_current(number: int | None, row: DeploymentRow) -> bool:
    return number is not None and number == row.version


def _changes(of: Build | VersionRow) -> list[tuple[str, str, list[str], int]] | None:
    """Returns what changed, None where nothing was compared."""
    if of.changes is None:
        return None
    found: dict[str, Any] = of.changes
    lines = [
        (word, sign, list(found.get(part, {}).get(how, ())))
        for part, word in (("inputs", "Inputs"), ("tasks", "Tasks"))
        for how, sign in SIGNS
    ]
    return [(word, sign, names[:MOST_NAMED], max(0, len(names) - MOST_NAMED)) for word, sign, names in lines if names]
