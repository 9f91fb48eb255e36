"""The file with the master keys, or the variable in its place: one key per line, the first one encrypts."""

from __future__ import annotations

import base64
import os
import re
import secrets
import shlex
import stat
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import WindlassError
from windlass.files import sync_folder, write_whole
from windlass.secrets.key_ring import KEY_BYTES, VARIABLE, KeyRing, MasterKey, MasterKeys, to_base64

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from windlass.secrets.secret import Secret

FILE_HEAD = """\
# Master key of a Windlass server. Anyone with this file and the database can read every secret in the database.
# Back it up, but not together with the database. One key per line; the first encrypts, all decrypt.
"""
HOW_TO_MAKE_ONE = "A key is 32 random bytes in base64; make one with: openssl rand -base64 32"

_KEY = re.compile(r"[A-Za-z0-9+/_-]{43}=?")

logger = log.logger(__name__)


class MasterKeyError(WindlassError):
    pass


def load_key_ring(path: Path, from_environment: Secret | None) -> KeyRing:
    """Returns a ring of the keys in `from_environment`, separated by commas, or else of the keys in the file.

    Makes the file with one key if it does not exist. Several processes that start at once all get the same key. A ring
    of the file reads it again where it meets an unknown key. Raises MasterKeyError.
    """
    if from_environment is not None:
        return KeyRing(_parsed(from_environment.reveal().split(","), VARIABLE, "value"))

    def keys() -> list[MasterKey]:
        return keys_of_file(path)

    try:
        _make_if_missing(path)
        return KeyRing(MasterKeys(keys(), keys))
    except OSError as error:
        raise _unusable(path, error) from error


def keys_of_file(path: Path) -> list[MasterKey]:
    """Returns the keys of the file, the one that encrypts first. Raises MasterKeyError and OSError."""
    return _parsed(_read(path).splitlines(), f"The key file {path}", "line")


def put_first(path: Path, key_id: str) -> None:
    """Moves a key of the file before all others, so that it encrypts. Raises MasterKeyError for an unknown key."""

    def reordered(lines: list[str]) -> list[str]:
        ids = [_id_of_line(line) for line in lines]
        if key_id not in ids:
            raise MasterKeyError(
                f"The key file {path} has no key {key_id}.", "`windlass admin keys status` lists its keys."
            )
        key = lines.pop(ids.index(key_id))
        first = next((place for place, line in enumerate(lines) if _id_of_line(line)), len(lines))
        return [*lines[:first], key, *lines[first:]]

    _change(path, reordered)


def add_last(path: Path) -> str:
    """Adds a new key after all others: it decrypts, and does not encrypt. Returns its id. Raises MasterKeyError."""
    key = MasterKey(secrets.token_bytes(KEY_BYTES))
    _change(path, lambda lines: [*lines, to_base64(key.raw)])
    return key.id


def remove(path: Path, key_ids: Collection[str]) -> None:
    """Raises MasterKeyError."""
    _change(path, lambda lines: [line for line in lines if _id_of_line(line) not in key_ids])


def _change(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    try:
        owner = path.stat().st_uid
        if owner != os.geteuid():
            raise MasterKeyError(
                f"The key file {path} belongs to another user (number {owner}).",
                f"Run the command as that user: sudo -u '#{owner}' windlass admin keys ...",
            )
        text = "\n".join(change(_read(path).splitlines())) + "\n"
        write_whole(path, text, stat.S_IMODE(path.stat().st_mode))
        sync_folder(path.parent)
    except OSError as error:
        raise _unusable(path, error) from error


def _id_of_line(line: str) -> str | None:
    """Returns the id of the key in a line, None for a comment or an empty line."""
    text = line.strip()
    return _key(text, "the key file").id if text and not text.startswith("#") else None


def _unusable(path: Path, error: OSError) -> MasterKeyError:
    return MasterKeyError(
        f"The key file {path} can't be used: {error.strerror or type(error).__name__}.",
        f"Make it readable only for the server's user, or set the key in {VARIABLE}.",
    )


def _parsed(parts: list[str], source: str, part_name: str) -> list[MasterKey]:
    keys = [
        _key(text, f"{source}, {part_name} {number}")
        for number, part in enumerate(parts, 1)
        if (text := part.strip()) and not text.startswith("#")
    ]
    if not keys:
        raise MasterKeyError(
            f"{source} holds no master key.",
            f"Restore it from your backup: without its key, encrypted values can't be decrypted. {HOW_TO_MAKE_ONE}",
        )
    return keys


def _key(text: str, place: str) -> MasterKey:
    if not _KEY.fullmatch(text):
        raise MasterKeyError(f"{place}: this is not a master key.", HOW_TO_MAKE_ONE)
    return MasterKey(_from_base64_of_any_sort(text))


def _make_if_missing(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        _make(path)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        rights = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if rights & 0o077:
            raise MasterKeyError(
                f"Other users can access the key file {path}: its mode is {rights:04o}.",
                f"Run: chmod 600 {shlex.quote(str(path))}",
            )
        return file.read().decode("ascii", "replace")


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write(draft, f"{FILE_HEAD}{to_base64(secrets.token_bytes(KEY_BYTES))}\n")
        os.link(draft, path)  # atomic; a rename would replace the key of a process that was faster
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)
    logger.event("master_key.created", path=path)


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _from_base64_of_any_sort(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_").rstrip("=") + "=")
