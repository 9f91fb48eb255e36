"""Recognises functions. A function may use any framework, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.projects.kinds import crewai
from windlass.projects.kinds.declared import NAME
from windlass.projects.kinds.kind import EntrypointOption, Kind

if TYPE_CHECKING:
    from windlass.projects.kinds.declared import Declared

FRAMEWORKS = (crewai.FRAMEWORK,)
DECLARED_BY = '[tool.windlass] entrypoint = "module:function" for a function'


def by_option_only(_: Declared) -> None:
    return None


def framework(declared: Declared) -> str | None:
    """Returns the framework that the project depends on."""
    return next((package for package in FRAMEWORKS if declared.depends_on(package)), None)


FUNCTION = Kind(
    "function",
    by_option_only,
    framework,
    EntrypointOption("entrypoint", "module:function", f"{NAME}:{NAME}"),
    DECLARED_BY,
)
