"""Recognises the kind of a project from its pyproject.toml and the names of its files (docs/concepts/projects.md).

KINDS is the registry. docs/development/adding-a-kind.md shows how to add a kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from windlass.projects.kinds.choice import Choice, used_classes
from windlass.projects.kinds.crewai import CREW, DECLARATIVE_FLOW, FLOW, JSON_CREW
from windlass.projects.kinds.declared import FILE, Declared, Unrecognised, folder_of, read, target_of
from windlass.projects.kinds.function import FUNCTION
from windlass.projects.kinds.kind import EntrypointOption, Kind
from windlass.projects.options import Options
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "KINDS", "Declared", "Kind", "Recognised", "Unrecognised", "chosen", "entrypoint_options", "folder_of",
    "function_project", "kind_named", "kind_of", "options_of", "read", "recognise", "target_of",
    "used_classes",
]  # fmt: skip

KINDS: list[Kind] = [FUNCTION, CREW, FLOW, JSON_CREW, DECLARATIVE_FLOW]


@dataclass(frozen=True, slots=True)
class Recognised:
    """A recognised project. `preload` is the package that its zygote imports first, or None."""

    project: Project
    preload: str | None
    name: str
    options: Options = field(default_factory=Options)


def recognise(path: Path, folder: str | None = None, entrypoint: str | None = None) -> Recognised:
    """Recognises the project in a folder. Raises ProjectError, with a message for users, if there is none.

    `folder` is the name of a project that has no name of its own, in place of the name of its folder. `entrypoint`
    names the object that is served, in place of what the project declares: FILE.py:NAME.
    """
    declared = replace(read(path), folder=folder)
    if entrypoint:
        declared = replace(declared, target=target_of(entrypoint))
    options = options_of(declared)
    return replace(kind_of(declared), options=options)


def options_of(declared: Declared) -> Options:
    return Options.parse(declared.table("tool", "windlass"), declared.file, entrypoint_options())


def entrypoint_options() -> list[str]:
    """Returns the options of [tool.windlass] that name an entrypoint."""
    return [kind.option.name for kind in KINDS if kind.option]


def kind_named(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def kind_of(declared: Declared) -> Recognised:
    """Recognises a project, with the default options. Raises Unrecognised if no kind fits."""
    for kind, option, entrypoint in chosen(declared) if declared.target is None else ():
        if not re.fullmatch(option.pattern, entrypoint):
            message = f"the {option.name} {entrypoint!r} of {declared.root} is not of the form {option.form}."
            raise Unrecognised(message, how_to_declare())
        return of_kind(kind, declared, entrypoint)
    for kind in KINDS:
        if found := kind.entrypoint(declared):
            return of_kind(kind, declared, found)
    error = Choice(declared).nothing_found()
    raise Unrecognised(error.message, error.hint or how_to_declare(), error.code)


def chosen(declared: Declared) -> list[tuple[Kind, EntrypointOption, str]]:
    """Returns the entrypoints that options name, in the order of KINDS. If there are several, the first is used."""
    return [
        (kind, kind.option, entrypoint)
        for kind in KINDS
        if kind.option and (entrypoint := declared.text("tool", "windlass", kind.option.name))
    ]


def of_kind(kind: Kind, declared: Declared, entrypoint: str) -> Recognised:
    """Returns the project of this kind. A function that only makes a crew or a flow is a project of that kind."""
    if kind is FUNCTION and (made := Choice(declared).returned_by(entrypoint)):
        kind = kind_named(made)
    return Recognised(Project(kind.name, str(declared.root), entrypoint), kind.preload(declared), declared.name)


def how_to_declare() -> str:
    *others, last = [kind.declared_by for kind in KINDS if kind.declared_by]
    return f"Add to {FILE}: {', '.join(others)}, or {last}."


def function_project(root: str, entrypoint: str) -> Project:
    """Returns a project that runs one function, "module:function". The function may be one of Windlass."""
    return Project(FUNCTION.name, root, entrypoint)
