"""Reads the files of a project in this process. `BoundedReader` does the same in a process with bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from windlass.projects.checks import declared_project
from windlass.projects.kinds import kind_named, used_classes
from windlass.projects.requirements import Wanted, wanted_versions

if TYPE_CHECKING:
    from windlass.projects.findings import Finding
    from windlass.projects.kinds import Recognised
    from windlass_child.protocol.messages import Project


class Needs(NamedTuple):
    """The versions that a project wants, and the classes that its entrypoint uses (None if that is not known)."""

    wanted: list[Wanted]
    used: list[str] | None


class Reader(Protocol):
    """Answers questions that take a parser of the project's files. All methods raise ProjectError."""

    async def declared(self, path: Path, entrypoint: str | None = None) -> tuple[Recognised | None, list[Finding]]: ...

    async def needs(self, project: Project) -> Needs: ...

    async def findings(self, project: Project, reported: list[Finding]) -> list[Finding]: ...


class DirectReader:
    """Reads the projects of the user who runs this command: `windlass dev` and `windlass check`.

    These files are the user's own, and so is the process that they could slow down. A process for each question would
    delay each start and each reload by its own start.
    """

    async def declared(self, path: Path, entrypoint: str | None = None) -> tuple[Recognised | None, list[Finding]]:
        return await asyncio.to_thread(declared_project, path, entrypoint)

    async def needs(self, project: Project) -> Needs:
        return await asyncio.to_thread(needs_of, project)

    async def findings(self, project: Project, reported: list[Finding]) -> list[Finding]:
        return await asyncio.to_thread(findings_of, project, reported)


def needs_of(project: Project) -> Needs:
    root = Path(project.root)
    return Needs(wanted_versions(root), used_classes(root, project.entrypoint))


def findings_of(project: Project, reported: list[Finding]) -> list[Finding]:
    """Returns the findings that the project's interpreter reported, with those in the project's files."""
    return kind_named(project.kind).findings(project, reported)
