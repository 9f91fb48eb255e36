"""The settings of a crew. A project sets them in [tool.windlass] of its pyproject.toml, a deployment on its server.

docs/reference/crew-settings.md lists them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

from windlass.errors import ProjectError
from windlass.kickoffs.declared_settings import (
    SECONDS,
    BadSetting,
    Group,
    Kind,
    all_settings,
    checked,
    choice,
    declared,
    number,
    number_above_0,
    plain,
    setting,
    shown,
    table,
    whole,
)
from windlass.kickoffs.egress import EGRESS
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.opened_files import FILES as OPENED_FILES
from windlass.kickoffs.questions import FAIL
from windlass.kickoffs.retention import Retention
from windlass.kickoffs.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

SOONEST_REMINDER = 60
"""Seconds."""
Strategy = Literal["enqueue", "reject", "cancel_running"]
QUEUE = Group("Queue", "How many kickoffs run and wait, and which of them is next.")
LIMITS = Group(
    "Limits of a run", "What ends a run that loops, leaks or floods. A kickoff can ask for less, not for more."
)
RETRIES = Group("Retries", "When a failed kickoff runs again. It continues after its last finished task.")
RETENTION = Group(
    "Retention", "How long data of kickoffs is kept after they have ended. 0 or `forever` keeps the data."
)
RUNS = Group("Runs and clients", "How a run starts, and what clients of the crew may do.")
NETWORK = Group("Network", "What the runs of the crew may connect to.")
APPROVALS = Group("Questions to people", "Who answers when a crew asks a person, and what happens if nobody does.")
FILES = Group("Files of the project", "What the version of a project consists of, and which Python runs it.")
ORIGIN = re.compile(r"\*|https?://(?:[a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
MOST_ORIGINS = 100
LONGEST_WORD = 200
MOST_APPROVERS = 100
LONGEST_USER = 100
"""Characters of the name of a user."""


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


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.strip() == value and 0 < len(value) <= LONGEST_WORD


def _approvers(given: Any) -> Any:
    if not isinstance(given, list) or len(given) > MOST_APPROVERS:
        return None
    for one in given:
        if not _is_word(one) or len(one) > LONGEST_USER or not one.isprintable():
            raise BadSetting(f"{str(one)[:LONGEST_USER]!r} is no role and can't be the name of a user")
    return given


def _origins(given: list[str]) -> list[str]:
    for one in given:
        if not ORIGIN.fullmatch(one):
            raise BadSetting(f"{one[:100]!r} is no origin such as https://app.example.com, and not *")
    return given


PATTERNS = Kind(
    "lines", 'a list of paths in the project, such as ["data/*", "*.csv"]',
    lambda value: value if _are_patterns(value) else None, list[str],
)  # fmt: skip
PYTHON = Kind(
    "text", 'a version such as "3.12", or the path of an interpreter or an environment',
    lambda value: value if _is_python(value) else None, str,
)  # fmt: skip
REMINDER = Kind(
    "seconds", f"a number of seconds of at least {SOONEST_REMINDER}",
    lambda value: value if SECONDS.read(value) and value >= SOONEST_REMINDER else None, float,
)  # fmt: skip
WORD = Kind(
    "text", "fail, approve, reject or a choice of a flow, of at most 200 characters",
    lambda value: value if _is_word(value) else None, str,
)  # fmt: skip
APPROVERS = Kind(
    "lines", f"a list of at most {MOST_APPROVERS} roles and names of users",
    _approvers, list[str],
)  # fmt: skip
ORIGINS = Kind("lines", "a list of origins", _origins, list[str], {"max_length": MOST_ORIGINS})


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of a crew. A new one is declared here, and used where it acts."""

    concurrency: int | None = setting(
        None, whole(), "Kickoffs at once", "The most kickoffs that run at once, over all workers.", group=QUEUE
    )
    weight: float = setting(
        1, number(0.001, 1000), "Weight", "Its share of the slots, relative to others.", group=QUEUE
    )
    max_waiting: int | None = setting(
        None, whole(), "Longest queue", "The most kickoffs that wait in its queue. Further ones get 429.", group=QUEUE
    )
    concurrency_strategy: Strategy = setting(
        "enqueue",
        choice(enqueue="wait for its turn", reject="refuse it with 409", cancel_running="replace the other one"),
        "Same concurrency key",
        "The effect of an open kickoff with the same concurrency key.",
        group=QUEUE,
    )
    limits: Limits = table(
        Limits, LIMITS, "Limits of a run, such as `timeout` in seconds and `memory_limit` in bytes or as text."
    )
    retries: Retries = table(
        Retries, RETRIES, "When a failed kickoff runs again: `attempts`, `backoff`, `longest_backoff`, `reasons`."
    )
    retention: Retention = table(
        Retention, RETENTION, "Days that `kickoffs`, `events` and `journal` are kept after the end of a kickoff."
    )
    preload: Literal["framework", "project"] = setting(
        "framework",
        choice(framework="the framework alone", project="the modules of the project too"),
        "Import before the fork",
        "What is imported before a run's process is forked. `project` starts runs quicker. Its modules must bear "
        "a fork.",
        group=RUNS,
    )
    reuse: int = setting(
        1,
        whole(1000),
        "Kickoffs of a process",
        "How many kickoffs one process may run, one after the other. More than 1 start quicker, and share the "
        "variables of modules.",
        group=RUNS,
    )
    profile: Literal["documented", "live"] = setting(
        "documented",
        choice(documented="as CrewAI's guide shows it", live="with all members"),
        "Form of the result",
        "The form of the result in its statuses. A token can have a form of its own.",
        group=RUNS,
    )
    approval_timeout: float | None = setting(
        None,
        SECONDS,
        "Time for an answer",
        "Time in which a person must answer a question of the crew.",
        group=APPROVALS,
    )
    approval_on_timeout: str = setting(
        FAIL,
        WORD,
        "Without an answer",
        "What happens after that time: `fail` ends the kickoff, `approve` and `reject` answer. Another word is the "
        "choice that is taken in a flow.",
        group=APPROVALS,
    )
    approval_reminder: float | None = setting(
        None,
        REMINDER,
        "Reminder",
        "Time after which `humanInputWebhook` is called again for a question that nobody has answered, and again "
        "after each such time.",
        group=APPROVALS,
    )
    approvers: list[str] = setting(
        list,
        APPROVERS,
        "Who may answer",
        "Names of users, `users` (each of them for own kickoffs), `developer`, `owner` (people with at least this "
        "role), `organization` (its tokens) and `webhook` (the receiver of its `humanInputWebhook`, by the "
        "`callback_url`). None: all who may start kickoffs, and that receiver.",
        group=APPROVALS,
        by="deployment",
    )
    egress: list[str] | None = setting(
        None,
        EGRESS,
        "Egress",
        "The hosts that runs may connect to: `open` (all but metadata services and the server's own machine), `public` "
        "(no private addresses), `none`, `unrestricted`, or a list of names, addresses and networks, each with a port "
        "or without: `api.openai.com`, `*.serper.dev:443`, `10.1.2.0/24`, `open` together with `127.0.0.1:11434`. Only "
        "usual ports of services can be reached: name another one with its host.",
        group=NETWORK,
        by="owner",
    )
    files: list[str] | None = setting(
        None,
        OPENED_FILES,
        "Files of the server",
        "Files of the server's machine that runs may use beside their own: paths with `:ro` (read) or `:rw` (write "
        "too), such as `/data/models:ro`. Folders of the server itself stay closed.",
        group=RUNS,
        by="owner",
    )
    secret_in_prompt: Literal["warn", "refuse"] = setting(
        "warn",
        choice(warn="a warning on the kickoff", refuse="the end of the run"),
        "Secret in a prompt",
        "The effect of the value of a secret variable in a prompt: a warning, or the end of the run.",
        group=RUNS,
    )
    cors_origins: list[str] = setting(
        list,
        ORIGINS,
        "Web pages that may call it",
        "Origins of web pages that may use its crew API, such as `https://app.example.com`. `*`: all.",
        group=RUNS,
        by="deployment",
    )
    rate_limit: float | None = setting(
        None, number_above_0(100_000), "Rate limit", "Requests a second of each token.", group=RUNS, by="deployment"
    )
    start: Literal["fork", "exec"] = setting(
        "fork",
        choice(fork="from a process that has imported the framework", exec="as a fresh interpreter"),
        "Start",
        "How the process of a run starts.",
        group=RUNS,
        by="project",
    )
    ignore: list[str] = setting(
        list,
        PATTERNS,
        "Ignored files",
        "Patterns of paths in the project. A change of a matching file does not change the project.",
        group=FILES,
        by="project",
    )
    python: str | None = setting(
        None, PYTHON, "Python", "The interpreter, as a path or a version.", group=FILES, by="project"
    )

    @classmethod
    def parse(cls, given: Mapping[str, Any], file: Path, others: Collection[str] = ()) -> Self:
        """Parses the table of a project. `others` are the keys of the same table that name the entrypoint.

        Raises ProjectError with the file and the key.
        """
        known = {name: one for name, one in declared(cls).items() if one.by in ("project", "both")}
        names = sorted({*known, *others})
        if unknown := sorted(given.keys() - names):
            raise _fault(file, f"{unknown[0]} is no option; there are: {', '.join(names)}")
        values: dict[str, Any] = {}
        for name, one in known.items():
            if name in given:
                try:
                    values[name] = (
                        _table(name, given[name], file) if one.kind.table else checked(name, one.kind, given[name])
                    )
                except BadSetting as error:
                    raise _fault(file, str(error)) from None
        return cls(**values)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Restores options from the value of `to_json`."""
        return cls(**{**value, **{name: kind.parse(value.get(name, {})) for name, kind in TABLES.items()}})

    def replaced_by(self, settings: Mapping[str, Any]) -> Self:
        """Returns the options with those of a deployment's settings in their place. Tables are replaced by member.

        `settings` are valid. Members that are no settings are ignored.
        """
        given = {name: value for name, value in settings.items() if name in declared(type(self))}
        own = {name: getattr(self, name).with_values(given[name]) for name in TABLES if name in given}
        return replace(self, **{**given, **own})

    def over(self, server: Self) -> Self:
        """Returns the options with those of the server where there are none."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        unset = {name: getattr(server, name) for name, value in own.items() if value is None}
        return replace(self, **unset, **{name: getattr(server, name).replaced_by(own[name]) for name in TABLES})

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

    def settings(self) -> dict[str, Any]:
        """Returns all that a deployment can set, as JSON has it."""
        own = {name: getattr(self, name) for name, one in declared(type(self)).items() if one.by != "project"}
        return {name: value.all() if name in TABLES else plain(value) for name, value in own.items()}


@lru_cache(1000)
def _of_kickoff(text: str) -> Options:
    options, settings = json.loads(text)
    return Options.from_json(options).replaced_by(settings)


TABLES = {name: one.kind.table for name, one in declared(Options).items() if one.kind.table}
"""Options that are tables: [tool.windlass.limits] and so on."""
SETTINGS = tuple(all_settings(Options))
"""All settings of a crew, with the members of tables."""


def _table(name: str, given: Any, file: Path) -> Any:
    if not isinstance(given, dict):
        raise BadSetting(f"{name} must be a table, not {shown(given)}")
    try:
        return TABLES[name].parse(given)
    except BadSetting as error:
        raise ProjectError(f"{file}: in [tool.windlass.{name}], {error}.") from None


def _fault(file: Path, what: str) -> ProjectError:
    return ProjectError(f"{file}: in [tool.windlass], {what}.")
