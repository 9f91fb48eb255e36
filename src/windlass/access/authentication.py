from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.access.rate_limits import FailedAuthentications, RateLimits, RequestRates, Source
from windlass.access.tokens import Tokens, TokenUse
from windlass.batching import Batcher
from windlass.errors import DatabaseUnavailable
from windlass.secrets.token_format import from_authorization_header, kind_of
from windlass.store.listener import TOKENS, Listener, NotifyCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.store.tokens import TokenRow, TokenStore


class TokenAuthenticator:
    """Finds the token of a request, and checks the rate limits of the token and of the client's address.

    Every server refuses a revoked token as soon as PostgreSQL reports the revocation.
    """

    def __init__(
        self,
        tokens: Tokens,
        store: TokenStore,
        listener: Listener,
        limits: RateLimits = RateLimits(),  # noqa: B008 - the value is immutable
    ) -> None:
        self._tokens = tokens
        self._store = store
        # Tokens are looked up in batches, so that thousands of invented tokens cost few statements.
        self._batches: Batcher[bytes, TokenRow | None] = Batcher(self._look_up, hopeless=DatabaseUnavailable)
        self._known: NotifyCache[bytes, TokenRow] = NotifyCache(self._batches.ask, listener, TOKENS)
        self._rates = RequestRates(limits)
        self.failures = FailedAuthentications(limits.failures)
        self.use = TokenUse(store)

    async def token(self, authorization: str | None, source: Source) -> TokenRow | None:
        """Returns the token in the header, or None if the header holds no valid token.

        Raises TooManyRequests when the token has reached its rate limit, or when the address has sent too many invalid
        tokens. From such an address the server still accepts tokens that it has cached.
        """
        found = await self._find(authorization, source) if authorization else None
        if found is None:
            return None
        self._rates.take(found.id, of_user=found.user_id is not None)
        self.use.note(found.id)
        return found

    async def _find(self, authorization: str, source: Source) -> TokenRow | None:
        text = from_authorization_header(authorization)
        found = None
        if text is not None and kind_of(text) is not None:
            digest = self._tokens.digest(text)
            found = self._known.kept(digest)
            if found is None:
                self.failures.check(source)
                found = await self._known.get(digest)
        if found is None or found.expired:
            self.failures.count(source)
            return None
        return found

    async def _look_up(self, digests: list[bytes]) -> Sequence[TokenRow | None]:
        found = await self._store.by_digests(digests)
        return [found.get(digest) for digest in digests]
