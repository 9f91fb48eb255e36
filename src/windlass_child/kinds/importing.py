"""Imports the module of a project's entrypoint, and makes the crew or flow that it names."""

# See docs/decisions/child.md#the-module-of-the-entrypoint-is-imported-with-kickoffs-refused

from __future__ import annotations

import asyncio
import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child import frameworks
from windlass_child.process.error_text import ProjectFault, StartedAtImport, inside, where
from windlass_child.reuse import baseline

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from windlass_child.protocol.messages import Project

STARTED: dict[str, StartedAtImport] = {}
"""The modules that this process has imported up to a kickoff, by name."""


def entry_module(project: Project) -> ModuleType:
    """Imports the module of the project's entrypoint as part of its package, so that relative imports work.

    Raises StartedAtImport if the module kicks off a crew. No later load of this process or of its children imports such
    a module again: patches that its code has made of libraries would be made twice.
    """
    make_importable(Path(project.root))
    name, _, _ = project.entrypoint.partition(":")
    add_folder_of(name, Path(project.root))
    if name in STARTED:
        raise STARTED[name]
    module = sys.modules.get(name) or import_entry(name, project)  # a process that is reused has imported it
    baseline.imported()
    return module


def import_entry(name: str, project: Project) -> ModuleType:
    try:
        with frameworks.without_kickoffs():
            return import_module(name)
    except StartedAtImport as started:
        STARTED[name] = started
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ProjectFault(
            f"the entrypoint {project.entrypoint!r} names a module that is not there",
            f"Looked for {name.replace('.', '/')} in {project.root} and its src folder: check pyproject.toml.",
            "no_crew",
        ) from error


def make_importable(root: Path) -> None:
    """Puts the project's src folder, if it exists, and the project's folder first on sys.path.

    The project's modules then precede installed packages.
    """
    folders = [str(folder) for folder in (root / "src", root) if folder.is_dir()]
    sys.path[:] = folders + [entry for entry in sys.path if entry not in folders]


def add_folder_of(module: str, root: Path) -> None:
    """Puts the folder of a module last on sys.path, as for a script that is started there: `from tools import ...`."""
    package = module.rpartition(".")[0].replace(".", "/")
    folders = [str(folder / package) for folder in (root / "src", root) if package and (folder / package).is_dir()]
    sys.path += [folder for folder in folders[:1] if folder not in sys.path]


def named_in(module: ModuleType, project: Project) -> Any:
    """Returns the object that the entrypoint names after its colon."""
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


def made_without_kickoff(make: Callable[[], Any], kind: str, project: Project) -> Any:
    """Returns what `make` returns, and awaits an `async def`.

    A kickoff by the code that makes the crew or the flow is refused, because each load would run it.
    """
    try:
        with frameworks.without_kickoffs():
            made = make()
            return asyncio.run(awaited(made)) if inspect.isawaitable(made) else made
    except StartedAtImport as started:
        place = where(started, Path(project.root))
        raise ProjectFault(
            f"the code starts {started.called}() while it makes the {kind}, so that each load "
            f"would run it{f' ({place})' if place else ''}",
            f"Return the {kind} without its kickoff, or name a function that runs it as the entrypoint.",
            "runs_at_import",
        ) from started


async def awaited(made: Any) -> Any:
    return await made


def refuse_arguments(made: Any, called: str) -> None:
    """Raises ProjectFault for a class or function that can't be called without arguments."""
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):  # it has no signature
        return
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needs = [one.name for one in parameters if one.default is one.empty and one.kind not in variable]
    if needs:
        hint = "Give each a default, or take the values from the inputs of the kickoff."
        if inspect.isfunction(made) and "." not in made.__qualname__:
            name = f"{made.__module__}:{made.__name__}"
            hint = f'Write in pyproject.toml: [tool.windlass] entrypoint = "{name}". Its parameters are then inputs.'
        raise ProjectFault(
            f"no kickoff can run {called}: it needs the arguments {', '.join(needs)}", hint, "never_runs"
        )


def only_one(
    module: ModuleType, project: Project, is_one: Callable[[Any], bool], *, kind: str, mark: str, hint: str
) -> Any:
    """Returns the only class of this kind that a module defines, or else imports from its own package.

    `hint` is for a module without such a class.

    Raises ProjectFault for none and for several.
    """
    classes = [found for found in vars(module).values() if is_one(found)]
    own = [found for found in classes if module.__name__ in modules_of(found)]
    package = module.__name__.partition(".")[0]
    classes = own or [found for found in classes if package in (name.partition(".")[0] for name in modules_of(found))]
    path = inside(module.__file__ or "", Path(project.root)) or module.__file__
    if not classes:
        raise ProjectFault(f"no {kind} found: {path} has no class {mark}", hint, "no_crew")
    if len(classes) > 1:
        names = " and ".join(found.__name__ for found in classes)
        choice = f'[tool.windlass] {kind} = "{module.__name__}:{classes[0].__name__}"'
        hint = f"Choose one in pyproject.toml: {choice}"
        raise ProjectFault(f"{path} has more than one {kind}: {names}", hint, "several_crews")
    return classes[0]


def modules_of(found: Any) -> list[str]:
    """Returns the modules of a class and of its bases. A decorator may have made the class, in another module."""
    return [base.__module__ for base in found.__mro__]
