"""How tests back homes up, and restore them."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

from embedded_postgres.served_database import ask, serving
from store.kickoff_rows import Rows
from windlass.administration.backups import backup, restore
from windlass.administration.opening import administration
from windlass.config import Settings
from windlass.embedded_postgres.backup_file import ABOUT
from windlass.store.database import Database

if TYPE_CHECKING:
    from pathlib import Path

KICKOFFS = 3
OTHER_KEY = "A" * 43


async def fill(home: Path) -> None:
    """Makes its database, with kickoffs, and its master key."""
    async with administration(Settings(home=home)) as opened, Database(opened.database.url) as database:
        await (await Rows.make(database)).accept(KICKOFFS)


def empty_home(place: Path) -> Path:
    home = place / "new"
    home.mkdir()
    home.chmod(0o711)
    return home


def written(home: Path, file: Path, *, with_key: bool = False, force: bool = False) -> Path:
    backup(Settings(home=home), file, with_key=with_key, force=force, notify=ignored, written=ignored)
    return file


def restored(home: Path, file: Path, *, force: bool = False, **settings: Any) -> Path | None:
    return restore(Settings(home=home, **settings), file, force=force, notify=ignored, read=ignored)


def ignored(*_: object) -> None:
    pass


def kickoffs_in(home: Path) -> int:
    with serving(home) as database:
        return int(ask(database.url, "SELECT count(*) FROM kickoffs WHERE state = 'PENDING'"))


def rewritten(file: Path, copy: Path, **members: bytes) -> Path:
    """With other contents of some members, and right checksums."""
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            new.writestr(name, members.get(name.split(".")[0], old.read(name)))
    return copy


def about(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as archive:
        told: dict[str, Any] = json.loads(archive.read(ABOUT))
        return told
