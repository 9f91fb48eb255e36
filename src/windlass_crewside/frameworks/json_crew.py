"""A crew that is declared in JSON, with comments or without: crew.jsonc, and a file for each agent beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from crewai.project import load_crew
from crewai.project.json_loader import JSONProjectError
from pydantic import ValidationError

from windlass_crewside.faults import ProjectFault, raised_by_the_project, text_of
from windlass_crewside.frameworks import crew_events, crew_inputs
from windlass_crewside.frameworks.crew import LoadedCrew, link_knowledge
from windlass_crewside.frameworks.importing import make_importable

if TYPE_CHECKING:
    from windlass_crewside.messages import Project

FAILED = ": validation failed: "
"""Words of crewai's between the two."""


def load(project: Project) -> LoadedCrew:
    crew_events.telemetry_as_wanted()
    root = Path(project.root)
    make_importable(root)
    definition = root / project.entrypoint
    link_knowledge(definition.parent)
    try:
        crew, defaults = load_crew(definition)
    except (JSONProjectError, FileNotFoundError) as error:
        if raised := raised_by_the_project(error, root):
            raise raised from None
        words = said(error).replace(f"{root}{os.sep}", "")
        raise ProjectFault(words, f"Correct it in {project.entrypoint}, or in the file that is named.") from error
    if not isinstance(defaults, dict):
        raise ProjectFault(
            f"{project.entrypoint}: 'inputs' must be an object",
            'Write names of inputs with their defaults: "inputs": {"year": 2026}.',
        )
    return LoadedCrew(crew, crew.name or definition.stem, crew_inputs.find(crew, defaults=defaults))


def said(error: Exception) -> str:
    """Of what pydantic refused, which value and why, behind where crewai says that it stands."""
    if isinstance(error.__cause__, ValidationError):
        place, _, _ = str(error).partition(FAILED)
        return f"{place}: {text_of(error.__cause__)}"
    return text_of(error)
