"""Lists the findings of `windlass check`, with their codes and levels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from windlass.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"


CODES: Mapping[str, str] = {
    "agent_file_missing": "an agent of a JSON crew has no file",
    "config_invalid": "an agent or a task in a YAML file has no members, or a member of another form",
    "config_missing": "a crew asks for a name of a YAML file that is not there",
    "config_unused": "a YAML file has an entry without effect: a name twice, or a member that is unknown",
    "declaration_invalid": "a JSON crew or a declarative flow has a value that the framework refuses",
    "env_file": "the project's .env, or a line of it, can't be read",
    "interpreter": "the project's Python can't run crews",
    "jsonc_syntax": "a JSON file can't be read",
    "kept_data": "a function adds to a list, dict or set of its module, which kickoffs with `reuse` share",
    "load_failed": "the project's code failed while it was imported or built",
    "missing_module": "the project, or an installed package, has no module or name that the code imports",
    "missing_package": "a package is not installed in the project's interpreter",
    "no_placeholder": "a text looks like a placeholder, such as { topic } or {items[0]}, and no input replaces it",
    "never_runs": "no kickoff can run it: no tasks, no start, a generator, a method that nothing starts",
    "no_crew": "the project declares no crew, flow or function, or its entrypoint does not exist",
    "option": "an option in [tool.windlass] is unknown, or its value is not allowed",
    "own_question_ignored": "the code replaces a method that asks persons, which the installed framework does not call",
    "package_version": "a package is installed in another version than the project wants",
    "pyproject": "pyproject.toml is missing, or can't be read",
    "python_version": "the project's interpreter does not satisfy requires-python",
    "runs_at_import": "a module starts a crew or a flow while it is imported, or while the crew is made",
    "several_crews": "there is more than one crew or flow, and none is chosen",
    "shared_agent": "two tasks run at the same time with one agent, which does one task at a time",
    "unknown_agent": "a task names an agent that does not exist",
    "unknown_context": "a task's context names a task that does not exist or runs later",
    "unknown_name": "a member of a YAML file names a method that the crew's class does not have",
    "unset_variable": "the code reads an environment variable at import that is not set",
    "unstable_task_description": "a task's description changes each time that the crew is built",
    "unused_input": "an input has a default and is in no text of the crew",
    "waits_alive": "a flow or a task asks a person in a way for which the process of a kickoff waits",
    "yaml_syntax": "a YAML file can't be read",
}
"""Every code and its meaning."""


MOST_SHOWN = 20
"""The most errors that one message shows."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a warning about a project. A project without errors can be served.

    `file` is a path in the project. `hint` is the action that corrects it.
    """

    code: str
    level: Level
    message: str
    file: str | None = None
    line: int | None = None
    hint: str = ""

    @property
    def place(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line) if part is not None)

    def lines(self) -> list[str]:
        """Returns the finding for a person: its place and message, and below them the hint."""
        place = f"{self.place}: " if self.place else ""
        return [f"{place}{self.level}: {self.message} [{self.code}]", *([f"    {self.hint}"] if self.hint else [])]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(value: Mapping[str, Any]) -> Finding:
    return Finding(**{**value, "level": Level(value["level"])})


def as_error(errors: Sequence[Finding]) -> ProjectError:
    """Returns the error with which a project is refused: each place, what is wrong there, and what to do."""
    texts = [
        one.message if (one.file or "") in one.message and not one.line else f"{one.place}: {one.message}"
        for one in errors
    ]
    if len(errors) == 1:
        return ProjectError(texts[0], errors[0].hint)
    shown = list(zip(texts, errors, strict=True))[:MOST_SHOWN]
    lines = [line for text, one in shown for line in (text, *([f"    {one.hint}"] if one.hint else []))]
    more = [f"and {len(errors) - MOST_SHOWN} more"] if len(errors) > MOST_SHOWN else []
    return ProjectError("\n".join([f"{len(errors)} errors in the files of the project:", *lines, *more]))


def counts(findings: Iterable[Finding]) -> str:
    levels = [str(one.level) for one in findings]
    counted = [(name, levels.count(name)) for name in ("error", "warning")]
    return ", ".join(f"{number} {name}{'' if number == 1 else 's'}" for name, number in counted)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Returns each finding once, sorted by file and line. Findings without a file come first."""
    once = dict.fromkeys(findings)
    return sorted(once, key=lambda one: (one.file or "", one.line or 0, one.level, one.code, one.message))
