"""Tickets: a browser can't send a token when it opens a stream, so it gets a text for the address that is valid for a
minute.
"""

from __future__ import annotations

import base64
import hmac
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from windlass.access.tokens import Tokens

VALID_SECONDS = 60
HEAD = struct.Struct("!Q32s16s")
"""The second at which the ticket expires, the digest of the token, and the id of the deployment."""
PURPOSE = b"windlass stream ticket"
LONGEST = 200


@dataclass(frozen=True, slots=True)
class Ticket:
    """The digest of the token that the ticket stands for, and the deployment whose crew it is for."""

    token: bytes = field(repr=False)
    deployment: UUID


class Tickets:
    """Issues and reads tickets. Each server of a database accepts those of the others, as they share the key."""

    def __init__(self, tokens: Tokens) -> None:
        self._key = tokens.key_for(PURPOSE)

    def issue(self, token: bytes, deployment: UUID) -> str:
        """Returns a ticket for the crew with the rights of the token with this digest."""
        head = HEAD.pack(int(time.time()) + VALID_SECONDS, token, deployment.bytes)
        return base64.urlsafe_b64encode(head + self._signature(head)).rstrip(b"=").decode("ascii")

    def read(self, text: str) -> Ticket | None:
        """Returns None for a ticket that is wrong or too old."""
        if len(text) > LONGEST or not text.isascii():
            return None
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        head, signature = raw[: HEAD.size], raw[HEAD.size :]
        if len(head) < HEAD.size or not hmac.compare_digest(signature, self._signature(head)):
            return None
        expires, token, deployment = HEAD.unpack(head)
        return Ticket(token, UUID(bytes=deployment)) if expires >= time.time() else None

    def _signature(self, head: bytes) -> bytes:
        return hmac.digest(self._key, head, "sha256")
