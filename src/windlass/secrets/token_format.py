"""Makes and parses API tokens: `wlo` or `wlu`, `_`, 30 random base62 characters, and a checksum of 6.

The checksum is the CRC32 of all characters before it. So the form of a token is checked without a query. The rights of
a token come from its row, never from its form.
"""

from __future__ import annotations

import hmac
import re
import secrets
import string
import zlib
from enum import StrEnum

from windlass.secrets.secret import Secret

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
# Pairs of base62 digits: they make the checksum faster, which is computed for every request.
_PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)


def new_token(kind: TokenKind) -> Secret:
    head = f"{PREFIXES[kind]}_" + "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_CHARACTERS))
    return Secret(head + _checksum(head))


def kind_of(text: object) -> TokenKind | None:
    """Returns the kind that a well-formed token claims, or None for any other value. Bytes are never a token."""
    if not isinstance(text, str) or not _FORM.fullmatch(text):
        return None
    return _KINDS[text[:3]] if _checksum(text[:-CHECKSUM_CHARACTERS]) == text[-CHECKSUM_CHARACTERS:] else None


def digest(token: str, pepper: bytes) -> bytes:
    """Returns the HMAC-SHA256 by which a token is stored and found: 32 bytes, useless without the pepper."""
    return hmac.digest(pepper, token.encode("utf-8", "surrogatepass"), "sha256")


def last_four(token: str) -> str:
    """Returns the part of a token that lists show: the end of its checksum, which does not help to guess the rest."""
    return token[-4:]


def from_authorization_header(value: str | None) -> str | None:
    """Returns the unchecked credential of `Bearer <credential>`, or None for a header of any other form."""
    found = _HEADER.fullmatch(value) if value else None
    return found[1] if found else None


def _checksum(head: str) -> str:
    rest, low = divmod(zlib.crc32(head.encode("ascii")), len(_PAIRS))
    high, middle = divmod(rest, len(_PAIRS))
    return _PAIRS[high] + _PAIRS[middle] + _PAIRS[low]
