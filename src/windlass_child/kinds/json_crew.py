"""Loads crews that are declared in JSON, with or without comments: crew.jsonc, and a file for each agent beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from windlass_child.crewai import capabilities, events, features, inputs
from windlass_child.kinds.crew import LoadedCrew
from windlass_child.kinds.importing import make_importable
from windlass_child.process.error_text import ProjectFault, raised_by_the_project, text_of
from windlass_child.protocol.working_folder import fill_knowledge
from windlass_child.reuse import baseline

if TYPE_CHECKING:
    from windlass_child.protocol.messages import Project

load_crew = features.optional("crewai.project:load_crew")
JSONProjectError = features.optional("crewai.project.json_loader:JSONProjectError") or ValueError

FAILED = ": validation failed: "
"""The text that crewai writes between the place of an error and its message."""


def load(project: Project) -> LoadedCrew:
    capabilities.refuse_without("json_crews")
    events.telemetry_as_wanted()
    root = Path(project.root)
    make_importable(root)
    baseline.imported()  # a declaration has no modules of its own
    definition = root / project.entrypoint
    fill_knowledge(definition.parent)
    try:
        crew, defaults = load_crew(definition)
    except (JSONProjectError, FileNotFoundError) as error:
        if raised := raised_by_the_project(error, root):
            raise raised from None
        words = explained(error).replace(f"{root}{os.sep}", "")
        raise ProjectFault(words, f"Correct it in {project.entrypoint}, or in the file that is named.") from error
    if not isinstance(defaults, dict):
        raise ProjectFault(
            f"{project.entrypoint}: 'inputs' must be an object",
            'Write names of inputs with their defaults: "inputs": {"year": 2026}.',
        )
    return LoadedCrew(crew, crew.name or definition.stem, inputs.find(crew, defaults=defaults))


def explained(error: Exception) -> str:
    """Returns the message of an error. For a validation error: crewai's place, then pydantic's value and reason."""
    if isinstance(error.__cause__, ValidationError):
        place, _, _ = str(error).partition(FAILED)
        return f"{place}: {text_of(error.__cause__)}"
    return text_of(error)
