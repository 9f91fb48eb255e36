"""Finds errors in the YAML files of crews and flows. It needs neither the project's interpreter nor its packages."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.projects.findings import Finding, Level, from_json
from windlass.projects.kinds.choice import used_classes
from windlass_child.crewai_files import configs, flow_declarations
from windlass_child.project_files.code import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass_child.project_files.found import Found
    from windlass_child.protocol.messages import Project

import_module("yaml")  # here: the process of a BoundedReader can't import modules later


def of_crew(project: Project, reported: list[Finding]) -> list[Finding]:
    """Returns the findings, with the errors in the files of the class that the load of a crew builds.

    The load may pass over other classes that the code names. So it decides about those.
    """
    return with_errors(reported, configs.findings(Code(Path(project.root), classes(project)[:1]), {}))


def of_classes(project: Project, reported: list[Finding]) -> list[Finding]:
    """Returns the findings, with the errors in the files of all classes with @CrewBase that the entrypoint uses."""
    return with_errors(reported, configs.findings(Code(Path(project.root), classes(project)), {}))


def of_flow(project: Project, reported: list[Finding]) -> list[Finding]:
    return with_errors(reported, flow_declarations.findings(Path(project.root), project.entrypoint))


def classes(project: Project) -> list[str]:
    return used_classes(Path(project.root), project.entrypoint) or []


def with_errors(reported: list[Finding], found: Iterable[Found]) -> list[Finding]:
    """Adds the errors that the project's interpreter has not reported, as an error or as a warning."""
    known = {(one.code, one.file, one.line) for one in reported}
    errors = [one for one in (from_json(dict(one)) for one in found) if one.level is Level.ERROR]
    return [*reported, *(one for one in errors if (one.code, one.file, one.line) not in known)]
