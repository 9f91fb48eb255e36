"""Defines what a kind of project is to the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.projects.kinds.declared import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.projects.findings import Finding
    from windlass.projects.kinds.declared import Declared
    from windlass_child.protocol.messages import Project


@dataclass(frozen=True, slots=True)
class EntrypointOption:
    """An option of [tool.windlass] that names the entrypoint. `pattern` matches its values, `form` describes them."""

    name: str
    form: str = "module or module:Class"
    pattern: str = f"{NAME}(?::{NAME})?"


def unchanged(_: Project, reported: list[Finding]) -> list[Finding]:
    return reported


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of project, as the server knows it. The module windlass_child.kinds.NAME loads and runs its projects.

    - `entrypoint`: returns the entrypoint of a project of this kind, and None for any other project. Raises
      Unrecognised if the project is of this kind and its entrypoint can't be found.
    - `preload`: returns the package that the project's zygote imports first, or None.
    - `option`: the option that names an entrypoint of this kind. It precedes every `entrypoint`.
    - `declared_by`: how a pyproject.toml declares this kind, for messages; "" if another kind's text covers it.
    - `files`: names of files that declare a project of this kind without a pyproject.toml.
    - `packages`: the import names of its framework, which the package of a new project must not have.
    - `texts_from_code`: whether code of the project makes the descriptions of its tasks. They may then differ each time
      that the project is built.
    - `findings`: returns the findings that the project's interpreter reported, with those in the project's files.
    """

    name: str
    entrypoint: Callable[[Declared], str | None]
    preload: Callable[[Declared], str | None]
    option: EntrypointOption | None = None
    declared_by: str = ""
    files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    texts_from_code: bool = False
    findings: Callable[[Project, list[Finding]], list[Finding]] = unchanged
