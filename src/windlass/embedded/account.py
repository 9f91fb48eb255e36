"""The system user that PostgreSQL runs as: our own, or, as it refuses root, an unprivileged one in root's place."""

from __future__ import annotations

import os
import pwd
import shlex
from typing import TYPE_CHECKING

from windlass.accounts import ROOT, Account
from windlass.embedded.postgres_errors import OUTSIDE, EmbeddedPostgresError

if TYPE_CHECKING:
    from pathlib import Path

IN_PLACE_OF_ROOT = ("windlass", "nobody")


def account_for(data: Path) -> Account:
    """As root, the owner of a database that is there already, so that it stays readable whichever users come and go."""
    if os.geteuid() != ROOT:
        return _ourselves()
    owner = data.lstat().st_uid if data.exists() else ROOT
    return _in_place_of_root() if owner == ROOT else _owner(owner, data.lstat().st_gid)


def check_reach(account: Account, folder: Path) -> None:
    """Raises EmbeddedPostgresError naming the topmost folder that the account can't pass; its rights stay."""
    closed = account.first_closed(folder)
    if closed:
        raise EmbeddedPostgresError(
            f"PostgreSQL doesn't run as root; it runs as the user {account.name}, which can't reach {folder}: "
            f"{closed} is closed to it.",
            f"Choose a folder that it can reach with WINDLASS_HOME (/var/lib/windlass is one), "
            f"or open that one: chmod a+x {shlex.quote(str(closed))}",
        )


def make_home(home: Path) -> None:
    """Makes the folder of all that Windlass keeps, unless it is there.

    For us alone; as root others may pass through it, because PostgreSQL runs as another user and its data lies inside.
    """
    if not home.is_dir():
        home.mkdir(mode=0o700, parents=True)
        home.chmod(0o711 if os.geteuid() == ROOT else 0o700)


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
