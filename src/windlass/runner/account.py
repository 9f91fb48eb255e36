"""The system user that crew code runs as: our own, or, where the server is root, another one that may do less."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import ROOT, Account
from windlass.errors import ProjectError, SettingsError
from windlass.runner.spawning import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMED = "windlass-crew"
UNNAMED = 59_999
"""Taken where no user is named so. It needs no account, owns nothing, and no one else is it."""


@dataclass(frozen=True, slots=True)
class CrewAccount:
    """`demanded` says that crews run as it or not at all; else, one that it can't reach runs as root."""

    account: Account
    demanded: bool

    def fault(self, places: Iterable[Path]) -> ProjectError | None:
        """Why it can't run a crew that needs these places."""
        for place in places:
            try:
                closed = self.account.first_closed(place)
            except OSError as error:
                return ProjectError(f"{place} can't be reached: {error.strerror}.", "Is the project still there?")
            if closed:
                return ProjectError(
                    f"crews run as the user {self.account.name}, which can't reach {place}: {closed} is closed to it.",
                    f"Move it, or open that folder: chmod a+x {shlex.quote(str(closed))}",
                )
        return None


def crew_account(wanted: str | None) -> CrewAccount | None:
    """`wanted` is a user's name or number, "root" for root itself, or None to choose. None: crews run as we do."""
    if os.geteuid() != ROOT or sys.platform != "linux":
        if wanted and wanted != _name(os.geteuid()):
            raise SettingsError(
                f"Only root can run crews as the user {wanted}.", "Start Windlass as root, or unset WINDLASS_CREW_USER."
            )
        return None
    if wanted == "root":
        return None
    found = _find(wanted or NAMED)
    if found is None and wanted:
        raise SettingsError(f"There is no user {wanted}.", "Make one, or set WINDLASS_CREW_USER to another.")
    return CrewAccount(found or Account(UNNAMED, UNNAMED, NAMED, is_ours=False), demanded=wanted is not None)


def places_of(interpreter: Path, root: Path | None) -> list[Path]:
    """What a crew's process must be able to reach: the interpreter, our part of it, the project."""
    return [interpreter.parent, Path(os.path.realpath(interpreter)).parent, PROGRAM.parent, *([root] if root else [])]


def home_of(account: Account | None, folder: Path) -> dict[str, str]:
    """Where crews look for their things: not at root's, when they run as another user in its place, and this folder
    in place of a home that isn't there (system users have none) or can't be written to, where crewai fails at import.
    """
    if account is not None:
        return {"HOME": str(folder), "USER": account.name, "LOGNAME": account.name}
    home = os.path.expanduser("~")  # noqa: PTH111 - Path's fails for a user who has none
    return {} if os.access(home, os.W_OK) else {"HOME": str(folder)}


def _find(wanted: str) -> Account | None:
    try:
        entry = pwd.getpwuid(int(wanted)) if wanted.isdecimal() else pwd.getpwnam(wanted)
    except KeyError:
        return Account(int(wanted), int(wanted), wanted, is_ours=False) if wanted.isdecimal() else None
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, is_ours=False)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
