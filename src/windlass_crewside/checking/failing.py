"""Why a project could not be loaded, as a finding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windlass_crewside.checking.found import Found, error, place_in
from windlass_crewside.faults import ProjectFault, chain, explain, of_the_project, sentence, unset_variable, where

if TYPE_CHECKING:
    from windlass_crewside.messages import Project

SAID = (
    ("several_crews", " has more than one "),
    ("no_crew", "no crew found"),
    ("no_crew", "no flow found"),
    ("no_crew", " names a module that is not there"),
    ("never_runs", "no kickoff can run"),
)
"""Words of ProjectFaults, which say what they are of."""

DECLARED = ("json_crew", "declarative_flow")


def finding(fault: BaseException, project: Project) -> Found:
    root = Path(project.root)
    code = code_of(fault, root)
    missing = next((one for one in chain(fault) if code == "missing_package" and absent(one, root)), fault)
    told = explain(missing, "load", project.root)
    place = next(filter(None, (where(one, root) for one in chain(fault))), "")
    message = told.message.replace(f" (imported at {place})", "").replace(f" ({place})", "")
    if name := unset(fault):
        message = f"the code reads the variable {name} when it is loaded, and it is not set."
    if isinstance(fault, ProjectFault) and project.kind in DECLARED and not place:
        code, place = "declaration_invalid" if code == "load_failed" else code, project.entrypoint
    return error(code, sentence(message), **place_in(place), hint=told.hint or "Correct it there.")


def with_it(found: list[Found], fault: Found) -> list[Found]:
    """One that was known already (a package that is not installed) is told once, where more is known of its place."""
    same = [one for one in found if one["message"] == fault["message"]]
    others = [one for one in found if one["message"] != fault["message"]]
    if same and fault["file"] is None:
        fault = Found(**{**same[0], "level": fault["level"]})
    return [*others, fault]


def code_of(fault: BaseException, root: Path) -> str:
    if unset(fault):
        return "unset_variable"
    if isinstance(fault, ProjectFault) and (said := next((code for code, words in SAID if words in fault.message), "")):
        return said
    if any(absent(one, root) for one in chain(fault)):
        return "missing_package"
    if comes_of_a_declaration(fault) and any(type(one).__name__.startswith("JSONProject") for one in chain(fault)):
        return "declaration_invalid"
    return "load_failed"


def unset(fault: BaseException) -> str | None:
    """The variable that was read and is not set."""
    return next((name for one in chain(fault) if (name := unset_variable(one))), None)


def absent(fault: BaseException, root: Path) -> bool:
    return isinstance(fault, ModuleNotFoundError) and bool(fault.name) and not of_the_project(fault.name or "", root)


def comes_of_a_declaration(fault: BaseException) -> bool:
    """Whether it is one that crewai met in a YAML or JSON file, which is told with its line when that was read."""
    if unset(fault) or isinstance(fault, ImportError | SyntaxError):
        return False
    return any(of_yaml(one) or (isinstance(one, ProjectFault) and one.__cause__ is not None) for one in chain(fault))


def of_yaml(fault: BaseException) -> bool:
    return type(fault).__module__.partition(".")[0] == "yaml"
