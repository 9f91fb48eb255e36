"""The folders and files of the embedded PostgreSQL: its data, its settings, its socket's folder.

The data folder is created once, and an interrupted creation leaves no part of it. The settings are for one small
server, safe against a power cut, reachable by one socket. The path of the socket's folder is short; the folder is
closed to other users, and no other user made it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.embedded_postgres.errors import EmbeddedPostgresError, failed
from windlass.embedded_postgres.programs import ProgramFailed, Programs
from windlass.files import sync_folder, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.accounts import Account
    from windlass.embedded_postgres.home import Paths


DATABASE = USER = "windlass"
SUPERUSER = "postgres"  # has the same password; for administrators of the database, never for the server
ROUNDS = 4096  # PostgreSQL's default; the password is 32 random bytes, which more rounds would not make safer
SHORT = Path("/tmp")  # noqa: S108 - the folder's name can't be guessed, and its owner is checked before it is used again
CLOSED = 0o700
PORT = 5432  # part of the socket's name; PostgreSQL listens on no network
SETTINGS = """\
# Windlass writes this file at each start. To change a setting permanently, use ALTER SYSTEM as the user postgres.
include 'data/postgresql.conf'       # what initdb chose for this system: 100 connections and 128 MB if there is room

fsync = on
full_page_writes = on
synchronous_commit = on
max_wal_size = 512MB
min_wal_size = 48MB
max_wal_senders = 2
max_logical_replication_workers = 0
io_method = sync                     # three processes fewer; data that is often read is in memory
jit = off                            # costs more than it saves on short statements
max_parallel_workers_per_gather = 0  # the cores of the machine are for the crews
max_worker_processes = 4
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
log_line_prefix = '%m [%p] '
log_checkpoints = off
log_error_verbosity = terse          # the details of an error contain values of rows
log_min_error_statement = panic      # a statement contains values too
cluster_name = 'windlass'
"""
ACCESS = "local all all scram-sha-256\n"


def ready_data(places: Paths, programs: Programs, lock: int, report: Callable[[str], None]) -> str:
    """Returns the password. Makes the data and the password if they are missing. Raises EmbeddedPostgresError.

    `lock` is the descriptor of the database lock. The programs that are started here inherit it, so that a start after
    a kill waits for them.
    """
    try:
        if not (places.data / "PG_VERSION").exists():
            _make(places, programs, lock, report)
        elif not places.password.exists():
            _renew_password(places, programs, lock, report)
    except ProgramFailed as error:
        raise failed("The database could not be made", places.home, str(error)) from error
    return places.password.read_text().strip()


def scram_verifier(password: str, salt: bytes) -> str:
    """Returns the text that PostgreSQL stores for a password (RFC 5803). It can check a password, but not log in."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ROUNDS)
    client = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    parts = (base64.b64encode(part).decode() for part in (salt, client, server))
    return "SCRAM-SHA-256${}:{}${}:{}".format(ROUNDS, *parts)


def _make(places: Paths, programs: Programs, lock: int, report: Callable[[str], None]) -> None:
    _refuse_foreign_data(places)
    report("making the database (once)")
    _clear(places)
    password, verifier = _new_password()
    _initialize(places, programs, lock, verifier)
    _add_database(places, programs, lock, verifier)
    write_whole(places.password, password)
    (places.making / "data").rename(places.data)
    sync_folder(places.own)
    _clear(places)


def _refuse_foreign_data(places: Paths) -> None:
    if places.data.exists() and any(places.data.iterdir()):
        raise EmbeddedPostgresError(
            f"{places.data} holds files, but no database: there is no file PG_VERSION in it.",
            "Move these files to another folder, then start again. The start makes a new, empty database.",
        )


def _clear(places: Paths) -> None:
    """Removes the incomplete data of a start that was killed. This process holds the lock, so no other writes there."""
    if places.making.exists():
        shutil.rmtree(places.making)


def _new_password() -> tuple[str, str]:
    password = secrets.token_urlsafe(32)
    return password, scram_verifier(password, secrets.token_bytes(16))


def _initialize(places: Paths, programs: Programs, lock: int, verifier: str) -> None:
    places.making.mkdir(mode=0o700)
    file = places.making / "verifier"
    write_whole(file, verifier)
    programs.account.give(file)
    programs.account.give(places.making)  # last: root must not write in a folder where another user could place a link
    programs.run(
        "initdb",
        f"--pgdata={places.making / 'data'}",
        f"--username={SUPERUSER}",
        f"--pwfile={file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--data-checksums",
        "--no-instructions",
        lock=lock,
    )


def _add_database(places: Paths, programs: Programs, lock: int, verifier: str) -> None:
    _run_single_user(
        places.making / "data",
        programs,
        lock,
        f"CREATE ROLE {USER} LOGIN CREATEDB PASSWORD '{verifier}'",
        f"CREATE DATABASE {DATABASE} OWNER {USER}",
    )


def _renew_password(places: Paths, programs: Programs, lock: int, report: Callable[[str], None]) -> None:
    report("the home has no password of the database; setting a new one")
    password, verifier = _new_password()
    changes = (f"ALTER ROLE {role} PASSWORD '{verifier}'" for role in (SUPERUSER, USER))
    _run_single_user(places.data, programs, lock, *changes)
    write_whole(places.password, password)


def _run_single_user(data: Path, programs: Programs, lock: int, *statements: str) -> None:
    """Runs statements in PostgreSQL's single-user mode: without a socket or a password. It ends before this returns."""
    quiet = ("exit_on_error=on", "log_min_error_statement=panic", "log_checkpoints=off")
    options = [word for setting in quiet for word in ("-c", setting)]
    text = "".join(f"{statement};\n\n" for statement in statements)
    programs.run("postgres", "--single", "-j", *options, "-D", str(data), SUPERUSER, lock=lock, text=text)


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


def write_settings(places: Paths) -> None:
    """Writes the files so that the user that PostgreSQL runs as can read them. They contain no secret."""
    write_whole(places.settings, SETTINGS, 0o644)
    write_whole(places.access, ACCESS, 0o644)


def command(postgres: Path, places: Paths, socket_folder: Path) -> list[str]:
    """Returns the command line of PostgreSQL, with the settings that nobody may change.

    The command line has precedence over the settings files and ALTER SYSTEM.
    """
    must = {
        "config_file": places.settings,
        "hba_file": places.access,
        "listen_addresses": "",
        "unix_socket_directories": f'"{socket_folder}"',
        "unix_socket_permissions": "0700",
        "port": PORT,
        "logging_collector": "off",
        "log_destination": "stderr",
    }
    return [str(postgres), "-D", str(places.data), *(f"--{name}={value}" for name, value in must.items())]
