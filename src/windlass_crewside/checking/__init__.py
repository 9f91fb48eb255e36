"""What `windlass check` asks of a project's own interpreter and code. It is called as a function's project is: in a
child of its own, whose environment is the project's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_crewside import frameworks
from windlass_crewside.checking import clock, configs, declarations, entries, failing, packages
from windlass_crewside.checking.code import Code
from windlass_crewside.checking.found import ERROR
from windlass_crewside.messages import Project
from windlass_crewside.surroundings import environment
from windlass_crewside.veil import Veil

if TYPE_CHECKING:
    from windlass_crewside.frameworks import Loaded


def examine(kind: str, root: str, entrypoint: str, *, later: bool = False) -> dict[str, Any]:
    """`findings` as windlass.projects.checks has them, `tasks` with key, name, file and line (None for a project that
    can't be loaded), and the variable that is `unset`. With `later` the clock of the project's code is ahead.
    """
    project, code = Project(kind, root, entrypoint), Code(Path(root))
    found = [
        *packages.findings(code.root),
        *configs.findings(code, entries.known_members() if code.crews else {}),
        *declarations.findings(project),
    ]
    loaded = load(project, later=later)
    answer: dict[str, Any] = {"findings": found, "tasks": None, "unset": None}
    if isinstance(loaded, BaseException):
        known = any(one["level"] == ERROR for one in found) and failing.comes_of_a_declaration(loaded)
        if not known:
            answer["findings"] = failing.with_it(found, failing.finding(loaded, project))
        answer["unset"] = failing.unset(loaded)
    else:
        answer["tasks"] = tasks(loaded, code)
    return dict(Veil(environment()).plain(answer))


def load(project: Project, *, later: bool) -> Loaded | BaseException:
    try:
        with clock.ahead() if later else clock.as_it_is():
            return frameworks.load(project)
    except BaseException as error:  # noqa: BLE001 - around the crew's code: whatever it raises is what is wrong with it
        return error


def tasks(loaded: Loaded, code: Code) -> list[dict[str, Any]]:
    return [
        {"key": task["key"], "name": task["name"], **code.place_of(task["name"])} for task in loaded.manifest()["tasks"]
    ]
