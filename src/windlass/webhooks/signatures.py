"""Signs webhooks as the Standard Webhooks specification (standardwebhooks.com) describes it."""

# See docs/decisions/webhooks.md#signatures-are-our-own-code

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.secrets.key_ring import Sealed

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing

PREFIX = "whsec_"
KEY_BYTES = 32
BOTH_FOR = 24 * 3600.0
"""Seconds after a rotation in which webhooks are signed with the former secret too."""


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """`until` is the Unix time at which the secret ends, None for the current one."""

    value: str
    until: float | None = None


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def signed(delivery: UUID, body: bytes, given: list[SigningSecret], now: float) -> dict[str, str]:
    """Returns the headers that sign the body, with a signature for each secret."""
    content = b".".join((str(delivery).encode(), str(int(now)).encode(), body))
    return {
        "webhook-id": str(delivery),
        "webhook-timestamp": str(int(now)),
        "webhook-signature": " ".join(_signature(one.value, content) for one in given),
    }


def _signature(secret: str, content: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(_key(secret), content, hashlib.sha256)).decode("ascii")


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:  # written by hand into the database
        return secret.encode()


def first() -> list[SigningSecret]:
    return [SigningSecret(new_secret())]


def rotated(before: list[SigningSecret], now: float) -> list[SigningSecret]:
    """Returns a new secret, and the former one for a time."""
    kept = [SigningSecret(one.value, one.until or now + BOTH_FOR) for one in valid(before, now)]
    return [*first(), *kept[:1]]


def valid(given: list[SigningSecret], now: float) -> list[SigningSecret]:
    return [one for one in given if one.until is None or one.until > now]


def sealed(key_ring: KeyRing, deployment: UUID, given: list[SigningSecret]) -> str:
    text = json.dumps([[one.value, one.until] for one in given])
    return key_ring.seal(text, Sealed.WEBHOOK_SECRETS.of(deployment))


def opened(key_ring: KeyRing, deployment: UUID, text: str) -> list[SigningSecret]:
    """Returns the secrets that are valid now. Raises UnknownKey and Damaged."""
    found = json.loads(key_ring.open(text, Sealed.WEBHOOK_SECRETS.of(deployment)))
    return valid([SigningSecret(value, until) for value, until in found], time.time())
