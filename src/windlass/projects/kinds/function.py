"""Recognises functions. A function may use any framework, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.projects.kinds import crew_files, crewai
from windlass.projects.kinds.declared import NAME
from windlass.projects.kinds.kind import EntrypointOption, Kind

if TYPE_CHECKING:
    from windlass.projects.kinds.declared import Declared

FRAMEWORKS = (crewai.FRAMEWORK,)
DECLARED_BY = '[tool.windlass] entrypoint = "module:function" for a function'


def framework(declared: Declared) -> str | None:
    """Returns the framework that the project depends on, or that its code imports if it declares no dependencies."""
    if declared.has_dependencies:
        return next((package for package in FRAMEWORKS if declared.depends_on(package)), None)
    imported = {
        source.partition(".")[0] for one in declared.code.modules.values() for source, _ in one.imports.values()
    }
    return next((package for package in FRAMEWORKS if package in imported), None)


FUNCTION = Kind(
    "function",
    crewai.function,
    framework,
    EntrypointOption("entrypoint", "module:function", f"{NAME}:{NAME}"),
    DECLARED_BY,
    findings=crew_files.of_classes,
)
