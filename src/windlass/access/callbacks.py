"""Callback URLs: with one, the receiver of a webhook answers a question of a flow without a token."""

# See docs/decisions/webhooks.md#a-callback-url-is-for-the-receiver-of-the-deployment

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.access.tokens import Tokens

PURPOSE = b"windlass callback"


class Callbacks:
    """Signs the ids of questions. Each server of a database accepts the signatures of the others, as they share the
    key. A signature is valid while its question waits for an answer.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._key = tokens.key_for(PURPOSE)

    def url(self, public_url: str | None, slug: str, question: UUID) -> str | None:
        """Returns None where the address of the server is not known."""
        if public_url is None:
            return None
        return f"{public_url}/crews/{quote(slug)}/resume/{question}?signature={self._signature(question)}"

    def is_valid(self, question: UUID, signature: str) -> bool:
        return hmac.compare_digest(signature.encode(), self._signature(question).encode())

    def _signature(self, question: UUID) -> str:
        digest = hmac.digest(self._key, question.bytes, "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
