from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_crewside.faults import ProjectFault, inside

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from windlass_crewside.messages import Project


HOW = {
    "crew": "Decorate the crew's class with it.",
    "flow": "Give it one, with a method that is decorated with @start().",
}
"""What to do where a module has no class of this kind."""


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


def only_one(module: ModuleType, project: Project, is_one: Callable[[Any], bool], *, kind: str, mark: str) -> Any:
    """The one class of this kind in a module, written in it or imported into it from the same package."""
    classes = [found for found in vars(module).values() if is_one(found)]
    own = [found for found in classes if found.__module__ == module.__name__]
    package = module.__name__.partition(".")[0]
    classes = own or [found for found in classes if found.__module__.partition(".")[0] == package]
    path = inside(module.__file__ or "", Path(project.root)) or module.__file__
    if not classes:
        raise ProjectFault(f"no {kind} found: {path} has no class {mark}", HOW[kind])
    if len(classes) > 1:
        names = " and ".join(found.__name__ for found in classes)
        choice = f'[tool.windlass] {kind} = "{module.__name__}:{classes[0].__name__}"'
        raise ProjectFault(f"{path} has more than one {kind}: {names}", f"Choose one in pyproject.toml: {choice}")
    return classes[0]
