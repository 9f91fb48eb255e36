"""Reads secrets with credentials: several at once, within a deadline, and again where a provider does not answer."""

# See docs/decisions/secrets.md#each-read-of-a-secret-has-a-thread-of-its-own
# See docs/decisions/secrets.md#a-connection-is-kept-for-a-credential-and-values-are-not

from __future__ import annotations

import asyncio
import random
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from windlass import log
from windlass.aio import in_thread
from windlass.deployments.configurations import open_configuration
from windlass.errors import DatabaseUnavailable
from windlass.secrets.key_ring import Damaged, UnknownKey
from windlass.secrets.provider import BadCredential, ProviderUnavailable, SecretError

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from windlass.secrets.key_ring import KeyRing
    from windlass.secrets.provider import Manager, Subject
    from windlass.secrets.providers import Providers
    from windlass.store.credentials import CredentialRow

    Connect = Callable[[CredentialRow], Manager]

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0
"""Seconds between two tries, where a provider does not answer. Each pause is twice as long as the one before."""
THREAD = "windlass-secrets"

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a secret manager answered for one secret, and in how many seconds: the value, or why there is none."""

    value: str = field(repr=False)
    error: SecretError | None = None
    seconds: float = 0.0


class Connections:
    """Keeps the manager of each credential, with what proves to its provider who the server is. Keeps no value.

    `connect` returns the manager of a credential. It blocks, and raises SecretError. With one credential `at_once`
    secrets are read at the same time, each in a thread. A manager that nothing uses is closed after `unused` seconds.
    """

    def __init__(self, connect: Connect, *, at_once: int = 32, unused: float = 3600.0) -> None:
        self._connect = connect
        self._at_once = at_once
        self._unused = unused
        self._kept: dict[UUID, Connection] = {}

    def of(self, credential: CredentialRow) -> Connection:
        """Returns the connection of the credential, as the credential is now."""
        found = self._kept.get(credential.id)
        if found is None or found.version != credential.updated_at:
            self._retire(credential.id)
            found = self._kept[credential.id] = Connection(
                credential, partial(self._connect, credential), self._at_once
            )
        found.used_at = time.monotonic()
        return found

    def close_unused(self) -> None:
        before = time.monotonic() - self._unused
        for credential in [credential for credential, one in self._kept.items() if one.used_at < before]:
            self._retire(credential)

    def close(self) -> None:
        for credential in list(self._kept):
            self._retire(credential)

    def _retire(self, credential: UUID) -> None:
        if found := self._kept.pop(credential, None):
            found.retire()


class Connection:
    """Reads secrets with one credential. Its manager is made by the first read."""

    def __init__(self, credential: CredentialRow, connect: Callable[[], Manager], at_once: int) -> None:
        self.version = credential.updated_at
        self.used_at = 0.0
        self._provider = credential.provider
        self._connect = connect
        self._manager: Manager | None = None
        self._making = threading.Lock()
        self._turns = asyncio.Semaphore(at_once)
        self._reads = 0
        self._retired = False

    async def answer(self, name: str, seconds: float) -> Answer:
        """Reads the newest value of a secret, within so many seconds."""
        began = time.monotonic()
        try:
            return Answer(await self._value(name, seconds), None, time.monotonic() - began)
        except SecretError as error:
            return Answer("", error, time.monotonic() - began)

    def retire(self) -> None:
        """Closes the manager as soon as no read uses it."""
        self._retired = True
        self._close_if_idle()

    async def _value(self, name: str, seconds: float) -> str:
        """Repeats the read while the provider is unavailable. Raises SecretError."""
        pause = FIRST_PAUSE
        last = ProviderUnavailable(
            f"The provider {self._provider} did not answer within {seconds:g} s.",
            "Check that the server can reach it.",
        )
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await self._read(name)
                    except ProviderUnavailable as error:
                        last = error
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - not a secret
                    pause = min(2 * pause, LONGEST_PAUSE)
        except TimeoutError:
            raise last from None

    async def _read(self, name: str) -> str:
        """Raises SecretError. A read whose caller is cancelled keeps its turn until it ends: threads can't pile up."""
        await self._turns.acquire()
        try:
            reading = in_thread(partial(self._read_now, name), THREAD)
        except RuntimeError:
            self._turns.release()
            raise ProviderUnavailable(
                "The server can't start another thread.", "Check its limit of processes."
            ) from None
        self._reads += 1
        reading.add_done_callback(self._end_read)
        found = await asyncio.shield(reading)
        if isinstance(found, SecretError):
            raise found
        return found

    def _read_now(self, name: str) -> str | SecretError:
        try:
            with self._making:
                if self._manager is None:
                    self._manager = self._connect()
            return self._manager.read(name)
        except SecretError as error:
            return error
        except DatabaseUnavailable:
            return ProviderUnavailable("The database does not answer, so this server can't make its first signing key.")
        except Exception as error:  # noqa: BLE001 - a client may raise anything, and its text may quote a value
            logger.event("secrets.client_failed", provider=self._provider, error=type(error).__name__)
            return SecretError(f"The client of the provider {self._provider} failed ({type(error).__name__}).")

    def _end_read(self, _: object) -> None:
        self._reads -= 1
        self._turns.release()
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._retired and not self._reads and self._manager is not None:
            in_thread(self._manager.close, THREAD)
            self._manager = None


def connector(key_ring: KeyRing, providers: Providers, subject: Subject) -> Connect:
    """Returns the function that returns the manager of a credential."""

    def connect(credential: CredentialRow) -> Manager:
        provider = providers(credential.provider)
        try:
            model = provider.methods[credential.method]
            configuration = model.model_validate(open_configuration(key_ring, credential))
        except (UnknownKey, Damaged, KeyError, ValidationError):  # its text has the values
            raise BadCredential(
                "Its stored configuration can't be used.",
                f"Enter it again: windlass credentials change {credential.name}",
            ) from None
        return provider.connect(configuration, subject)

    return connect
