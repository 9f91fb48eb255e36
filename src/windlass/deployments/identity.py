"""The identity of this server: the organization and the OIDC issuer by which providers of secrets know it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from windlass import log
from windlass.errors import WindlassError
from windlass.lifecycle.background_tasks import BackgroundTasks
from windlass.secrets.key_ring import Sealed
from windlass.secrets.oidc import VARIABLE, Issuer, SigningKey, doubt_about, signing_key
from windlass.secrets.provider import NoIssuer, ProviderUnavailable
from windlass.store.listener import SIGNING_KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.secrets.key_ring import KeyRing
    from windlass.store.audit import Actor
    from windlass.store.listener import Listener
    from windlass.store.signing_keys import SigningKeyRow, SigningKeyStore

LOOK_EVERY = 60.0
"""Seconds between two looks for changed keys. The database notifies of changes, too."""
FIRST_KEY_SECONDS = 15.0
"""The longest wait for the first key."""

logger = log.logger(__name__)


class KeysAreFixed(WindlassError):  # noqa: N818 - describes the keys
    """Reports that the signing keys come from OIDC_PRIVATE_KEY, so the server can't change them."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """`created_at` and `signs_from` are None for a key of OIDC_PRIVATE_KEY."""

    id: str
    state: Literal["signing", "waiting", "published"]
    created_at: datetime | None
    signs_from: datetime | None


class Identity:
    """Signs the tokens that identify this server to providers, and keeps the keys of its issuer up to date.

    The first key is made when it is first needed. `issuer` is the address of the issuer, None if the server has none.
    """

    def __init__(self, store: SigningKeyStore, key_ring: KeyRing, organization_id: str, *, fixed: bool) -> None:
        self._store = store
        self._key_ring = key_ring
        self._fixed = fixed
        self._issuer: Issuer | None = None
        self._keys: tuple[SigningKey, ...] = ()
        self._created: dict[str, datetime] = {}
        self._unreadable: frozenset[str] = frozenset()
        self._making = asyncio.Lock()
        self._changed = asyncio.Event()
        self._following = BackgroundTasks(self._follow)
        self._loop = asyncio.get_running_loop()
        self.organization_id = organization_id

    @classmethod
    async def open(
        cls, store: SigningKeyStore, key_ring: KeyRing, issuer: str | None, keys: Sequence[SigningKey] = ()
    ) -> Self:
        """Reads the keys of the database. With `keys`, uses these instead."""
        found = cls(store, key_ring, await store.organization_id(), fixed=bool(keys))
        found._keys = tuple(keys)
        if issuer is not None:
            found.issue_at(issuer)
        if not keys:
            await found._read()
        return found

    def follow(self, listener: Listener) -> None:
        """Reads the keys again whenever the database notifies of a change. `start` begins this."""
        listener.on(SIGNING_KEYS, lambda _: self._changed.set())
        listener.on_gap(self._changed.set)

    async def start(self) -> None:
        if not self._fixed:
            await self._following.start()

    async def stop(self) -> None:
        await self._following.stop()

    def issue_at(self, url: str) -> None:
        """Sets the address of the issuer."""
        self._issuer = Issuer(url, self.organization_id, self._keys)

    @property
    def issuer(self) -> str | None:
        return self._issuer.url if self._issuer else None

    @property
    def subject_name(self) -> str:
        """The `sub` of the tokens."""
        return f"organization:{self.organization_id}"

    @property
    def doubt(self) -> str | None:
        """Why cloud providers would refuse the issuer, None if there is no reason that the server knows."""
        return doubt_about(self._issuer.url) if self._issuer else str(_no_issuer())

    def subject(self, audience: str) -> str:
        """Returns a token for the audience. Call it in a thread: the first token of a server waits for its key.

        Raises NoIssuer, and DatabaseUnavailable when the first key can't be stored.
        """
        issuer = self._demanded()
        key = signing_key(self._keys, time.time()) or self._first_key()
        return issuer.token(audience, key)

    def discovery(self) -> dict[str, Any]:
        """Returns the document of the issuer. Raises NoIssuer."""
        return self._demanded().discovery()

    def jwks(self) -> dict[str, Any]:
        """Returns the public keys of the issuer, none before the first token. Raises NoIssuer."""
        return self._demanded().jwks()

    async def prepare(self) -> None:
        """Makes the first key if there is none. Raises NoIssuer if none of the stored keys can be decrypted."""
        async with self._making:
            if not self._keys:
                await self._read()  # another server may have made one
            if not self._keys and not self._unreadable:
                key = await asyncio.to_thread(SigningKey.made)
                await self._store.add_first(key.id, self._sealed(key))
                await self._read()
                logger.event("signing_key.created", key=self._keys[0].id)
        if not self._keys:
            raise NoIssuer(
                "The signing keys of this server can't be decrypted.",
                "Restore the master key, or make another signing key: windlass admin identity rotate --now",
            )

    async def rotate(self, by: Actor, *, now: bool = False, withdraw: bool = False) -> None:
        """Adds a key that is published at once and signs after a day, or `now`; removes keys that nobody needs.

        With `withdraw`, a new key signs at once, and all others are removed. Raises KeysAreFixed and KeyWaits.
        """
        if self._fixed:
            raise KeysAreFixed(
                f"The signing keys come from {VARIABLE}, so the server can't change them.",
                f"Add a new key as the last one of {VARIABLE}, make it the first one a day later, and remove the old "
                "one another day later. Restart the servers after each step.",
            )
        key = await asyncio.to_thread(SigningKey.made)
        await self._store.rotate(key.id, self._sealed(key), now=now or withdraw, withdraw=withdraw, by=by)
        await self._read()
        logger.event("signing_key.rotated", key=self._keys[-1].id)

    def key_states(self) -> list[KeyState]:
        """Returns the published keys, the next one to sign last."""
        now = time.time()
        signing = signing_key(self._keys, now)
        return [self._state(key, signing, now) for key in self._keys]

    def _state(self, key: SigningKey, signing: SigningKey | None, now: float) -> KeyState:
        state: Literal["signing", "waiting", "published"] = (
            "signing" if key is signing else "waiting" if key.signs_from > now else "published"
        )
        since = None if self._fixed else datetime.fromtimestamp(key.signs_from, UTC)
        return KeyState(key.id, state, self._created.get(key.id), since)

    def _demanded(self) -> Issuer:
        if self._issuer is None:
            raise _no_issuer()
        return self._issuer

    def _first_key(self) -> SigningKey:
        """Makes the key in the event loop, and waits for it in the thread of the caller."""
        making = asyncio.run_coroutine_threadsafe(self.prepare(), self._loop)
        try:
            making.result(FIRST_KEY_SECONDS)
        except TimeoutError:
            making.cancel()
            raise ProviderUnavailable("This server has not made its first signing key in time.") from None
        return self._keys[0]  # `prepare` raises if there is none

    def _sealed(self, key: SigningKey) -> str:
        return self._key_ring.seal(key.pem, Sealed.SIGNING_KEY.of(key.id))

    async def _follow(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await self._changed.wait()
        self._changed.clear()
        await self._read()

    async def _read(self) -> None:
        rows = await self._store.all()
        known = {key.id: key for key in self._keys}
        opened = {row.id: self._opened(row, known.get(row.id)) for row in rows}
        self._unreadable = frozenset(key_id for key_id, key in opened.items() if key is None)
        self._created = {row.id: row.created_at for row in rows}
        self._keys = tuple(key for key in opened.values() if key)
        if self._issuer:
            self._issuer.keys = self._keys

    def _opened(self, row: SigningKeyRow, known: SigningKey | None) -> SigningKey | None:
        """Returns the key of the row, None for one that can't be decrypted: the others still sign."""
        signs_from = row.signs_from.timestamp()
        if known and known.signs_from == signs_from:
            return known
        try:
            pem = self._key_ring.open(row.key, Sealed.SIGNING_KEY.of(row.id))
            return SigningKey.from_pem(pem, f"The signing key {row.id}", signs_from)
        except WindlassError as error:
            if row.id not in self._unreadable:
                logger.event("signing_key.unreadable", key=row.id, error=error)
            return None


def _no_issuer() -> NoIssuer:
    return NoIssuer(
        "This server has no address at which providers could reach its OIDC issuer.",
        "Set OIDC_ISSUER or WINDLASS_PUBLIC_URL to the https address of the server.",
    )
