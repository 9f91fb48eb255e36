"""The home of a server: the paths of its embedded database, and the system user that PostgreSQL runs as.

PostgreSQL refuses to run as root. For root it runs as an unprivileged user.
"""

from __future__ import annotations

import os
import pwd
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windlass.accounts import ROOT, Account, owner_of
from windlass.embedded_postgres.errors import OUTSIDE, EmbeddedPostgresError

if TYPE_CHECKING:
    from pathlib import Path
IN_PLACE_OF_ROOT = ("windlass", "nobody")


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths of the embedded database in a Windlass home. docs/how-to/embedded-postgres.md has the same list."""

    home: Path

    @property
    def server_lock(self) -> Path:
        """The running server alone holds this lock. The text of the file names that server for people."""
        return self.home / "server.lock"

    @property
    def own(self) -> Path:
        return self.home / "postgres"

    @property
    def database_lock(self) -> Path:
        """The keeper and each process of its PostgreSQL hold this lock. It is free only when all of them are gone."""
        return self.own / "database.lock"

    @property
    def password(self) -> Path:
        return self.own / "password"

    @property
    def url(self) -> Path:
        return self.own / "url"

    @property
    def settings(self) -> Path:
        return self.own / "settings.conf"

    @property
    def access(self) -> Path:
        return self.own / "access.conf"

    @property
    def socket_folder(self) -> Path:
        """A file with the path of the socket's folder.

        That folder is outside of the home, because a socket's path may have some 100 bytes at most.
        """
        return self.own / "socket-folder"

    @property
    def programs(self) -> Path:
        return self.own / "programs"

    @property
    def making(self) -> Path:
        return self.own / "making"

    @property
    def data(self) -> Path:
        return self.own / "data"

    @property
    def log(self) -> Path:
        return self.own / "log"


def account_for(data: Path) -> Account:
    """Returns the server's own user, or, where the server is root, an unprivileged user.

    An existing database keeps its owner. So it stays readable when users are added to or removed from the system.
    """
    if os.geteuid() != ROOT:
        return _ourselves()
    owner = data.lstat().st_uid if data.exists() else ROOT
    return _in_place_of_root() if owner == ROOT else replace(owner_of(owner), gid=data.lstat().st_gid)


def check_reach(account: Account, folder: Path) -> None:
    """Raises EmbeddedPostgresError with the topmost folder that the account can't enter. Does not change its rights."""
    closed = account.first_closed(folder)
    if closed:
        raise EmbeddedPostgresError(
            f"PostgreSQL doesn't run as root. It runs as the user {account.name}, which can't reach {folder}: "
            f"{closed} is closed to that user.",
            f"Set WINDLASS_HOME to a folder that the user can reach, such as /var/lib/windlass, "
            f"or open the closed folder: chmod a+x {shlex.quote(str(closed))}",
        )


def make_home(home: Path) -> None:
    """Makes the home folder if it is missing.

    Only the server's user may enter it. Where the server is root, all users may pass through it, because PostgreSQL
    runs as another user and its data is inside.
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
            f"Start Windlass as a user that is listed in /etc/passwd, {OUTSIDE}.",
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
        f"Make one with `useradd --system windlass`, start Windlass as another user, {OUTSIDE}.",
    )
