"""Backups of the embedded database, and what a database is worth nothing without: the master key."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from windlass.embedded.backup_file import About, BackupError, opened, writing
from windlass.embedded.dumping import dump
from windlass.embedded.places import Places, write_whole
from windlass.embedded.postgres import EmbeddedPostgres, running_url
from windlass.embedded.postgres_errors import unusable
from windlass.embedded.programs import WHEEL
from windlass.embedded.restoring import Restoration
from windlass.store.migrate import known_migrations
from windlass.vault.key_ring import UnknownKey, load_key_ring
from windlass.vault.secret import Secret
from windlass.wiring.ground import key_ring_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from windlass.config import Settings
    from windlass.embedded.backup_file import BackupFile
    from windlass.vault.key_ring import KeyRing
    from windlass.wiring.ground import Say

CONTEXT = "the backup"
PROBED = "windlass"


def backup(
    settings: Settings, file: Path, *, with_key: bool, force: bool, say: Say, written: Callable[[int], None]
) -> int:
    """Of the database as it is at this moment; a server may run on it. Returns the size of the file, in bytes."""
    _refuse_outside(settings, "pg_dump")
    places = Places(settings.home.absolute())
    if not _has_database(places):
        raise BackupError(f"There is no database in {settings.home} yet.", "WINDLASS_HOME names the server's home.")
    if file.exists() and not force:
        raise BackupError(f"{file} is there already.", "Choose another name, or give --force to replace it.")
    with _running(settings, say), writing(file) as new:
        with new.dump() as to:
            dump(places, to, written)
        new.add(_about(key_ring_of(settings)), _key_text(settings) if with_key else None)
    return file.stat().st_size


def restore(settings: Settings, file: Path, *, force: bool, say: Say, read: Callable[[int, int], None]) -> Path | None:
    """Where the database that was there is now; None when there was none."""
    _refuse_outside(settings, "pg_restore")
    say(f"checking {file}")
    with opened(file) as found:
        _refuse_newer(found)
        with Restoration(settings.home, say) as restoration:
            if restoration.has_data and not force:
                raise BackupError(
                    f"There is a database in {settings.home} already.",
                    "Choose another home with WINDLASS_HOME, or give --force: then the one that is there is put aside.",
                )
            key = _key_to_write(settings, found, force=force)
            restoration.load(found, lambda done: read(done, found.dump_size))
            if key is not None:
                _write_key(settings.home / "master.key", key)
            return restoration.take_place()


def _has_database(places: Places) -> bool:
    try:
        return (places.data / "PG_VERSION").exists()
    except OSError as error:
        raise unusable(places.home, error) from error


@contextmanager
def _running(settings: Settings, say: Say) -> Iterator[None]:
    """The server's database if one runs, else one that is started for this."""
    if running_url(settings.home) is not None:
        yield
        return
    postgres = EmbeddedPostgres(settings.home, report=say)
    try:
        postgres.start()
        yield
    finally:
        postgres.stop()


def _about(key_ring: KeyRing) -> About:
    return About(
        windlass=version("windlass"),
        postgres=version(WHEEL),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        migration=max(known_migrations()),
        key_id=key_ring.current_id,
        probe=key_ring.seal(PROBED, CONTEXT),
    )


def _key_text(settings: Settings) -> str:
    if settings.master_key:
        return "\n".join(settings.master_key.get_secret_value().split(",")) + "\n"
    return (settings.home / "master.key").read_text("ascii")


def _refuse_outside(settings: Settings, program: str) -> None:
    if settings.database_url:
        raise BackupError(
            "WINDLASS_DATABASE_URL names a PostgreSQL of your own, and this command is for the embedded one.",
            f"Use PostgreSQL's own programs, such as {program}; docs/backup.md says what else belongs to a backup.",
        )


def _refuse_newer(found: BackupFile) -> None:
    if found.about.migration > max(known_migrations()):
        raise BackupError(
            f"The backup {found.path} was made by a newer Windlass ({found.about.windlass}).",
            "Restore it with that version, or a newer one.",
        )


def _key_to_write(settings: Settings, found: BackupFile, *, force: bool) -> str | None:
    """The text for the key file; None when the home has the backup's key. Raises BackupError when nobody has it."""
    file = settings.home / "master.key"
    given = Secret(settings.master_key.get_secret_value()) if settings.master_key else None
    if (given or file.exists()) and _opens(load_key_ring(file, given), found):
        return None
    if found.key is None:
        raise BackupError(
            f"The backup needs the master key {found.about.key_id}, which is neither in it nor on this server.",
            f"Put the key file of the server that it was made of at {file}, or its key into WINDLASS_MASTER_KEY, and "
            "restore again: without it neither secrets nor tokens nor journals can be read.",
        )
    if given or (file.exists() and not force):
        where = "WINDLASS_MASTER_KEY" if given else str(file)
        raise BackupError(
            f"The backup brings its master key {found.about.key_id}, and {where} holds another one.",
            "Unset it." if given else "Move that file away, or give --force: then it is put aside.",
        )
    return found.key


def _opens(ring: KeyRing, found: BackupFile) -> bool:
    try:
        return ring.open(found.about.probe, CONTEXT) == PROBED
    except UnknownKey:
        return False


def _write_key(file: Path, text: str) -> None:
    if file.exists():
        file.rename(file.with_name(f"{file.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"))
    write_whole(file, text)
