"""The crew user: the server's own user, or, if the server is root, another user with fewer rights."""

# See docs/decisions/security.md#each-run-has-a-home-of-its-own
# See docs/decisions/security.md#only-a-server-that-is-root-has-a-user-for-crews

from __future__ import annotations

import os
import pwd
import shlex
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import ROOT, Account, owner_of
from windlass.errors import ProjectError, SettingsError
from windlass_child.protocol.working_folder import HOME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAMED = "windlass-crew"
UNNAMED = 59_999
"""The number of the crew user if the system has no user NAMED. It needs no account, owns no file, and no other user
has this number.
"""

MOST_LINKS = 40


def crew_account(wanted: str | None) -> Account | None:
    """Returns the crew user, or None when crews run as the server's own user.

    `wanted` is a user's name or number, "root" for root itself, or None for the default. Raises SettingsError.
    """
    if os.geteuid() != ROOT or sys.platform != "linux":
        if wanted and wanted != owner_of(os.geteuid()).name:
            raise SettingsError(
                f"Only root can run crews as the user {wanted}.", "Start Windlass as root, or unset WINDLASS_CREW_USER."
            )
        return None
    if wanted == "root":
        return None
    found = _find(wanted or NAMED)
    if found is None and wanted:
        raise SettingsError(f"There is no user {wanted}.", "Make one, or set WINDLASS_CREW_USER to another.")
    if found is not None and found.uid == ROOT:
        raise SettingsError(f"The user {wanted} is root.", "Set WINDLASS_CREW_USER to another, or to root to run so.")
    return found or Account(UNNAMED, UNNAMED, NAMED, is_ours=False)


def users_of_deployments(crews: Account | None, numbers: str) -> list[int]:
    """Returns the numbers of users that deployments may get: those of the setting WINDLASS_CREW_USERS without those
    that this machine has given to others. None where the crews have the server's own user.
    """
    if crews is None or numbers == "none":
        return []
    first, last = map(int, numbers.split("-"))
    others = {crews.uid, *(entry.pw_uid for entry in pwd.getpwall())}
    return [number for number in range(first, last + 1) if number not in others]


def check_apart(crews: Account, others: Mapping[str, int]) -> None:
    """Raises SettingsError when a crew would run as one of `others`, which maps a thing to the number of its owner."""
    for what, uid in others.items():
        if crews.uid == uid:
            raise SettingsError(
                f"Crews would run as the user {crews.name}, and {what} belongs to that user.",
                "Make a user for crews alone (useradd --system windlass-crew) and unset WINDLASS_CREW_USER, or set it "
                "to a user that owns nothing of Windlass.",
            )


def check_reach(account: Account, places: Iterable[Path]) -> None:
    """Raises ProjectError when the account can't pass the folders on the way to one of the places."""
    for place in places:
        try:
            closed = account.first_closed(place)
        except OSError as error:
            raise ProjectError(
                f"{place} can't be reached: {error.strerror}.", "Check that the project exists."
            ) from None
        if closed:
            raise ProjectError(
                f"crews run as the user {account.name}, which can't reach {place}: {closed} is closed to it.",
                f"{_way_out(place, closed)} Only WINDLASS_CREW_USER=root has crews run as root "
                "(docs/concepts/security.md).",
            )


def check_interpreter(interpreter: Path, root: Path, crews: Account | None) -> None:
    """Raises ProjectError when crews, or another user than root, the server's user and the project's owner, could
    replace the interpreter by another program.
    """
    owners = {ROOT, os.geteuid(), root.stat().st_uid}
    place = interpreter
    for _ in range(MOST_LINKS):
        for way in (place, *(folder for folder in place.parent.resolve().parents), place.parent.resolve()):
            if fault := _written_by_others(way.lstat(), owners, crews):
                raise ProjectError(
                    f"the interpreter {interpreter} is not started: {way} {fault}.",
                    f"Give it to root and close it to others: chown -h root {shlex.quote(str(way))}; "
                    f"chmod go-w {shlex.quote(str(way))}",
                )
        if not place.is_symlink():
            return
        place = place.parent / place.readlink()
    raise ProjectError(f"the interpreter {interpreter} is a circle of links.", "Make its environment again.")


def _written_by_others(found: os.stat_result, owners: set[int], crews: Account | None) -> str:
    if crews is not None and found.st_uid == crews.uid:
        return f"belongs to the user of the crews ({crews.name})"
    if found.st_uid not in owners:
        return f"belongs to another user (number {found.st_uid})"
    if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:  # nobody can remove another user's file there
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everyone"
    if crews is not None and found.st_gid == crews.gid and found.st_mode & stat.S_IWGRP:
        return f"can be written by the group of the crews ({crews.name})"
    return ""


def _way_out(place: Path, closed: Path) -> str:
    if ".venv" in place.parts:
        environment = Path(*place.parts[: place.parts.index(".venv") + 1])
        return (
            f"Remove the project's environment to run on Windlass's own (rm -r {shlex.quote(str(environment))}), or "
            f"move the project to a folder such as /srv and make it there on a Python that all users can reach "
            f"(uv venv --clear --python /usr/bin/python3), or open the folder: chmod a+x {shlex.quote(str(closed))}"
        )
    return f"Move it to a folder such as /srv, or open that folder: chmod a+x {shlex.quote(str(closed))}"


def home_of(account: Account | None, folder: Path) -> dict[str, str]:
    """Returns the variables that name the user of crews and its home: that in the folder of a run or a zygote.

    No run has the home of the user: interpreters and libraries run code, and read models and configurations, that
    another run has left there.
    """
    home = {"HOME": str(folder / HOME)}
    return home if account is None else {**home, "USER": account.name, "LOGNAME": account.name}


def _find(wanted: str) -> Account | None:
    try:
        entry = pwd.getpwuid(int(wanted)) if wanted.isdecimal() else pwd.getpwnam(wanted)
    except KeyError:
        return Account(int(wanted), int(wanted), wanted, is_ours=False) if wanted.isdecimal() else None
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, is_ours=False)
