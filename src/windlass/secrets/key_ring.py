"""Encrypts values at rest with AES-256-GCM, under keys derived from master keys. The first master key is current.

WindlassError
├── MasterKeyError    the key file, or the variable in its place, can't be used
├── UnknownKey        a stored value needs a master key that this server doesn't have
└── Damaged           a stored value was altered, or copied from another row
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
import shlex
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from windlass import log
from windlass.errors import WindlassError
from windlass.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windlass.secrets.secret import Secret

VARIABLE = "WINDLASS_MASTER_KEY"
KEY_BYTES = 32
NONCE_BYTES = 12
FILE_HEAD = """\
# Master key of a Windlass server. Anyone with this file and the database can read every secret in the database.
# Back it up, but not together with the database. One key per line; the first encrypts, all decrypt.
"""
HOW_TO_MAKE_ONE = "A key is 32 random bytes in base64; make one with: openssl rand -base64 32"

_KEY = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_TOKEN = re.compile(r"v1\.([0-9a-f]{8})\.([A-Za-z0-9_-]{38,})")  # 38: the length of a nonce and a tag without a text

logger = log.logger(__name__)


class MasterKeyError(WindlassError):
    pass


class UnknownKey(WindlassError):  # noqa: N818 - describes the key
    def __init__(self, key_id: str, context: str) -> None:
        super().__init__(
            f"The value stored in {context} needs the master key {key_id}, which this server doesn't have.",
            f"Add that key as the last line of the key file (in {VARIABLE}: after a comma) and restart the server.",
        )
        self.key_id = key_id


class Damaged(WindlassError):  # noqa: N818 - describes the value
    def __init__(self, context: str) -> None:
        super().__init__(
            f"The value stored in {context} can't be decrypted: it was altered, or copied from another row.",
            "Set it again, or restore it from a backup.",
        )


class Sealed(StrEnum):
    """The places where sealed values are stored. A test compares them with the list in docs/security.md."""

    TOKEN_PEPPER = "settings.token_pepper"  # noqa: S105 - a name
    SHOWN_TOKEN = "tokens.shown_copy"  # noqa: S105 - a name
    UNSUPPORTED_MEMBERS = "kickoffs.unacted"
    JOURNAL_RECORD = "journal.record"
    VARIABLE = "variables.value"
    CREDENTIAL = "credentials.configuration"
    SIGNING_KEY = "signing_keys.key"
    BACKUP_PROBE = "the backup"

    def of(self, row: object) -> str:
        """Returns the context of the value in this row."""
        return f"{self}:{row}"


@dataclass(frozen=True, slots=True)
class MasterKey:
    raw: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Eight hexadecimal characters that identify the key without revealing it."""
        return hashlib.sha256(b"windlass master key id" + self.raw).hexdigest()[:8]

    def cipher(self, purpose: str) -> AESGCM:
        derived = HKDF(SHA256(), KEY_BYTES, salt=None, info=f"windlass v1 {purpose}".encode())
        return AESGCM(derived.derive(self.raw))


class KeyRing:
    """Seals and opens texts for one purpose. A text that was sealed for another purpose can't be opened.

    A sealed text is `v1.<key id>.<base64url of nonce and ciphertext>`. Its context, `table.column:row id`, is
    authenticated too. So a sealed text that is copied to another row or column can't be opened.
    """

    def __init__(self, master_keys: Sequence[MasterKey], purpose: str = "at rest") -> None:
        self._master_keys = tuple(master_keys)
        self._ciphers = {key.id: key.cipher(purpose) for key in self._master_keys}
        self.current_id = self._master_keys[0].id

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    def for_purpose(self, purpose: str) -> KeyRing:
        return KeyRing(self._master_keys, purpose)

    def seal(self, plain: str, context: str) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = self._ciphers[self.current_id].encrypt(nonce, _encoded(plain), _associated(context))
        return f"v1.{self.current_id}.{_base64(nonce + sealed)}"

    def open(self, token: str, context: str) -> str:
        """Raises UnknownKey, or Damaged when the token was altered or sealed for another context or purpose."""
        found = _TOKEN.fullmatch(token)
        if not found:
            raise Damaged(context)
        cipher = self._ciphers.get(found[1])
        if not cipher:
            raise UnknownKey(found[1], context)
        try:
            raw = _from_base64(found[2])
            return cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], _associated(context)).decode(
                "utf-8", "surrogatepass"
            )
        except (InvalidTag, ValueError):
            raise Damaged(context) from None

    def is_current(self, token: str) -> bool:
        return token.startswith(f"v1.{self.current_id}.")

    def reseal(self, token: str, context: str) -> str:
        """Seals the text again, if another key than the current one sealed it. Raises the same errors as `open`."""
        return token if self.is_current(token) else self.seal(self.open(token, context), context)


def load_key_ring(path: Path, from_environment: Secret | None) -> KeyRing:
    """Returns a ring of the keys in `from_environment`, separated by commas, or else of the keys in the file.

    Makes the file with one key if it does not exist. Several processes that start at once all get the same key. Raises
    MasterKeyError.
    """
    if from_environment is not None:
        return KeyRing(_parsed(from_environment.reveal().split(","), VARIABLE, "value"))
    try:
        text = _read_or_make(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise MasterKeyError(
            f"The key file {path} can't be used: {reason}.",
            f"Make it readable only for the server's user, or set the key in {VARIABLE}.",
        ) from error
    return KeyRing(_parsed(text.splitlines(), f"The key file {path}", "line"))


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


def _read_or_make(path: Path) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        _make(path)
        return _read(path)


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
        _write(draft, f"{FILE_HEAD}{_base64(secrets.token_bytes(KEY_BYTES))}\n")
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


def _associated(context: str) -> bytes:
    return _encoded(f"v1|{context}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _from_base64(text: str) -> bytes:
    """Raises ValueError also for a non-canonical form of the same bytes, so that no altered text can be opened."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _base64(raw) != text:
        raise ValueError("not the canonical form")
    return raw


def _from_base64_of_any_sort(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_").rstrip("=") + "=")
