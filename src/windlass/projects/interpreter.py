from __future__ import annotations

import os
import pwd
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import ROOT
from windlass.errors import ProjectError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection


def interpreter_of(project: Path) -> Path:
    """Returns the Python of the project's .venv, or else the server's. Raises ProjectError for a broken .venv."""
    environment = project.resolve() / ".venv"
    python = environment / "bin" / "python"
    if python.exists():
        return python
    if environment.exists():
        raise ProjectError(
            f"the project's environment {environment} has no Python that can be started.",
            f"Make it again, for example with `uv sync` in {project}, or remove it to run on Windlass's own.",
        )
    return Path(sys.executable)


@dataclass(frozen=True, slots=True)
class TrustedProjects:
    """The folders from which a worker runs code.

    A kickoff names a folder, and everyone with write access to the database can write a kickoff. So the folder must
    belong to root, to the server's user or to one of `owners`. The folder that was `given` at the start is trusted,
    and so is its owner.
    """

    owners: frozenset[int]
    given: Path | None = None

    @classmethod
    def of(cls, owners: Collection[str], given: Path | None = None) -> TrustedProjects:
        """Takes names or numbers of system users. Raises SettingsError for a user that does not exist."""
        theirs = {number_of(owner) for owner in owners} | ({given.stat().st_uid} if given else set())
        return cls(frozenset({ROOT, os.geteuid(), *theirs}), given.resolve() if given else None)

    def checked(self, root: Path) -> Path:
        """Returns the folder with its links resolved. Raises ProjectError if it is not trusted."""
        try:
            place = root.resolve(strict=True)
            if place == self.given:
                return place
            folders = [place, *place.parents] if os.geteuid() == ROOT else [place]
            for folder in folders:
                if fault := self._fault(folder.lstat()):
                    raise ProjectError(
                        f"the project {root} is not run: {folder} {fault}.",
                        "A worker runs projects of root, of its own user and of the users in WINDLASS_PROJECT_OWNERS, "
                        "in folders that not everyone can write to.",
                    )
        except OSError as error:
            raise ProjectError(f"{root} can't be read: {error.strerror}.", "Check that the project exists.") from error
        return place

    def _fault(self, found: os.stat_result) -> str:
        if not stat.S_ISDIR(found.st_mode):
            return "is no folder"
        if found.st_uid not in self.owners:
            return f"belongs to another user (number {found.st_uid})"
        # in a sticky folder, such as /tmp, no user can replace the files of another user
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return "can be written by everyone"
        return ""


def number_of(user: str) -> int:
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise SettingsError(f"There is no user {user}.", "Correct WINDLASS_PROJECT_OWNERS.") from None
