"""Checks that crews can reach their project and their interpreter, and makes a copy of a project that they can't."""

# See docs/decisions/security.md#a-project-is-copied-only-from-a-folder-of-root

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import ROOT
from windlass.aio import shielded
from windlass.errors import ProjectError
from windlass.runner.crew_account import check_interpreter, check_reach
from windlass.runner.prepared_interpreters import ProjectCopies

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.runner.run_spec import RunnerConfig, RunSpec
    from windlass_child.protocol.messages import Project


class CrewAccess:
    """What the crews' user can reach. `base` is the folder of all runs. `new_folder` makes a folder for a copy."""

    def __init__(self, config: RunnerConfig, base: Path, new_folder: Callable[[], Path]) -> None:
        self._config = config
        self._base = base
        self._new_folder = new_folder
        account = config.crew_account
        self._copies = ProjectCopies(account) if account else None
        self._copying = asyncio.Lock()

    async def reachable(self, project: Project) -> Project:
        """Returns the project at a place that crews can reach: a copy if it is in a folder that only root can open."""
        copies, root = self._copies, Path(project.root)
        if copies is None:
            return project
        try:
            if not copies.needed(root):
                return project
            async with self._copying:
                copy = await shielded(asyncio.to_thread(copies.place, root, self._new_folder))
        except OSError as error:
            raise ProjectError(
                f"{root} can't be read or copied: {error.strerror}.",
                "Check that the project exists, and that the disk has room.",
            ) from error
        return replace(project, root=str(copy))

    @property
    def has_crew_account(self) -> bool:
        """Whether crews run as another user than the server."""
        return self._config.crew_account is not None

    def needs_copy(self, root: Path) -> bool:
        """Whether crews get a copy of the project with all its files, because only root can open its folder."""
        return self._copies is not None and self._copies.needed(root)

    def folder_for_code(self, root: Path) -> Path:
        """Returns a new folder for a copy of the project, which crews can read. It is removed when the runner stops."""
        folder = self._new_folder()
        if account := self._config.crew_account:
            os.chown(folder, root.stat().st_uid, account.gid)
            folder.chmod(0o750)
        return folder

    def check(self, interpreter: Path, root: Path | None) -> None:
        """Raises ProjectError when the crews' user can't reach a project, or when its interpreter can't be trusted."""
        own = interpreter == Path(sys.executable)
        if root is not None and not own and os.geteuid() == ROOT:
            try:
                check_interpreter(interpreter, root, self._config.crew_account)
            except OSError as error:
                raise ProjectError(
                    f"{interpreter} can't be started: {error.strerror}.", "Create the virtual environment again."
                ) from error
        if account := self._config.crew_account:
            used = self._config.prepared.interpreter if own else interpreter
            places = [
                used.parent,
                Path(os.path.realpath(used)).parent,
                self._config.prepared.program.parent,
                self._base,
            ]
            check_reach(account, [*places, *([root] if root else [])])

    async def checked(self, spec: RunSpec) -> RunSpec:
        """Returns the run with its project at a place that crews can reach. Raises ProjectError."""
        project = await self.reachable(spec.project)
        self.check(spec.interpreter, Path(project.root))
        return replace(spec, project=project)
