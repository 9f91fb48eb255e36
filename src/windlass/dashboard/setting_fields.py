"""The fields of the settings of a crew: how a text in a form becomes a value, and a value a text."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from windlass.dashboard.templating import NONE
from windlass.projects.options import SETTINGS

if TYPE_CHECKING:
    from windlass.kickoffs.declared_settings import Group, Setting

UNITS = {"seconds": "seconds", "days": "days", "size": "such as 512 MB"}
SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))
FIELDS = tuple(one for one in SETTINGS if one.by != "project")
GROUPS: dict[Group, list[Setting]] = {one.group: [] for one in FIELDS}
for one in FIELDS:
    GROUPS[one.group].append(one)


def value_of(setting: Setting, text: str) -> Any:
    """Returns the value that the text of the form stands for. A text that is no number stays as it is: the check of
    the settings names the reason.
    """
    if setting.kind.form == "lines":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if setting.kind.form in {"count", "number", "seconds", "days"}:
        for number in (int, float):
            with suppress(ValueError):
                return number(text.replace(",", ""))
    return text


def text_of(setting: Setting, value: Any) -> str:
    """Returns the value as the form has it: `value_of` reads it."""
    form = setting.kind.form
    if value is None:
        return ""
    if form == "lines":
        return "\n".join(value)
    if form == "days" and value == 0:
        return "forever"
    if form == "size":
        return next((f"{value // size} {unit}" for size, unit in SIZES if value and value % size == 0), str(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def words_of(setting: Setting, value: Any) -> str:
    """Returns the value as a person reads it."""
    form = setting.kind.form
    if value is None or value == []:
        return "none" if form != "choice" else NONE
    if form in {"several", "lines"}:
        return ", ".join(str(one) for one in value)
    text = text_of(setting, value)
    if form == "days" and value:
        return f"{text} {'day' if value == 1 else 'days'}"
    return f"{text} s" if form == "seconds" else text
