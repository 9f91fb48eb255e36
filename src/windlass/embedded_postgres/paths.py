from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths of the embedded database in a Windlass home. docs/embedded-postgres.md has the same list."""

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


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file atomically: it holds the old text or the new text, never a part, also after a power cut."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
