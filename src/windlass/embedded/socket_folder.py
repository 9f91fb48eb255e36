"""A short folder for PostgreSQL's socket, closed to others and never one that another user put there."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.embedded.places import Places, write_whole

if TYPE_CHECKING:
    from windlass.accounts import Account

SHORT = Path("/tmp")  # noqa: S108 - the name below it can't be guessed, and is checked before it is used again
CLOSED = 0o700
PORT = 5432  # of no network: it is in the socket's name


def ready_socket_folder(places: Places, account: Account) -> Path:
    """The folder of the last start, so that the URL stays the same; else a new one, noted in the home.

    The keeper takes it away when PostgreSQL is gone.
    """
    if (last := _recorded(places)) and (_made(last, account) or _is_ours(last, account)):
        return last
    folder = Path(tempfile.mkdtemp(prefix="windlass-", dir=SHORT))
    write_whole(places.socket_folder, str(folder))
    account.give(folder)
    return folder


def _recorded(places: Places) -> Path | None:
    try:
        return Path(places.socket_folder.read_text())
    except FileNotFoundError:
        return None


def _made(folder: Path, account: Account) -> bool:
    """Once this succeeds, nobody else can have taken the name's place."""
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
