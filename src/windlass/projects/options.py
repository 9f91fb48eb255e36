"""Parses a project's options: [tool.windlass] in its pyproject.toml.

docs/concepts/queue.md and docs/reference/limits.md list them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

from windlass.errors import ProjectError
from windlass.kickoffs.limits import BadLimit, Limits
from windlass.kickoffs.retention import BadAge, Retention
from windlass.kickoffs.retries import BadRetries, Retries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

Strategy = Literal["enqueue", "reject", "cancel_running"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a project.

    - `concurrency`: the maximum number of its kickoffs that run at once, over all workers.
    - `weight`: its share of the slots, relative to other projects.
    - `max_waiting`: the maximum number of waiting kickoffs, or None for the server's default.
    - `preload`: with "project", its processes are forked from one that has imported the project's modules too.
    - `start`: with "exec", its processes are not forked. They start as fresh interpreters.
    - `ignore`: patterns of paths in the project. A change of a matching file does not change the project.
    - `python`: its interpreter, as a path or a version.
    - `profile`: the form of the result in its statuses, for tokens without a profile of their own.
    - `secret_in_prompt`: the effect of the value of a secret variable in a prompt: a warning, or the end of the run.
    - `reuse`: how many kickoffs one process may run, one after the other.
    """

    concurrency: int | None = None
    weight: float = 1
    max_waiting: int | None = None
    concurrency_strategy: Strategy = "enqueue"
    preload: Literal["framework", "project"] = "framework"
    start: Literal["fork", "exec"] = "fork"
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    retries: Retries = field(default_factory=Retries)
    ignore: list[str] = field(default_factory=list)
    python: str | None = None
    profile: Literal["documented", "live"] = "documented"
    secret_in_prompt: Literal["warn", "refuse"] = "warn"  # noqa: S105 - no password
    reuse: int = 1

    @classmethod
    def parse(cls, table: Mapping[str, Any], file: Path, others: Collection[str] = ()) -> Self:
        """Parses the table. `others` are the keys of the same table that name the entrypoint.

        Raises ProjectError with the file and the key.
        """
        known = {one.name for one in fields(cls)}
        if unknown := sorted(table.keys() - known.union(others)):
            raise _fault(file, unknown[0], f"is no option; there are: {', '.join(sorted(known.union(others)))}")
        given: dict[str, Any] = {name: table[name] for name in known - TABLES.keys() if name in table}
        for name, value in given.items():
            if not CHECKS[name].takes(value):
                raise _fault(file, name, f"must be {CHECKS[name].wanted}, not {_shown(value)}")
        tables: dict[str, Any] = {name: _table(name, table.get(name, {}), file) for name in TABLES}
        return cls(**given, **tables)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Restores options from the value of `to_json`."""
        return cls(**{**value, **{name: kind.parse(value.get(name, {})) for name, kind in TABLES.items()}})

    def replaced_by(self, settings: Mapping[str, Any]) -> Self:
        """Returns the options with those of a deployment's settings in their place. Tables are replaced by member.

        `settings` are valid. Members that are no options are ignored.
        """
        named = {one.name for one in fields(self)} - TABLES.keys()
        return replace(
            self,
            **{name: value for name, value in settings.items() if name in named},
            limits=self.limits.replaced_by(Limits.parse(settings.get("limits", {}))),
            retention=Retention.parse(settings.get("retention", {})).over(self.retention),
            retries=Retries.parse({**self.retries.to_json(), **settings.get("retries", {})}),
        )

    @staticmethod
    def of_kickoff(source: Mapping[str, Any], settings: Mapping[str, Any]) -> Options:
        """Returns the options of a version with this source, under these settings of its deployment."""
        return _of_kickoff(json.dumps([source.get("options", {}), settings]))

    def to_json(self) -> dict[str, Any]:
        """Returns the options that differ from the defaults."""
        usual = Options()
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        found = {name: value for name, value in given.items() if value != getattr(usual, name)}
        return {name: value.to_json() if name in TABLES else value for name, value in found.items()}


@lru_cache(1000)
def _of_kickoff(text: str) -> Options:
    options, settings = json.loads(text)
    return Options.from_json(options).replaced_by(settings)


@dataclass(frozen=True, slots=True)
class Check:
    takes: Callable[[Any], bool]
    wanted: str


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST


def _is_weight(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and LEAST <= value <= MOST
    )


def _are_patterns(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_pattern, value))


def _is_pattern(value: Any) -> bool:
    return (
        isinstance(value, str)
        and bool(value.strip("/ "))
        and not value.startswith("/")
        and ".." not in value.split("/")
    )


def _is_python(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _one_of(*words: str) -> Check:
    listed = " or ".join(f'"{word}"' for word in words)
    return Check(lambda value: isinstance(value, str) and value in words, listed)


LARGEST = 2**31 - 1
MOST_RUNS = 1000
LONGEST_SHOWN = 200
LEAST, MOST = 0.001, 1000
CHECKS = {
    "concurrency": Check(_is_count, "a whole number of 1 or more"),
    "max_waiting": Check(_is_count, "a whole number of 1 or more"),
    "weight": Check(_is_weight, f"a number from {LEAST} to {MOST}"),
    "concurrency_strategy": _one_of("enqueue", "reject", "cancel_running"),
    "preload": _one_of("framework", "project"),
    "python": Check(_is_python, 'a version such as "3.12", or the path of an interpreter or an environment'),
    "start": _one_of("fork", "exec"),
    "reuse": Check(lambda value: _is_count(value) and value <= MOST_RUNS, "a whole number from 1 to 1000"),
    "profile": _one_of("documented", "live"),
    "secret_in_prompt": _one_of("warn", "refuse"),
    "ignore": Check(_are_patterns, 'a list of paths in the project, such as ["data/*", "*.csv"]'),
}


TABLES: dict[str, type[Limits | Retention | Retries]] = {
    "limits": Limits,
    "retention": Retention,
    "retries": Retries,
}
"""Options that are tables: [tool.windlass.limits] and so on."""


def _table(name: str, table: Any, file: Path) -> Limits | Retention | Retries:
    if not isinstance(table, dict):
        raise _fault(file, name, f"must be a table, not {_shown(table)}")
    try:
        return TABLES[name].parse(table)
    except (BadLimit, BadAge, BadRetries) as error:
        raise ProjectError(f"{file}: in [tool.windlass.{name}], {error}.") from None


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        return "such a large number"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _fault(file: Path, key: str, what: str) -> ProjectError:
    return ProjectError(f"{file}: in [tool.windlass], {key} {what}.")
