"""The findings of a check, and the finding for the exception with which a project failed to load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windlass_child.kinds import KINDS
from windlass_child.masking.server_paths import is_deployed
from windlass_child.process.error_text import (
    ProjectFault,
    chain,
    explain,
    missing,
    of_an_extra,
    sentence,
    unset_variable,
    where,
)
from windlass_child.project_files.found import Found, error, place_in

if TYPE_CHECKING:
    from windlass_child.protocol.messages import Project


def finding(fault: BaseException, project: Project) -> Found:
    root = Path(project.root)
    code = code_of(fault, root)
    missing_one = next((one for one in chain(fault) if not_there(one, root) == code), fault)
    explained = explain(missing_one, "load", project.root)
    place = next(filter(None, (where(one, root) for one in chain(fault))), "")
    message = explained.message.replace(f" (imported at {place})", "").replace(f" ({place})", "")
    if name := unset(fault):
        message = f"the code reads the variable {name} when it is loaded, and it is not set."
    if isinstance(fault, ProjectFault) and KINDS[project.kind].is_declaration and not place:
        code, place = "declaration_invalid" if code == ProjectFault.code else code, project.entrypoint
    hint = of_an_extra(fault, root) or explained.hint or what_to_do(fault, place, root)
    return error(code, sentence(message), **place_in(place), hint=hint)


def what_to_do(fault: BaseException, place: str, root: Path) -> str:
    """Returns the hint for an exception without one of its own."""
    if isinstance(fault, SyntaxError):
        return "Correct the syntax of this line, or name the Python that it was written for in .python-version."
    if isinstance(fault, OSError) and fault.filename:
        return "Create this file, or correct its path. Relative paths begin at the project's folder."
    if place:
        return "The code raised this while the project was loaded, before any kickoff. Change this line."
    log = "The log of the build has the trace." if is_deployed(root) else "`windlass dev` shows the trace in its log."
    return f"A library raised this while the project was loaded. {log}"


def with_it(found: list[Found], fault: Found) -> list[Found]:
    """Adds a finding to the others. One with the same message is reported once, with the place that is better known.

    An example is a package that is not installed, which pyproject.toml and the import both report.
    """
    same = [one for one in found if one["message"] == fault["message"]]
    others = [one for one in found if one["message"] != fault["message"]]
    if same and fault["file"] is None:
        fault = Found(**{**same[0], "level": fault["level"]})
    return [*others, fault]


def code_of(fault: BaseException, root: Path) -> str:
    if unset(fault):
        return "unset_variable"
    if isinstance(fault, ProjectFault) and fault.code != ProjectFault.code:
        return fault.code
    codes = {not_there(one, root) for one in chain(fault)}
    return next((code for code in ("missing_package", "missing_module") if code in codes), ProjectFault.code)


def unset(fault: BaseException) -> str | None:
    """Returns the name of the variable that was read and is not set, or None."""
    return next((name for one in chain(fault) if (name := unset_variable(one))), None)


def not_there(fault: BaseException, root: Path) -> str | None:
    """Returns the code for an import of a package, a module or a name that is not there, and None for other faults."""
    words = missing(fault, "", root) if isinstance(fault, ImportError) else None
    return words.code if words else None


def comes_of_a_declaration(fault: BaseException) -> bool:
    """Returns whether a framework raised the exception because of a YAML or JSON file.

    The check of that file has reported it already, with its line.
    """
    if unset(fault) or isinstance(fault, ImportError | SyntaxError):
        return False
    return any(of_yaml(one) or (isinstance(one, ProjectFault) and one.__cause__ is not None) for one in chain(fault))


def of_yaml(fault: BaseException) -> bool:
    return type(fault).__module__.partition(".")[0] == "yaml"
