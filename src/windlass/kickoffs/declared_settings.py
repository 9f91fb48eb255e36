"""Declares settings. A field of a dataclass is a setting with its name, type and default, and `setting` adds the rest.

The checks of a project's options, the control API, the dashboard's page and docs/reference/crew-settings.md follow.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Form = Literal["count", "number", "seconds", "size", "days", "choice", "several", "lines", "text", "table"]
By = Literal["project", "deployment", "both", "owner"]
UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
SIZE_TEXT = re.compile(r"(\d+(?:\.\d+)?) ?([KMG]B|)", re.IGNORECASE | re.ASCII)
LARGEST = 2**31 - 1
MOST = 10**13
"""The largest value of any limit. A larger value is a typing error, and arithmetic with it could fail."""
MOST_DAYS = 36_500
"""A larger value is a typing error."""
FOREVER = "forever"
LONGEST_SHOWN = 100


class BadSetting(ValueError):  # noqa: N818 - describes the value
    """Reports an unknown name or an invalid value. The message names the valid ones."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a setting can have.

    `read` returns the value for one as people write it, and None for an invalid one. `wanted` completes "must be".
    `form` is the way in which a page shows and reads the value. `words` describes each choice. `type` and `bounds` are
    those of the value in JSON, in the words of pydantic. `table` is the class of a value that has settings as members.
    """

    form: Form
    wanted: str
    read: Callable[[Any], Any]
    type: Any
    bounds: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    table: type[SettingTable] | None = None

    def value(self, given: Any) -> Any:
        """Returns the value for one as people write it. Raises BadSetting."""
        found = self.read(given)
        if found is None:
            raise BadSetting(f"must be {self.wanted}")
        return found


def whole(most: int = LARGEST) -> Kind:
    wanted = "a whole number of 1 or more" if most == LARGEST else f"a whole number from 1 to {most}"
    return Kind(
        "count", wanted, lambda value: _number(value, 1, most) if isinstance(value, int) else None,
        int, {"ge": 1, "le": most},
    )  # fmt: skip


def number(least: float, most: float) -> Kind:
    bounds = {"ge": least, "le": most, "allow_inf_nan": False}
    return Kind("number", f"a number from {least} to {most}", lambda value: _number(value, least, most), float, bounds)


def number_above_0(most: float) -> Kind:
    bounds = {"gt": 0, "le": most, "allow_inf_nan": False}
    return Kind("number", f"a number above 0, up to {most}", lambda value: _above_0(value, most), float, bounds)


def pause(most: float) -> Kind:
    def read(value: Any) -> float | None:
        found = _number(value, 0, most)
        return None if found is None else float(found)

    return Kind("seconds", f"seconds, from 0 to {most:.0f}", read, float, {"ge": 0, "le": most})


def choice(**words: str) -> Kind:
    """Returns the kind of a text that is one of these. A choice without a description describes itself."""
    wanted = " or ".join(f'"{word}"' for word in words)
    return Kind(
        "choice", wanted, lambda value: value if isinstance(value, str) and value in words else None,
        Literal[tuple(words)], words=words,
    )  # fmt: skip


def several(make: Callable[[str], Any], **words: str) -> Kind:
    def read(value: Any) -> tuple[Any, ...] | None:
        valid = isinstance(value, list) and all(isinstance(one, str) and one in words for one in value)
        return tuple(map(make, value)) if valid else None

    return Kind("several", f"a list of {', '.join(words)}", read, list[str], words=words)


def _number(value: Any, least: float, most: float) -> Any:
    # a bool is an int, and no comparison holds for a NaN
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and least <= value <= most else None


def _above_0(value: Any, most: float = MOST) -> Any:
    return _number(value, 0, most) or None


def _count(value: Any) -> int | None:
    found = _above_0(value)
    return int(found) if found is not None and found == int(found) else None


def _size(value: Any) -> int | None:
    if isinstance(value, str) and (found := SIZE_TEXT.fullmatch(value.strip())):
        size = float(found[1]) * UNITS[found[2].upper()]
        return _count(int(size)) if math.isfinite(size) else None
    return _count(value)


def _days(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = 0 if value.strip().lower() == FOREVER else float(value)
        except ValueError:
            return None
    found: float | None = _number(value, 0, MOST_DAYS)
    return found


COUNT = Kind("count", "a whole number above 0", _count, int)
SECONDS = Kind("seconds", "a number of seconds above 0", _above_0, float)
SIZE = Kind("size", 'a number of bytes, or text such as "512 MB"', _size, int)
DAYS = Kind("days", f'a number of days up to {MOST_DAYS}, or "{FOREVER}" (the same as 0)', _days, float)


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that stand together on a page."""

    title: str
    text: str


OTHERS = Group("Others", "Settings without a group.")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a setting, without its name, type and default.

    `by` names who can set it: the project in its pyproject.toml, the deployment on the server, or both. `owner`: the
    deployment on the server, by a person with this role.
    """

    kind: Kind
    label: str
    meaning: str
    group: Group | None = None
    by: By = "both"


@dataclass(frozen=True, slots=True)
class Setting:
    """A declared setting. The name of a member of a table has a dot."""

    name: str
    kind: Kind
    default: Any
    label: str
    meaning: str
    group: Group
    by: str

    def of(self, settings: Mapping[str, Any]) -> Any:
        """Returns its value in nested settings, None if there is none."""
        found: Any = settings
        for part in self.name.split("."):
            found = found.get(part) if found else None
        return found


def setting(
    default: Any,
    kind: Kind,
    label: str,
    meaning: str,
    *,
    group: Group | None = None,
    by: By = "both",
) -> Any:
    """Declares a field as a setting. A `default` that can be called makes the default."""
    metadata = {Declaration: Declaration(kind, label, meaning, group, by)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def table(kind: type[SettingTable], group: Group, meaning: str) -> Any:
    """Declares a field as a table of settings. On a page, the table is a group."""
    members = Kind("table", "a table", kind.parse, dict[str, Any], table=kind)
    return setting(kind, members, group.title, meaning, group=group)


def declared(kind: type) -> dict[str, Declaration]:
    """Returns the declarations of the fields of a dataclass, by name."""
    return {one.name: one.metadata[Declaration] for one in fields(kind)}


def all_settings(kind: type, prefix: str = "", within: Group = OTHERS) -> Iterable[Setting]:
    """Returns each setting of a dataclass, with the members of tables in their place."""
    usual = kind()
    for name, one in declared(kind).items():
        group = one.group or within
        if one.kind.table:
            yield from all_settings(one.kind.table, f"{name}.", group)
        else:
            yield Setting(f"{prefix}{name}", one.kind, getattr(usual, name), one.label, one.meaning, group, one.by)


@dataclass(frozen=True, slots=True)
class SettingTable:
    """Settings that are a table of a project's pyproject.toml, and an object in JSON."""

    noun: ClassVar[str] = "setting"

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Returns the table for names and values as people write them. None stands for the default.

        Raises BadSetting.
        """
        known = declared(cls)
        if unknown := sorted(given.keys() - known.keys()):
            raise BadSetting(f"there is no {cls.noun} {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        return cls(
            **{name: checked(name, known[name].kind, value) for name, value in given.items() if value is not None}
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the values that differ from the defaults. `parse` accepts this value."""
        usual = type(self)()
        return {name: value for name, value in self.all().items() if value != plain(getattr(usual, name))}

    def all(self) -> dict[str, Any]:
        """Returns the values as JSON has them, by name."""
        return {name: plain(getattr(self, name)) for name in declared(type(self))}

    def with_values(self, given: Mapping[str, Any]) -> Self:
        """Returns the table with those of `given`, as people write them, in the place of its own."""
        return self.parse({**self.to_json(), **given})

    def replaced_by(self, other: Self) -> Self:
        """Returns the table with the values of `other` where that one has no default."""
        return self.with_values(other.to_json())


def checked(name: str, kind: Kind, value: Any) -> Any:
    """Returns the value of the setting. Raises BadSetting, with the name of the setting and the value."""
    try:
        return kind.value(value)
    except BadSetting as error:
        raise BadSetting(f"{name} {error}, not {shown(value)}") from None


def plain(value: Any) -> Any:
    """Returns the value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def shown(value: Any) -> str:
    """Returns a value as an error shows it."""
    # Python writes no integer of more than 4,300 digits
    text = f"a number above {MOST}" if isinstance(value, int) and value > MOST else _repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:
        return "such a large number"
