"""The part of `windlass check` that runs in a project's own interpreter, with the project's code.

The server runs it like a function project: in a child of its own, with the project's environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child import frameworks, kinds
from windlass_child.checks import clock, findings, packages
from windlass_child.masking.redaction import Redaction
from windlass_child.process.error_text import ProjectFault, text_of
from windlass_child.process.process_env import environment
from windlass_child.project_files.code import Code
from windlass_child.project_files.found import ERROR, WARNING, Found
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from windlass_child.kinds import Loaded


def examine(
    kind: str,
    root: str,
    entrypoint: str,
    *,
    later: bool = False,
    is_loaded: bool = False,
    wanted: list[dict[str, Any]] | None = None,
    used: list[str] | None = None,
) -> dict[str, Any]:
    """Checks a project. With `later`, the clock of the project's code is ahead. With `is_loaded`, another process has
    loaded it without a fault, and its code runs again only if a run constructs more than a load.

    `wanted` are requirements of windlass.projects.requirements. `used` are the classes with @CrewBase that the
    entrypoint uses, as "file:line". The files of others are not checked. None stands for all classes.

    The result has three members. `findings` are those of windlass.projects.findings. `tasks` have key, name, file and
    line, or are None for a project that can't be loaded. `unset` is the name of a variable that is not set.

    Where the load builds the whole project, errors in its files are warnings if it succeeds: they are in the files of
    another class than the one that is served.
    """
    project, code = Project(kind, root, entrypoint), Code(Path(root), used)
    found = [*packages.findings(code.root), *packages.of_wanted(code.root, wanted or [])]
    for adapter in frameworks.adapters():
        found += adapter.findings(project, code)
    loaded = None if is_loaded and not kinds.KINDS[kind].constructs else load(project, later=later)
    answer: dict[str, Any] = {"findings": found, "tasks": None, "unset": None}
    if isinstance(loaded, BaseException):
        known = any(one["level"] == ERROR for one in found) and findings.comes_of_a_declaration(loaded)
        if not known:
            answer["findings"] = findings.with_it(found, findings.finding(loaded, project))
        answer["unset"] = findings.unset(loaded)
    else:
        answer["tasks"] = tasks(loaded, code) if loaded is not None else []
        if kinds.KINDS[kind].built_at_load:
            answer["findings"] = [Found(**{**one, "level": WARNING}) for one in found]
    return dict(Redaction(environment()).plain(answer))


def load(project: Project, *, later: bool) -> Loaded | BaseException:
    try:
        with clock.ahead() if later else clock.as_it_is():
            loaded = kinds.load(project)
            construct(loaded)
            return loaded
    except BaseException as error:  # noqa: BLE001 - runs crew code: every exception that it raises is a finding
        return error


def construct(loaded: Loaded) -> None:
    try:
        loaded.construct()
    except Exception as error:
        name = loaded.manifest()["name"]
        message = f"no kickoff can run {name}: it can't be constructed: {type(error).__name__}: {text_of(error)}"
        raise ProjectFault(message, "Correct its constructor, or the model of its state.", "never_runs") from error


def tasks(loaded: Loaded, code: Code) -> list[dict[str, Any]]:
    return [
        {"key": task["key"], "name": task["name"], **code.place_of(task["name"])} for task in loaded.manifest()["tasks"]
    ]
