"""Encryption at rest: AES-256-GCM under keys derived from master keys, the first of which is the current one.

WindlassError
├── MasterKeyError    the key file, or the value in its place, can't be used
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
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from windlass import log
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windlass.vault.secret import Secret

VARIABLE = "WINDLASS_MASTER_KEY"
KEY_BYTES = 32
NONCE_BYTES = 12
FILE_HEAD = """\
# Master key of a Windlass server: who has this and the database reads every secret in it.
# Back it up, apart from the database. One key a line; the first encrypts, all decrypt.
"""
HOW_TO_MAKE_ONE = "A key is 32 random bytes in base64; make one with: openssl rand -base64 32"

_KEY = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_TOKEN = re.compile(r"v1\.([0-9a-f]{8})\.([A-Za-z0-9_-]{38,})")  # 38: a nonce and a tag, nothing between them

logger = log.logger(__name__)


class MasterKeyError(WindlassError):
    pass


class UnknownKey(WindlassError):  # noqa: N818 - said of the key
    def __init__(self, key_id: str, context: str) -> None:
        super().__init__(
            f"The value stored in {context} needs the master key {key_id}, which this server doesn't have.",
            f"Add that key as a last line of the key file (in {VARIABLE}: after a comma) and start again.",
        )
        self.key_id = key_id


class Damaged(WindlassError):  # noqa: N818 - said of the value
    def __init__(self, context: str) -> None:
        super().__init__(
            f"The value stored in {context} can't be decrypted: it was altered, or copied from another row.",
            "Set it again, or restore it from a backup.",
        )


@dataclass(frozen=True, slots=True)
class MasterKey:
    raw: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Eight hexadecimal characters that name the key and tell nothing of it."""
        return hashlib.sha256(b"windlass master key id" + self.raw).hexdigest()[:8]

    def cipher(self, purpose: str) -> AESGCM:
        derived = HKDF(SHA256(), KEY_BYTES, salt=None, info=f"windlass v1 {purpose}".encode())
        return AESGCM(derived.derive(self.raw))


class KeyRing:
    """Seals and opens texts for one purpose: what one purpose seals, another can't open.

    A sealed text is `v1.<key id>.<base64url of nonce and ciphertext>`. Its context, `table.column:row id`, is
    authenticated with it: copied to another row or column, it no longer opens.
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
        """The token itself when the current key sealed it, else a new one of the same text. Raises as `open` does."""
        return token if self.is_current(token) else self.seal(self.open(token, context), context)


def load_key_ring(path: Path, from_environment: Secret | None) -> KeyRing:
    """The ring of the keys in `from_environment`, separated by commas, else of those in the file.

    The file is made, with one key, where there is none; of several processes that start at once, all get the same key.
    Raises MasterKeyError.
    """
    if from_environment is not None:
        return KeyRing(_parsed(from_environment.reveal().split(","), VARIABLE, "value"))
    try:
        text = _read_or_make(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise MasterKeyError(
            f"The key file {path} can't be used: {reason}.",
            f"Make it readable for the server's user alone, or give the key in {VARIABLE}.",
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
            f"Restore it from your backup: without its key, what is encrypted can't be read again. {HOW_TO_MAKE_ONE}",
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
                f"Others can reach the key file {path}: its rights are {rights:04o}.",
                f"Run: chmod 600 {shlex.quote(str(path))}",
            )
        return file.read().decode("ascii", "replace")


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write(draft, f"{FILE_HEAD}{_base64(secrets.token_bytes(KEY_BYTES))}\n")
        os.link(draft, path)  # the whole file or none; a rename would replace the key of a process that was quicker
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)
    _flush_folder(path.parent)
    logger.event("master_key.created", path=path)


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _associated(context: str) -> bytes:
    return _encoded(f"v1|{context}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _from_base64(text: str) -> bytes:
    """Raises ValueError also for a second spelling of the same bytes, so that no altered text opens."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _base64(raw) != text:
        raise ValueError("not the canonical form")
    return raw


def _from_base64_of_any_sort(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_").rstrip("=") + "=")
