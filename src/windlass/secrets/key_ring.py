"""Encrypts values at rest with AES-256-GCM, under keys derived from master keys. The first master key is current.

WindlassError
├── MasterKeyError    (secrets.key_file) the key file, or the variable in its place, can't be used
├── UnknownKey        a stored value needs a master key that this server doesn't have
└── Damaged           a stored value was altered, or copied from another row
"""

# See docs/decisions/secrets.md#the-key-file-is-read-again-for-an-unknown-key

from __future__ import annotations

import base64
import hashlib
import math
import re
import secrets
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from windlass import log
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VARIABLE = "WINDLASS_MASTER_KEY"
KEY_BYTES = 32
NONCE_BYTES = 12
BETWEEN_LOOKS = 1.0
"""Seconds between two looks for a key that is not known."""

_TOKEN = re.compile(r"v1\.([0-9a-f]{8})\.([A-Za-z0-9_-]{38,})")  # 38: the length of a nonce and a tag without a text

logger = log.logger(__name__)


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
    """The places where sealed values are stored. A test compares them with the list in docs/concepts/security.md."""

    TOKEN_PEPPER = "settings.token_pepper"  # noqa: S105 - a name
    SHOWN_TOKEN = "tokens.shown_copy"  # noqa: S105 - a name
    WEBHOOK_ADDRESS = "webhook_endpoints.address"
    WEBHOOK_SECRETS = "deployments.webhook_secrets"
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


class MasterKeys:
    """The master keys of a process, which its key rings share. `read` reads them again, None if they can't change."""

    def __init__(self, keys: Sequence[MasterKey], read: Callable[[], Sequence[MasterKey]] | None = None) -> None:
        self._known = {key.id: key for key in keys}
        self._read = read
        self._looked_at = -math.inf
        self.current_id = keys[0].id

    @property
    def ids(self) -> list[str]:
        """Returns the ids of all keys, the current one first at the start of the process."""
        return list(self._known)

    def find(self, key_id: str) -> MasterKey | None:
        """Looks for a new key where this one is unknown, at most once a second."""
        if key_id not in self._known and time.monotonic() - self._looked_at > BETWEEN_LOOKS:
            self.look_again()
        return self._known.get(key_id)

    def look_again(self) -> None:
        """Reads the keys again. The first one encrypts from now on. Keys that were removed still decrypt."""
        if self._read is None:
            return
        self._looked_at = time.monotonic()
        try:
            keys = self._read()
        except (WindlassError, OSError) as error:
            logger.event("master_key.unreadable", error=error)
            return
        self._known = self._known | {key.id: key for key in keys}
        if self.current_id != keys[0].id:
            self.current_id = keys[0].id
            logger.event("master_key.changed", key=self.current_id)


class KeyRing:
    """Seals and opens texts for one purpose. A text that was sealed for another purpose can't be opened.

    A sealed text is `v1.<key id>.<base64url of nonce and ciphertext>`. Its context, `table.column:row id`, is
    authenticated too. So a sealed text that is copied to another row or column can't be opened.
    """

    def __init__(self, master_keys: MasterKeys | Sequence[MasterKey], purpose: str = "at rest") -> None:
        self.master_keys = master_keys if isinstance(master_keys, MasterKeys) else MasterKeys(master_keys)
        self._purpose = purpose
        self._ciphers: dict[str, AESGCM] = {}

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.master_keys.ids)})"

    @property
    def current_id(self) -> str:
        return self.master_keys.current_id

    def for_purpose(self, purpose: str) -> KeyRing:
        return KeyRing(self.master_keys, purpose)

    def seal(self, plain: str, context: str) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        key_id = self.current_id
        cipher = self._cipher(key_id)
        assert cipher is not None  # noqa: S101 - the current key is known
        sealed = cipher.encrypt(nonce, _encoded(plain), _associated(context))
        return f"v1.{key_id}.{to_base64(nonce + sealed)}"

    def open(self, token: str, context: str) -> str:
        """Raises UnknownKey, or Damaged when the token was altered or sealed for another context or purpose."""
        found = _TOKEN.fullmatch(token)
        if not found:
            raise Damaged(context)
        cipher = self._cipher(found[1])
        if not cipher:
            raise UnknownKey(found[1], context)
        try:
            raw = _from_base64(found[2])
            return cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], _associated(context)).decode(
                "utf-8", "surrogatepass"
            )
        except (InvalidTag, ValueError):
            raise Damaged(context) from None

    def _cipher(self, key_id: str) -> AESGCM | None:
        if key_id not in self._ciphers and (key := self.master_keys.find(key_id)):
            self._ciphers[key_id] = key.cipher(self._purpose)
        return self._ciphers.get(key_id)

    def is_current(self, token: str) -> bool:
        return token.startswith(f"v1.{self.current_id}.")

    def reseal(self, token: str, context: str) -> str:
        """Seals the text again, if another key than the current one sealed it. Raises the same errors as `open`."""
        return token if self.is_current(token) else self.seal(self.open(token, context), context)


def _associated(context: str) -> bytes:
    return _encoded(f"v1|{context}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def to_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _from_base64(text: str) -> bytes:
    """Raises ValueError also for a non-canonical form of the same bytes, so that no altered text can be opened."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if to_base64(raw) != text:
        raise ValueError("not the canonical form")
    return raw
