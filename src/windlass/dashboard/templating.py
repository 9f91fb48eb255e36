"""Jinja2 with the filters and functions of the templates. All values are escaped, unless they are Markup."""

# See docs/decisions/dashboard.md#pages-are-rendered-on-the-server

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from markupsafe import Markup

from windlass.dashboard.cookies import EXACT_TIMES, THEME, THEMES, TIMES
from windlass.dashboard.output import indented
from windlass.dashboard.static_files import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2.runtime import Context

SECOND, MINUTE, HOUR, DAY = 1, 60, 3600, 86400
KILO = 1024
NONE = "–"  # noqa: RUF001 - a dash, as tables have
"""What stands in place of a missing value."""

BACK, MOST_BACK, LONGEST_CURSOR = "back", 30, 200
"""The parameter with the cursors of the pages before this one of a list, how many it has, and characters of one."""

WORDS = {"approle": "AppRole", "arn": "ARN", "ca": "CA", "id": "ID", "json": "JSON", "url": "URL"}
"""Words of names that are written in another way."""


exact_times: ContextVar[bool] = ContextVar("exact_times", default=False)
"""Whether the page that is rendered shows times in full, as the person has chosen, in place of "3 h ago"."""


class Templates:
    def __init__(self, url: Callable[[str], str]) -> None:
        """`url` returns the path in the browser of a path that begins with /ui."""
        self._url = url
        self._environment = Environment(
            loader=PackageLoader("windlass.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "ago": lambda at: utc(at) if exact_times.get() else ago(at),
            "browser": browser,
            "duration": duration,
            "number": number,
            "bytes": size,
            "json": indented,
            "utc": utc,
            "titled": titled,
        }
        self._environment.globals |= {
            "icon": self._icon,
            "url": url,
            "static": lambda name: url(static_path(name)),
            "may": may,
            "NONE": NONE,
            "now": lambda: datetime.now(UTC),
            "is_exact": exact_times.get,
            "page_links": page_links,
            "theme_of": theme_of,
        }

    def _icon(self, name: str) -> Markup:
        """Returns an icon of Tabler. It is hidden from screen readers, as a word stands beside it."""
        if name not in known_icons():
            raise LookupError(f"The icon {name} is missing: run `make assets`.")
        path = self._url(static_path("build/icons.svg"))
        return Markup('<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>').format(path, name)

    def render(self, name: str, /, **context: Any) -> str:
        visit = context.get("visit")
        exact_times.set(visit is not None and visit.request.cookies.get(TIMES) == EXACT_TIMES)
        return self._environment.get_template(name).render(**context)


def static_path(name: str) -> str:
    """Returns the path of a static file, with its tag. Raises LookupError for one that `make assets` has not made."""
    found = load(name)
    if found is None:
        raise LookupError(f"static/{name} is missing: run `make assets`.")
    return f"/ui/static/{name}?v={found.tag}"


@cache
def known_icons() -> frozenset[str]:
    """Returns the names of the icons that `make assets` found in the templates."""
    found = load("build/icons.svg")
    return frozenset(re.findall(r'id="([a-z0-9-]+)"', found.content.decode())) if found else frozenset()


@pass_context
def may(context: Context, role: str) -> bool:
    return bool(context["visit"].may(role))


def theme_of(visit: Any) -> str:
    theme: str = visit.request.cookies.get(THEME, "auto")
    return theme if theme in THEMES else "auto"


@dataclass(frozen=True, slots=True)
class PageLinks:
    """The paths of pages of a list. None where there is no such page. `number` is that of this page, if it is known."""

    first: str | None
    previous: str | None
    following: str | None
    number: int | None


def page_links(visit: Any, following: object, cursor: str) -> PageLinks:
    """Returns the links of a list whose next page begins at `following`, with the filters of this page.

    A store reads only forwards from a cursor. `back` in the query therefore has the cursors of the pages before this
    one, MOST_BACK at most. Before these comes the first page.
    """
    filters = [(name, value) for name, value in visit.query.items() if name not in {cursor, BACK}]
    here = visit.query.get(cursor, "")
    passed = [unquote(one)[:LONGEST_CURSOR] for one in visit.query.get(BACK, "").split(",") if one]

    def address(at: str, back: list[str]) -> str:
        more = [
            *([(cursor, at)] if at else []),
            *([(BACK, ",".join(quote(one, safe="") for one in back))] if back else []),
        ]
        query = urlencode([*filters, *more])
        path: str = visit.dashboard.url(visit.here.partition("?")[0])
        return f"{path}?{query}" if query else path

    return PageLinks(
        address("", []) if here else None,
        address(passed[-1] if passed else "", passed[:-1]) if here else None,
        address(str(following), [*passed, here][-MOST_BACK:] if here else []) if following else None,
        (len(passed) + 2 if here else 1) if len(passed) < MOST_BACK - 1 else None,
    )


BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS", "macOS"),
    ("Linux", "Linux"),
)


def browser(agent: str | None) -> str:
    """Returns a User-Agent header as `Firefox on Linux`, or shortened if it names no common browser."""
    if not agent:
        return "Unknown browser"
    name = next((name for mark, name in BROWSERS if mark in agent), None)
    system = next((name for mark, name in SYSTEMS if mark in agent), None)
    return f"{name} on {system}" if name and system else agent[:60]


def titled(name: str) -> str:
    """Returns the name of a member as a label: `role_arn` is `Role ARN`."""
    words = [WORDS.get(word, word) for word in name.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def utc(at: datetime) -> str:
    """Returns a time as `2026-01-15 09:30:00 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """Returns the distance of a time of the last or the next day in one unit: `3 h ago`, `in 2 min`. Other times are
    `15 Jan, 09:30 UTC`, or `15 Jan 2025` in another year.
    """
    if at is None:
        return NONE
    now = now or datetime.now(UTC)
    seconds = (now - at).total_seconds()
    distance = abs(seconds)
    if distance < 1:
        return "now"
    if distance >= DAY:
        at = at.astimezone(UTC)
        return f"{at.day} {at:%b, %H:%M} UTC" if at.year == now.astimezone(UTC).year else f"{at.day} {at:%b %Y}"
    units = ((HOUR, "h"), (MINUTE, "min"), (SECOND, "s"))
    length, unit = next((length, unit) for length, unit in units if distance >= length)
    text = f"{int(distance // length)} {unit}"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def duration(seconds: float | None) -> str:
    """Returns seconds as `120 ms`, `4.2 s`, `3 min 10 s` or `2 h 5 min`."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def number(value: float | None) -> str:
    """Returns a number with commas between thousands."""
    if value is None:
        return NONE
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Returns bytes as `512 B`, `1.5 KB` or `20 MB`, in steps of 1,024."""
    if value is None:
        return NONE
    for unit in ("B", "KB", "MB", "GB"):
        if value < KILO:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"  # noqa: PLR2004
        value /= KILO
    return f"{value:.1f} TB"
