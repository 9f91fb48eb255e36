"""The folder of PostgreSQL's socket. Its path is short, it is closed to other users, and no other user made it."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.embedded_postgres.paths import Paths, write_whole

if TYPE_CHECKING:
    from windlass.accounts import Account

SHORT = Path("/tmp")  # noqa: S108 - the folder's name can't be guessed, and its owner is checked before it is used again
CLOSED = 0o700
PORT = 5432  # part of the socket's name; PostgreSQL listens on no network


def ready_socket_folder(places: Paths, account: Account) -> Path:
    """Returns the folder of the last start, so that the URL stays the same; else a new one, recorded in the home.

    The keeper removes the folder when PostgreSQL has ended.
    """
    if (last := _recorded(places)) and (_made(last, account) or _is_ours(last, account)):
        return last
    folder = Path(tempfile.mkdtemp(prefix="windlass-", dir=SHORT))
    write_whole(places.socket_folder, str(folder))
    account.give(folder)
    return folder


def _recorded(places: Paths) -> Path | None:
    try:
        return Path(places.socket_folder.read_text())
    except FileNotFoundError:
        return None


def _made(folder: Path, account: Account) -> bool:
    """Makes the folder and returns whether that succeeded. On success no other user can have made it."""
    try:
        folder.mkdir(mode=CLOSED)
    except OSError:
        return False
    account.give(folder)
    return True


def _is_ours(folder: Path, account: Account) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == account.uid and stat.S_IMODE(found.st_mode) == CLOSED
