"""Short-lived credentials of a provider, which several threads use and one renews."""

# See docs/decisions/secrets.md#threads-share-the-request-for-a-token

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

from windlass.secrets.provider import CredentialRefused, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.secrets.provider import SecretError

Value = TypeVar("Value")
Result = TypeVar("Result")

EARLY = 300.0
"""Seconds before its end that a credential is renewed; a fifth of its life if that is less."""
LONGEST_WAIT = 25.0


class Renewed(Generic[Value]):
    """Holds what `make` returned with its life in seconds, until that is nearly over.

    Threads that need it at the same time share one call of `make`, also when it fails: a provider that does not answer
    is asked once.
    """

    def __init__(
        self,
        make: Callable[[], tuple[Value, float]],
        refusals: tuple[type[SecretError], ...] = (CredentialRefused,),
    ) -> None:
        """`refusals` are the errors by which the provider refuses a value that has ended early."""
        self._make = make
        self._refusals = refusals
        self._lock = threading.Lock()
        self._current: Future[Value] | None = None
        self._until = 0.0

    @property
    def current(self) -> Value | None:
        """The value that was made last, None before."""
        with self._lock:
            made = self._current
            return made.result() if made and made.done() else None

    def use(self, call: Callable[[Value], Result]) -> Result:
        """Calls with a current value, and once more with a new one if the provider refuses it before its end."""
        value, fresh = self.get()
        try:
            return call(value)
        except self._refusals:
            if fresh or math.isinf(self._until):
                raise
        self._drop(value)
        return call(self.get()[0])

    def get(self) -> tuple[Value, bool]:
        """Returns the value, and whether this call has made it."""
        with self._lock:
            current = self._current
            usable = current is not None and (not current.done() or time.monotonic() < self._until)
            if not usable or current is None:
                current = self._current = Future()
        if usable:
            return self._of_another_thread(current), False
        try:
            value, life = self._make()
        except BaseException as error:
            with self._lock:
                self._current = None
            current.set_exception(error)
            raise
        with self._lock:
            self._until = time.monotonic() + life - min(EARLY, life / 5)
            current.set_result(value)
        return value, True

    @staticmethod
    def _of_another_thread(current: Future[Value]) -> Value:
        try:
            return current.result(LONGEST_WAIT)
        except TimeoutError:
            raise ProviderUnavailable("The provider does not answer the request for a token.", "") from None

    def _drop(self, value: Value) -> None:
        with self._lock:
            if self._current and self._current.done() and self._current.result() is value:
                self._current = None
