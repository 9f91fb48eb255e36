"""The system user that PostgreSQL runs as: our own, or, as it refuses root, an unprivileged one in root's place."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.embedded.postgres_errors import OUTSIDE, EmbeddedPostgresError

if TYPE_CHECKING:
    from pathlib import Path

IN_PLACE_OF_ROOT = ("windlass", "nobody")
ROOT = 0


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int
    name: str
    is_ours: bool

    @property
    def switch(self) -> tuple[int, int] | tuple[None, None]:
        """What subprocess takes as `user` and `group`."""
        return (None, None) if self.is_ours else (self.uid, self.gid)

    @property
    def groups(self) -> list[int] | None:
        return None if self.is_ours else []

    def give(self, path: Path) -> None:
        if not self.is_ours:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def may_enter(self, folder: os.stat_result) -> bool:
        if self.uid == folder.st_uid:
            return bool(folder.st_mode & stat.S_IXUSR)
        return bool(folder.st_mode & (stat.S_IXGRP if self.gid == folder.st_gid else stat.S_IXOTH))


def account_for(data: Path) -> Account:
    """As root, the owner of a database that is there already, so that it stays readable whichever users come and go."""
    if os.geteuid() != ROOT:
        return _ourselves()
    owner = data.lstat().st_uid if data.exists() else ROOT
    return _in_place_of_root() if owner == ROOT else _owner(owner, data.lstat().st_gid)


def check_reach(account: Account, folder: Path) -> None:
    """Raises EmbeddedPostgresError naming the topmost folder that the account can't pass; its rights stay."""
    if account.is_ours:
        return
    closed = [place for place in _from_top(folder) if not account.may_enter(place.stat())]
    if closed:
        raise EmbeddedPostgresError(
            f"PostgreSQL doesn't run as root; it runs as the user {account.name}, which can't reach {folder}: "
            f"{closed[0]} is closed to it.",
            f"Choose a folder that it can reach with WINDLASS_HOME (/var/lib/windlass is one), "
            f"or open that one: chmod a+x {shlex.quote(str(closed[0]))}",
        )


def make_home(home: Path) -> None:
    """Makes the folder of all that Windlass keeps, unless it is there.

    For us alone; as root others may pass through it, because PostgreSQL runs as another user and its data lies inside.
    """
    if not home.is_dir():
        home.mkdir(mode=0o700, parents=True)
        home.chmod(0o711 if os.geteuid() == ROOT else 0o700)


def _from_top(folder: Path) -> list[Path]:
    whole = folder.resolve()
    return [*reversed(whole.parents), whole]


def _ourselves() -> Account:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        raise EmbeddedPostgresError(
            f"PostgreSQL can't run as user id {uid}, which has no name on this system.",
            f"Start Windlass as a user that /etc/passwd knows, {OUTSIDE}.",
        ) from None
    return Account(uid, os.getegid(), name, is_ours=True)


def _in_place_of_root() -> Account:
    for name in IN_PLACE_OF_ROOT:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, name, is_ours=False)
    raise EmbeddedPostgresError(
        "PostgreSQL doesn't run as root, and this system has no user to run it as.",
        f"Make one with: useradd --system windlass; start Windlass as another user, {OUTSIDE}.",
    )


def _owner(uid: int, gid: int) -> Account:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Account(uid, gid, name, is_ours=False)
