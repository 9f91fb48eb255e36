"""Authenticates tokens, and limits failed authentications and requests."""

# See docs/decisions/api.md#unknown-tokens-are-looked-up-in-batches
# See docs/decisions/api.md#personal-tokens-count-as-the-organizations

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from windlass import log
from windlass.access.tokens import Tokens, TokenUse
from windlass.batching import Batcher
from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.secrets.secret import from_authorization_header, kind_of
from windlass.store.listener import TOKENS, Listener, NotifyCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from windlass.store.tokens import TokenRow, TokenStore


Key = TypeVar("Key", bound=Hashable)
MOST_KEYS = 10_000
MOST_CREWS, MOST_TOKENS_OF_A_CREW = 1000, 1000
"""The most crews, and tokens of one crew, whose requests are counted for the limit of the crew."""
MOST_NAMED = 10
"""Addresses that one report of failed authentications names. Those with the most failures come first."""
SECONDS_OF_BURST = 10
"""Seconds of allowed requests that a token may send at once after it was idle."""

logger = log.logger(__name__)


class TooManyRequests(WindlassError):  # noqa: N818 - describes the client
    """Reports that the request was refused and had no effect. The client may repeat it after `retry_after` seconds."""

    def __init__(self, message: str, hint: str, retry_after: float) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after


class TokenEnded(WindlassError):  # noqa: N818 - describes the token
    """Reports that the token of the request was valid and is not any more, and what makes the client valid again."""


@dataclass(frozen=True, slots=True)
class Source:
    """Identifies the origin of a request.

    `limited` is False for an address that many clients share, such as that of this machine. No limit applies to it.
    """

    name: str
    limited: bool


@dataclass(frozen=True, slots=True)
class RateLimits:
    """`failures` are failures per address and minute. The other limits are requests per token and second.

    0 stands for no limit.
    """

    failures: int = 60
    requests: float = 0.0
    requests_of_users: float = 100.0


class Rate(Generic[Key]):
    """Allows each key `burst` requests at once, and `per_second` requests on average.

    Implements the generic cell rate algorithm (GCRA). Each key has a virtual queue. Only the time at which the queue
    becomes empty is stored.
    """

    def __init__(
        self, per_second: float, burst: float, *, most: int = MOST_KEYS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._each = 1 / per_second if per_second else 0.0
        self._ahead = self._each * (burst - 1)
        self._empty_at: dict[Key, float] = {}
        self._most = most
        self._clock = clock

    def __len__(self) -> int:
        return len(self._empty_at)

    def seconds_until_free(self, key: Key) -> float:
        """Returns the seconds until another request is allowed, 0 for now."""
        return max(0.0, self._empty_at.get(key, 0.0) - self._clock() - self._ahead) if self._each else 0.0

    def take(self, key: Key) -> float:
        """Counts a request and returns 0 if it is allowed. Else returns the seconds until a request is allowed."""
        if not self._each:
            return 0.0
        now = self._clock()
        empty_at = self._empty_at.get(key, now)
        if empty_at - now > self._ahead:
            return empty_at - now - self._ahead
        if empty_at <= now and key not in self._empty_at and len(self._empty_at) >= self._most:
            self._make_room(now)
        self._empty_at[key] = max(empty_at, now) + self._each
        return 0.0

    def give_back(self, key: Key) -> None:
        """Removes one request of the key from the count."""
        if key in self._empty_at:
            self._empty_at[key] -= self._each

    def _make_room(self, now: float) -> None:
        """Removes the keys whose queue is empty. If more than three quarters of the room stay in use, removes the
        oldest keys too.
        """
        self._empty_at = {key: at for key, at in self._empty_at.items() if at > now}
        for key in list(islice(self._empty_at, max(0, len(self._empty_at) - self._most * 3 // 4))):
            del self._empty_at[key]


class FailedAuthentications:
    """Limits the failed authentications of each address, and counts all of them for the log."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._rate: Rate[str] = Rate(per_minute / 60, per_minute)
        self._counted: Counter[str] = Counter()

    def check(self, source: Source) -> None:
        """Raises TooManyRequests when the address has reached its limit."""
        if source.limited and (seconds := self._rate.seconds_until_free(source.name)):
            self._refuse(source, seconds)

    def count(self, source: Source) -> None:
        """Counts a failed authentication. Raises TooManyRequests when the address has reached its limit."""
        self._note(source)
        if source.limited and (seconds := self._rate.take(source.name)):
            raise self._too_many(seconds)

    @contextmanager
    def attempt(self, source: Source, *refusals: type[Exception]) -> Iterator[None]:
        """Counts an attempt as failed before the block runs, so that attempts at the same time count too.

        Takes the count back unless the block raises one of `refusals` or is cancelled. Raises TooManyRequests when the
        address has reached its limit. Use it where an attempt costs more than a statement.
        """
        if source.limited and (seconds := self._rate.take(source.name)):
            self._refuse(source, seconds)
        try:
            yield
        except refusals:
            self._note(source)
            raise
        except Exception:
            self._give_back(source)
            raise
        else:
            self._give_back(source)

    def report(self) -> None:
        """Logs the failures since the last report. The addresses with the most failures have a line each."""
        counted, self._counted = self._counted, Counter()
        named = counted.most_common(MOST_NAMED)
        for address, failures in named:
            logger.event("authentication.failed", address=address, failures=failures)
        if others := counted.total() - sum(failures for _, failures in named):
            logger.event("authentication.failed", address="others", failures=others)

    def _give_back(self, source: Source) -> None:
        if source.limited:
            self._rate.give_back(source.name)

    def _refuse(self, source: Source, seconds: float) -> NoReturn:
        self._note(source)
        raise self._too_many(seconds)

    def _note(self, source: Source) -> None:
        known = source.name in self._counted or len(self._counted) < MOST_KEYS
        self._counted[source.name if known else "others"] += 1

    def _too_many(self, seconds: float) -> TooManyRequests:
        return TooManyRequests(
            f"Your address had more than {self._per_minute} requests with an invalid token or failed sign-ins within "
            "a minute.",
            "Wait for the seconds in `Retry-After`, and send a valid token.",
            seconds,
        )


class CrewRates:
    """Limits the requests of each token to one crew, where the crew has a limit."""

    def __init__(self) -> None:
        self._rates: dict[UUID, tuple[float, Rate[UUID]]] = {}

    def take(self, deployment: UUID, limit: float | None, token: UUID) -> None:
        """Counts a request. Raises TooManyRequests when the token has reached the limit, in requests a second."""
        if limit is None:
            return
        known = self._rates.get(deployment)
        if known is None or known[0] != limit:
            if len(self._rates) >= MOST_CREWS:
                self._rates.clear()
            rate: Rate[UUID] = Rate(limit, max(1, math.ceil(limit * SECONDS_OF_BURST)), most=MOST_TOKENS_OF_A_CREW)
            known = self._rates[deployment] = (limit, rate)
        if seconds := known[1].take(token):
            raise TooManyRequests(
                f"This token sends more than {limit:g} requests a second to this crew.",
                "Wait for the seconds in `Retry-After`. Use `?wait=30` on a status instead of many requests.",
                seconds,
            )


class RequestRates:
    """Limits the requests of each token."""

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._organization, self._users = (
            Rate[Hashable](per_second, math.ceil(per_second * SECONDS_OF_BURST), clock=clock)
            for per_second in (limits.requests, limits.requests_of_users)
        )
        self._limits = limits

    def take(self, token: Hashable, *, of_user: bool) -> None:
        """Counts a request. Raises TooManyRequests when the token has reached its limit."""
        if seconds := (self._users if of_user else self._organization).take(token):
            limit = self._limits.requests_of_users if of_user else self._limits.requests
            raise TooManyRequests(
                f"This token sends more than {limit:g} requests a second.",
                "Wait for the seconds in `Retry-After`. Use `?wait=30` on a status instead of many requests, and "
                "`POST /kickoffs` to start up to 1000 kickoffs with one request.",
                seconds,
            )


class TokenAuthenticator:
    """Finds the token of a request, and checks the rate limits of the token and of the client's address.

    Every server refuses a revoked token as soon as PostgreSQL reports the revocation.
    """

    def __init__(
        self,
        tokens: Tokens,
        store: TokenStore,
        listener: Listener,
        limits: RateLimits = RateLimits(),
    ) -> None:
        self._tokens = tokens
        self._store = store
        # Tokens are looked up in batches, so that thousands of invented tokens cost few statements.
        self._batches: Batcher[bytes, TokenRow | None] = Batcher(self._look_up, fatal=DatabaseUnavailable)
        self._known: NotifyCache[bytes, TokenRow] = NotifyCache(self._batches.ask, listener, TOKENS)
        self._rates = RequestRates(limits)
        self.failures = FailedAuthentications(limits.failures)
        self.use = TokenUse(store)

    async def token(self, authorization: str | None, source: Source) -> TokenRow | None:
        """Returns the token in the header, or None if the header holds no valid token.

        Raises TokenEnded for a token that has expired or needs a sign-in of its user. Raises TooManyRequests when the
        token has reached its rate limit, or when the address has sent too many invalid tokens. From such an address the
        server still accepts tokens that it has cached.
        """
        found = await self._find(authorization, source) if authorization else None
        if found is None:
            return None
        self._rates.take(found.id, of_user=found.user_id is not None)
        self.use.note(found.id)
        return found

    async def by_digest(self, digest: bytes) -> TokenRow | None:
        """Returns the token with this digest if it may be used now. Counts no request."""
        found = await self._known.get(digest)
        return None if found is None or found.expired or found.needs_sign_in else found

    async def _find(self, authorization: str, source: Source) -> TokenRow | None:
        text = from_authorization_header(authorization)
        found = None
        if text is not None and kind_of(text) is not None:
            digest = self._tokens.digest(text)
            found = self._known.kept(digest)
            if found is None:
                self.failures.check(source)
                found = await self._known.get(digest)
        if found is None:
            self.failures.count(source)
        elif (ended := self._ended(found)) is not None:
            self.failures.count(source)
            raise ended
        return found

    def _ended(self, token: TokenRow) -> TokenEnded | None:
        if token.expired and token.expires_at:
            return TokenEnded(
                f"The token …{token.last_four} expired on {token.expires_at:%Y-%m-%d}.",
                "Create another one on the page `API tokens` of the dashboard, or with `windlass tokens create`.",
            )
        if token.needs_sign_in:
            days = self._store.rules.within / timedelta(days=1)
            return TokenEnded(
                f"The token …{token.last_four} needs a sign-in: it counts only while its user, {token.user}, has "
                f"signed in with OpenID Connect within {days:g} days.",
                "Sign in to the dashboard of this server, at /ui. The token is then valid again.",
            )
        return None

    async def _look_up(self, digests: list[bytes]) -> Sequence[TokenRow | None]:
        found = await self._store.by_digests(digests)
        return [found.get(digest) for digest in digests]
