from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.lifecycle.known import Known
from windlass.lifecycle.tokens import Tokens, TokenUse
from windlass.store.listener import TOKENS, Listener
from windlass.vault.token_form import from_authorization_header, kind_of

if TYPE_CHECKING:
    from windlass.store.tokens import TokenRow, TokenStore


class Access:
    """Who sends a request. A revoked token ends on every server as soon as PostgreSQL tells it."""

    def __init__(self, tokens: Tokens, store: TokenStore, listener: Listener) -> None:
        self._tokens = tokens
        self._known: Known[bytes, TokenRow] = Known(store.by_digest, listener, TOKENS)
        self.use = TokenUse(store)

    async def token(self, authorization: str | None) -> TokenRow | None:
        """None when the header holds no token that may be used now."""
        text = from_authorization_header(authorization)
        if text is None or kind_of(text) is None:
            return None
        found = await self._known.get(self._tokens.digest(text))
        if found is None or found.expired:
            return None
        self.use.note(found.id)
        return found
