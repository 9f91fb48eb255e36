from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_crewside.faults import ProjectFault

if TYPE_CHECKING:
    from types import ModuleType

    from windlass_crewside.messages import Project


def entry_module(project: Project) -> ModuleType:
    """Imports the module of the project's entrypoint as part of its package, so that its relative imports work."""
    make_importable(Path(project.root))
    name, _, _ = project.entrypoint.partition(":")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ProjectFault(
            f"the entrypoint {project.entrypoint!r} names a module that is not there",
            f"Looked for {name.replace('.', '/')} in {project.root} and its src folder: check pyproject.toml.",
        ) from error


def make_importable(root: Path) -> None:
    """The project's src folder, where it has one, and the project itself, before all that is installed."""
    folders = [str(folder) for folder in (root / "src", root) if folder.is_dir()]
    sys.path[:] = folders + [entry for entry in sys.path if entry not in folders]


def named_in(module: ModuleType, project: Project) -> Any:
    """What the part behind the colon of the entrypoint names."""
    found: Any = module
    _, _, attributes = project.entrypoint.partition(":")
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise ProjectFault(
                f"{module.__name__} has no {attribute!r}, which the entrypoint {project.entrypoint!r} names",
                f"Check pyproject.toml and {module.__file__}.",
            )
        found = getattr(found, attribute)
    return found
