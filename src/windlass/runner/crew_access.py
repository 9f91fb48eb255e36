"""Checks that crews can reach their project and their interpreter, and makes a copy of a project that they can't."""

# See docs/decisions/runner.md#checks-of-a-projects-place-are-kept-for-a-second
# See docs/decisions/security.md#a-project-is-copied-only-from-a-folder-of-root

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from windlass.accounts import ROOT
from windlass.aio import shielded
from windlass.errors import ProjectError
from windlass.runner.crew_account import check_interpreter, check_reach
from windlass.runner.prepared_interpreters import ProjectCopies

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from windlass.runner.run_spec import RunnerConfig, RunSpec
    from windlass_child.protocol.messages import Project

CHECK_EVERY = 1.0
"""Seconds. The checks of a project's place and of its interpreter make some 120 system calls."""

Found = TypeVar("Found")


class FolderChecks(Generic[Found]):
    """Remembers what checks of a folder have found, for CHECK_EVERY seconds while the folder does not change.

    `state_of` is called before the checks, so that a change during the checks counts.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[float, Found]] = {}

    def state_of(self, folder: str, *more: Hashable) -> Hashable:
        """Returns the key of the folder in its present state. `more` identifies the checks."""
        return change_of(folder), folder, *more

    def recent(self, state: Hashable) -> Found | None:
        until, found = self._found.get(state, (0.0, None))
        return found if time.monotonic() < until else None

    def remember(self, state: Hashable, found: Found) -> None:
        now = time.monotonic()
        self._found = {key: known for key, known in self._found.items() if now < known[0]}
        self._found[state] = now + CHECK_EVERY, found


class CrewAccess:
    """What the crews' user can reach. `base` is the folder of all runs. `new_folder` makes a folder for a copy."""

    def __init__(self, config: RunnerConfig, base: Path, new_folder: Callable[[], Path]) -> None:
        self._config = config
        self._base = base
        self._new_folder = new_folder
        account = config.crew_account
        self._copies = ProjectCopies(account) if account else None
        self._copying = asyncio.Lock()
        self._checks: FolderChecks[bool] = FolderChecks()

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

    async def checked(self, spec: RunSpec, zygote_ready: bool) -> RunSpec:
        """Returns the run with its project at a place that crews can reach. Raises ProjectError.

        While the zygote that the run is forked from is ready and the project's folder has not changed, the checks are
        done every CHECK_EVERY seconds only.
        """
        state = self._checks.state_of(spec.project.root, spec.interpreter)
        if zygote_ready and spec.start == "fork" and self._checks.recent(state):
            return spec
        project = await self.reachable(spec.project)
        self.check(spec.interpreter, Path(project.root))
        if project is spec.project:
            self._checks.remember(state, found=True)
        return replace(spec, project=project)


def change_of(folder: str) -> int:
    """Returns the time of the last change of a folder, its owner or its mode, in nanoseconds; 0 if it is gone."""
    try:
        return os.lstat(folder).st_ctime_ns
    except OSError:
        return 0
