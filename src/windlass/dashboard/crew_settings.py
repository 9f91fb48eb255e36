"""The settings of a crew: each with its meaning, its default and where its value comes from. Members, and removal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windlass.access.tokens import NoSuchUser
from windlass.dashboard.crew_frame import crew_of, crew_page
from windlass.dashboard.routes import Routes, chosen, one_line, several_lines
from windlass.dashboard.setting_fields import FIELDS, GROUPS, UNITS, text_of, value_of, words_of
from windlass.deployments.members import EVERYBODY, MEMBERS
from windlass.deployments.settings import BadSettings, OwnersOnly
from windlass.errors import WindlassError
from windlass.kickoffs.boundary_parts import of_crew
from windlass.kickoffs.egress import WORDS, Egress
from windlass.projects.options import TABLES
from windlass.rights import Role
from windlass.store.managing import KickoffsOpen
from windlass.store.members import TooManyMembers

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.deployments.settings import ShownSettings
    from windlass.kickoffs.declared_settings import Setting

ROUTES = Routes()
BAD, FORBIDDEN, CONFLICT = 400, 403, 409
WAS = "was."
"""The beginning of the names of the fields that hold what a form began with."""
PATH = "/crews/{slug}/settings"


class WrongName(WindlassError):  # noqa: N818 - describes the name
    """Reports that the name that a person typed is not that of the crew."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting on the page. `text` is in its field, and `was` what stood there before a person typed.

    `default` and `placeholder` show the value that counts without.
    """

    field: Setting
    text: str
    was: str
    chosen: tuple[str, ...]
    default: str
    placeholder: str
    is_own: bool
    is_of_project: bool
    error: str
    warnings: list[str]


@ROUTES.get(PATH, Role.VIEWER)
async def show(visit: Visit) -> Response:
    return await _page(visit)


@ROUTES.post(PATH, Role.DEVELOPER)
async def change(visit: Visit) -> Response:
    management, slug = visit.dashboard.control.management, visit.path["slug"]
    patch = _patch(visit, await management.settings(slug))
    try:
        if patch:
            await management.change_settings(slug, patch, visit.actor, visit.person.role)
    except OwnersOnly as error:
        return await _page(visit, refusal=error, status=FORBIDDEN)
    except BadSettings as error:
        return await _page(visit, error=error, status=BAD)
    notice = "The settings are saved. Those of runs act from the next kickoff on." if patch else "Nothing was changed."
    return visit.redirect(f"/ui/crews/{slug}/settings", notice=notice)


@ROUTES.post("/crews/{slug}/members", Role.DEVELOPER)
async def set_member(visit: Visit) -> Response:
    """Adds a member, or changes whether the member is an owner."""
    slug, user, is_owner = visit.path["slug"], one_line(visit.field("user")), visit.field("owner") == "on"
    try:
        await visit.dashboard.control.members.put(slug, user, visit.actor, is_owner=is_owner)
    except (NoSuchUser, TooManyMembers) as error:
        return await _page(visit, membership_error=error, status=BAD)
    notice = f"{user} is {'an owner' if is_owner else 'a member'} of this crew."
    return visit.redirect(f"/ui/crews/{slug}/settings#members", notice=notice)


@ROUTES.post("/crews/{slug}/members/remove", Role.VIEWER)
async def remove_member(visit: Visit) -> Response:
    slug, user = visit.path["slug"], one_line(visit.field("user"))
    members = visit.dashboard.control.members
    await members.remove(slug, user, visit.actor)
    path = f"/ui/crews/{slug}/settings#members" if await members.sees(slug, visit.actor) else "/ui/"
    return visit.redirect(path, notice=f"{user} is no member of {slug} any more.")


@ROUTES.post("/crews/{slug}/visibility", Role.DEVELOPER)
async def show_to(visit: Visit) -> Response:
    slug = visit.path["slug"]
    visible_to = MEMBERS if visit.field("visible_to") == MEMBERS else EVERYBODY
    await visit.dashboard.control.members.show_to(slug, visible_to, visit.actor)
    seen_by = "its members" if visible_to == MEMBERS else "all viewers and developers"
    return visit.redirect(f"/ui/crews/{slug}/settings#members", notice=f"{slug} is visible to {seen_by}.")


@ROUTES.post("/crews/{slug}/remove", Role.DEVELOPER)
async def remove(visit: Visit) -> Response:
    slug = visit.path["slug"]
    if one_line(visit.field("name")) != slug:
        error = WrongName("The name that you typed is not that of this crew.", f"Type {slug}.")
        return await _page(visit, removal=error, status=BAD)
    try:
        await visit.dashboard.control.deploys.remove(slug, visit.actor, stop=visit.field("stop") == "on")
    except KickoffsOpen as open_ones:
        refused = WindlassError(open_ones.message, "Wait for them, or check the box that stops them.")
        return await _page(visit, removal=refused, status=CONFLICT)
    return visit.redirect("/ui/", notice=f"{slug} is removed. Its data is being deleted.")


async def _page(
    visit: Visit,
    error: BadSettings | None = None,
    removal: WindlassError | None = None,
    membership_error: WindlassError | None = None,
    refusal: OwnersOnly | None = None,
    status: int = 200,
) -> Response:
    crew, members = await crew_of(visit), visit.dashboard.control.members
    found = await visit.dashboard.control.management.settings(crew.slug)
    faults = _by_field(error) if error else {}
    groups = [(group, [_row(one, found, visit, faults) for one in fields]) for group, fields in GROUPS.items()]
    unplaced = refusal or (error if error and not faults else None)
    egress = Egress.parse(listed := found.effective["egress"] or ["open"])
    weak = ("no",) if egress.is_strict else ("no", "partly")
    boundaries = await visit.dashboard.control.overview.boundaries(crew.slug)
    context = {
        "groups": groups,
        "error": unplaced,
        "faults": faults,
        "removal": removal,
        "units": UNITS,
        "egress": egress,
        "files": found.effective["files"] or [],
        "listed": [one for one in listed if one not in WORDS],
        "unenforced": egress.is_enforced
        and any(part.part == "network" and part.holds in weak for one in boundaries for part in one.parts),
        "boundaries": [replace(one, parts=of_crew(one.parts, egress)) for one in boundaries],
        "membership": await members.of(crew.slug),
        "owns": await members.owns(crew.slug, visit.actor),
        "membership_error": membership_error,
        "user": one_line(visit.field("user")) if membership_error else "",
    }
    return await crew_page(visit, "crew_settings.html", "Settings", status, crew=crew, **context)


def _row(field: Setting, found: ShownSettings, visit: Visit, faults: dict[str, str]) -> SettingRow:
    own, default = field.of(found.own), field.of(found.defaults)
    text = visit.field(field.name) if faults else text_of(field, own)
    effective = default if own is None else own
    values = (
        tuple(chosen(visit, field.name)) if faults else tuple(effective or ()) if field.kind.form == "several" else ()
    )
    return SettingRow(
        field,
        text,
        visit.field(f"{WAS}{field.name}") if faults else _text(field, own, default),
        values,
        default=words_of(field, default),
        placeholder=text_of(field, default) or "none",
        is_own=own is not None,
        is_of_project=field.of(found.project) is not None,
        error=faults.get(field.name, ""),
        warnings=[] if faults else [one.message for one in found.warnings if one.setting == field.name],
    )


def _patch(visit: Visit, found: ShownSettings) -> dict[str, Any]:
    """Returns what the form changes of the own settings, as a JSON Merge Patch."""
    patch: dict[str, Any] = {}
    reset = visit.field("reset")
    for field in FIELDS:
        if field.name != reset and _is_untouched(visit, field):
            continue
        own = field.of(found.own)
        value = None if field.name == reset else _sent(visit, field, own, field.of(found.defaults))
        if value != own:
            _put(patch, field.name, value)
    return patch


def _is_untouched(visit: Visit, field: Setting) -> bool:
    """Returns whether the form has what it had when it was loaded: another person may have changed it since then."""
    sent = chosen(visit, field.name) if field.kind.form == "several" else visit.field(field.name).split()
    return visit.fields.get(f"{WAS}{field.name}", "-").split() == sent


def _text(field: Setting, own: Any, default: Any) -> str:
    """Returns what the fields of a setting hold at first, as one text."""
    if field.kind.form != "several":
        return text_of(field, own)
    values = (default if own is None else own) or ()
    return " ".join(one for one in field.kind.words if one in values)


def _sent(visit: Visit, field: Setting, own: Any, default: Any) -> Any:
    """Returns the value of the form, None for the default."""
    if field.kind.form == "several":
        values = [one for one in field.kind.words if one in chosen(visit, field.name)]
        return own if sorted(values) == sorted(own if own is not None else default or ()) else values
    text = several_lines(visit.field(field.name)).replace("\0", "").strip()
    if not text:
        return None
    return own if text == text_of(field, own) else value_of(field, text)


def _put(patch: dict[str, Any], name: str, value: Any) -> None:
    table, _, member = name.rpartition(".")
    (patch.setdefault(table, {}) if table else patch)[member] = value


def _by_field(error: BadSettings) -> dict[str, str]:
    """Returns the reasons by the names of fields. The reason of a table begins with the name of its member."""
    names = {field.name for field in FIELDS}
    found = {}
    for name, reason in error.invalid.items():
        first = name.split(".")[0]
        member = f"{first}.{reason.split()[0]}"
        placed = member if first in TABLES and member in names else first
        if placed in names:
            found[placed] = f"{reason[0].upper()}{reason[1:]}." if placed == first else _sentence(reason)
    return found


def _sentence(reason: str) -> str:
    """Returns the reason without the name of the member, which stands beside it."""
    return f"It {reason.partition(' ')[2]}."
