"""Values of fields of forms, as the functions behind the pages take them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.dashboard.routes import Visit

LONGEST_LINE = 500


def one_line(given: str | None, longest: int = LONGEST_LINE) -> str:
    """Returns a text without NUL, which no text of the database holds, and without spaces at its ends."""
    return (given or "").replace("\0", "").strip()[:longest]


def several_lines(given: str) -> str:
    """Returns the text of a `textarea`, whose lines browsers end with CR LF."""
    return given.replace("\r\n", "\n")


def chosen(visit: Visit, name: str) -> list[str]:
    """Returns the values of a group of check boxes whose name is `name[]`."""
    found: list[str] = json.loads(visit.field(f"{name}[]", "[]"))
    return found
