"""A crew that is declared in JSON, with comments or without: crew.jsonc, and a file for each agent beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from crewai.project import load_crew
from crewai.project.json_loader import JSONProjectError

from windlass_crewside.faults import ProjectFault, text_of
from windlass_crewside.frameworks import crew_events, crew_inputs
from windlass_crewside.frameworks.crew import LoadedCrew, link_knowledge
from windlass_crewside.frameworks.importing import make_importable

if TYPE_CHECKING:
    from windlass_crewside.messages import Project


def load(project: Project) -> LoadedCrew:
    crew_events.telemetry_as_wanted()
    root = Path(project.root)
    make_importable(root)
    definition = root / project.entrypoint
    link_knowledge(definition.parent)
    try:
        crew, defaults = load_crew(definition)
    except (JSONProjectError, FileNotFoundError) as error:
        words = text_of(error).replace(f"{root}{os.sep}", "")
        raise ProjectFault(words, f"Correct it in {project.entrypoint}, or in the file that is named.") from error
    return LoadedCrew(crew, crew.name or definition.stem, crew_inputs.find(crew, defaults=defaults))
