"""The form of API tokens: `wlo` or `wlu`, `_`, 30 random base62 characters, 6 that are the CRC32 of all before them.

Well-formedness is checked without a query. What a token may do comes from its row, never from its form.
"""

from __future__ import annotations

import hmac
import re
import secrets
import string
import zlib
from enum import StrEnum

from windlass.vault.secret import Secret

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_CHARACTERS = 30
CHECKSUM_CHARACTERS = 6


class TokenKind(StrEnum):
    ORGANIZATION = "organization"
    USER = "user"


PREFIXES = {TokenKind.ORGANIZATION: "wlo", TokenKind.USER: "wlu"}

_KINDS = {prefix: kind for kind, prefix in PREFIXES.items()}
_FORM = re.compile(rf"(?:{'|'.join(_KINDS)})_[0-9A-Za-z]{{{RANDOM_CHARACTERS + CHECKSUM_CHARACTERS}}}")
_HEADER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]{1,256}=*)")  # RFC 6750, 2.1
# Two base62 digits at a time: this runs for every request.
_PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)


def new_token(kind: TokenKind) -> Secret:
    head = f"{PREFIXES[kind]}_" + "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_CHARACTERS))
    return Secret(head + _checksum(head))


def kind_of(text: object) -> TokenKind | None:
    """The kind that a well-formed token claims; None for everything else, whatever it is (bytes are never a token)."""
    if not isinstance(text, str) or not _FORM.fullmatch(text):
        return None
    return _KINDS[text[:3]] if _checksum(text[:-CHECKSUM_CHARACTERS]) == text[-CHECKSUM_CHARACTERS:] else None


def digest(token: str, pepper: bytes) -> bytes:
    """32 bytes to store a token as and to look it up by: HMAC-SHA256, of no use without the pepper."""
    return hmac.digest(pepper, token.encode("utf-8", "surrogatepass"), "sha256")


def last_four(token: str) -> str:
    """What lists show of a token; part of its checksum, so it tells nothing that helps to guess the rest."""
    return token[-4:]


def from_authorization_header(value: str | None) -> str | None:
    """The credential of `Bearer <credential>`, not checked further; None for anything else, and for anything more."""
    found = _HEADER.fullmatch(value) if value else None
    return found[1] if found else None


def _checksum(head: str) -> str:
    rest, low = divmod(zlib.crc32(head.encode("ascii")), len(_PAIRS))
    high, middle = divmod(rest, len(_PAIRS))
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]
