"""Creates the database's data folder, once. An interrupted creation leaves no partial data folder."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import shutil
from typing import TYPE_CHECKING

from windlass.embedded_postgres.errors import EmbeddedPostgresError, failed
from windlass.embedded_postgres.paths import Paths, sync_folder, write_whole
from windlass.embedded_postgres.programs import ProgramFailed, Programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


DATABASE = USER = "windlass"
SUPERUSER = "postgres"  # has the same password; for administrators of the database, never for the server
ROUNDS = 4096  # PostgreSQL's default; the password is 32 random bytes, which more rounds would not make safer


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
