"""The OIDC issuer of this server: its signing keys, the two documents that it publishes, and the tokens that it signs.

Cloud providers and Vault trust the issuer. They fetch the documents over HTTP, and check the tokens with them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from windlass.errors import WindlassError
from windlass.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

VARIABLE = "OIDC_PRIVATE_KEY"
ALGORITHM = "RS256"
"""The only algorithm that AWS, Google Cloud and Entra ID all accept."""
FEWEST_BITS, MOST_BITS = 2048, 8192
MOST_KEYS = 10
TOKEN_SECONDS = 3600
"""How long a token is valid. Providers refuse tokens that are valid for long."""
RENEWED_BEFORE = 300
"""Seconds before its end at which a cached token is replaced."""
CLOCK_DIFFERENCE = 30
"""Seconds by which the clock of a provider may be behind."""
MOST_CACHED = 1000
"""Audiences whose tokens are cached."""

_EDGE = re.compile(r"-----(BEGIN|END) ((?:[A-Z]+ )*)PRIVATE KEY-----")
"""The first or the last line of a PEM block."""


class BadSigningKey(WindlassError):  # noqa: N818 - describes the key
    """Reports a key that can't sign tokens. The message has no part of the key."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An RSA key of the issuer. It signs from `signs_from` on, in Unix time, until a later key does.

    `id` is the thumbprint of the public key (RFC 7638), and the `kid` of tokens. `public` is the public key as a JWK.
    """

    private: RSAPrivateKey = field(repr=False)
    id: str
    public: dict[str, str] = field(repr=False)
    signs_from: float = 0.0

    @classmethod
    def of(cls, private: RSAPrivateKey, signs_from: float = 0.0) -> Self:
        numbers = private.public_key().public_numbers()
        required = {"e": _base64_of_number(numbers.e), "kty": "RSA", "n": _base64_of_number(numbers.n)}
        thumbprint = hashlib.sha256(json.dumps(required, separators=(",", ":"), sort_keys=True).encode()).digest()
        key_id = _base64(thumbprint)
        return cls(private, key_id, {**required, "kid": key_id, "use": "sig", "alg": ALGORITHM}, signs_from)

    @classmethod
    def from_pem(cls, pem: str, place: str, signs_from: float = 0.0) -> Self:
        """Raises BadSigningKey, which names the place."""
        try:
            private = load_pem_private_key(pem.encode("ascii", "replace"), None)
        except TypeError:
            raise BadSigningKey(f"{place}: the key is encrypted.", "Remove its password: openssl rsa -in KEY") from None
        except (ValueError, UnsupportedAlgorithm):
            raise BadSigningKey(f"{place}: this is no PEM private key.", HOW_TO_MAKE_ONE) from None
        if not isinstance(private, RSAPrivateKey):
            raise BadSigningKey(
                f"{place}: this is no RSA key. Cloud providers accept {ALGORITHM} only.", HOW_TO_MAKE_ONE
            )
        if not FEWEST_BITS <= private.key_size <= MOST_BITS:
            raise BadSigningKey(
                f"{place}: the key has {private.key_size} bits. It must have {FEWEST_BITS} to {MOST_BITS}.",
                HOW_TO_MAKE_ONE,
            )
        return cls.of(private, signs_from)

    @classmethod
    def made(cls, signs_from: float = 0.0) -> Self:
        """Takes some 100 ms of CPU time."""
        return cls.of(generate_private_key(65537, FEWEST_BITS), signs_from)

    @property
    def pem(self) -> str:
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


HOW_TO_MAKE_ONE = f"Make a key with: openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:{FEWEST_BITS}"


def keys_of_variable(text: str) -> list[SigningKey]:
    """Returns the keys of OIDC_PRIVATE_KEY: PEM blocks, one after the other.

    Line ends may be written as a backslash and an n. The first key signs, so it has the highest `signs_from`. Raises
    BadSigningKey.
    """
    blocks = list(_blocks(text.replace("\\n", "\n")))
    if not blocks:
        raise BadSigningKey(f"{VARIABLE} holds no PEM private key.", HOW_TO_MAKE_ONE)
    if len(blocks) > MOST_KEYS:
        raise BadSigningKey(f"{VARIABLE} holds {len(blocks)} keys. It may hold {MOST_KEYS}.", "Remove the oldest keys.")
    places = [f"{VARIABLE}, key {number}" if len(blocks) > 1 else VARIABLE for number in range(1, len(blocks) + 1)]
    return [
        SigningKey.from_pem(block, place, signs_from=-number)
        for number, (block, place) in enumerate(zip(blocks, places, strict=True))
    ]


def _blocks(text: str) -> Iterator[str]:
    """Yields the PEM blocks of private keys."""
    begun: re.Match[str] | None = None
    for edge in _EDGE.finditer(text):
        if edge[1] == "BEGIN":
            begun = begun or edge
        elif begun and edge[2] == begun[2]:
            yield text[begun.start() : edge.end()]
            begun = None


def doubt_about(url: str) -> str | None:
    """Returns why cloud providers would refuse an issuer at this address, None if its form gives no reason."""
    parts = urlsplit(url)
    if is_loopback(parts.hostname or ""):
        return f"The issuer {url} is an address of this machine. Cloud providers can't reach it."
    if parts.scheme != "https":
        return f"The issuer {url} is no https address. Cloud providers refuse it; Vault and OpenBao accept it."
    return None


def signing_key(keys: Sequence[SigningKey], now: float) -> SigningKey | None:
    """Returns the newest key that may sign at this time, None without keys.

    The first key also signs where the clock of this machine is behind that of the database.
    """
    ready = [key for key in keys if key.signs_from <= now] or keys[:1]
    return max(ready, key=lambda key: key.signs_from, default=None)


class Issuer:
    """Signs tokens, and has the documents by which they are checked. Its methods are safe from any thread.

    `url` is the `iss` of tokens, byte for byte. `subject` is their `sub`.
    """

    def __init__(
        self,
        url: str,
        organization_id: str,
        keys: Sequence[SigningKey] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = url
        self.subject = f"organization:{organization_id}"
        self._organization_id = organization_id
        self._clock = clock
        self._cache: dict[tuple[str, str], tuple[str, float]] = {}
        self.keys = tuple(keys)
        """In the order of their `signs_from`. The owner of the issuer may replace them."""

    def token(self, audience: str, key: SigningKey) -> str:
        """Returns a token that is valid for five minutes at least, also one from the cache."""
        now = self._clock()
        token, end = self._cache.get((audience, key.id), ("", 0.0))
        if end - now < RENEWED_BEFORE:
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            token = self._signed(audience, key, int(now))
            self._cache[audience, key.id] = token, int(now) + TOKEN_SECONDS
        return token

    def _signed(self, audience: str, key: SigningKey, now: int) -> str:
        claims = {
            "iss": self.url,
            "sub": self.subject,
            "aud": audience,
            "iat": now,
            "nbf": now - CLOCK_DIFFERENCE,
            "exp": now + TOKEN_SECONDS,
            "jti": str(uuid.uuid4()),
            "organization_id": self._organization_id,
        }
        return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers={"kid": key.id})

    def discovery(self) -> dict[str, Any]:
        """Returns the document at /.well-known/openid-configuration (OpenID Connect Discovery 1.0)."""
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/oauth2/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
            "scopes_supported": ["openid"],
            "claims_supported": ["iss", "sub", "aud", "iat", "nbf", "exp", "jti", "organization_id"],
        }

    def jwks(self) -> dict[str, Any]:
        """Returns the public keys, also those that do not sign yet or any more."""
        return {"keys": [key.public for key in self.keys]}


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _base64_of_number(number: int) -> str:
    return _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))
