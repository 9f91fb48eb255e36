"""Secrets that print as stars, and the format of tokens."""

from __future__ import annotations

import hmac
import re
import secrets
import string
import zlib
from enum import StrEnum
from typing import NoReturn, Self, final

STARS = "********"
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_CHARACTERS = 30
DOT, MASKED_CHARACTERS = "\N{BULLET}", 16
CHECKSUM_CHARACTERS = 6
_HEADER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]{1,256}=*)")  # RFC 6750, 2.1
# Pairs of base62 digits: they make the checksum faster, which is computed for every request.
_PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)


@final
class Secret:
    """A text that prints as stars everywhere: in logs, errors, format strings and the repr of its container.

    Only `reveal()` returns the text. An empty Secret is false, every other one is true. A Secret equals a Secret of the
    same text (compared in constant time), and never a plain str. JSON and pickle refuse it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a Secret holds a str, not {type(text).__name__}")
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return STARS

    def __repr__(self) -> str:
        return f"Secret('{STARS}')"

    def __format__(self, spec: str) -> str:
        return format(STARS, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_bytes_of(self), _bytes_of(other))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self  # for dataclasses.asdict, which makes deep copies

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is not pickled: call reveal() only where the text is needed")


def _bytes_of(secret: Secret) -> bytes:
    return secret.reveal().encode("utf-8", "surrogatepass")


class TokenKind(StrEnum):
    ORGANIZATION = "organization"
    USER = "user"
    PERSONAL = "personal"


PREFIXES = {TokenKind.ORGANIZATION: "wlo", TokenKind.USER: "wlu", TokenKind.PERSONAL: "wlp"}
_KINDS = {prefix: kind for kind, prefix in PREFIXES.items()}
_FORM = re.compile(rf"(?:{'|'.join(_KINDS)})_[0-9A-Za-z]{{{RANDOM_CHARACTERS + CHECKSUM_CHARACTERS}}}")


def masked(kind: TokenKind, last_four: str) -> str:
    """Returns what is shown of a token: its kind and its last four characters."""
    return f"{PREFIXES[kind]}_{DOT * MASKED_CHARACTERS}{last_four}"


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
