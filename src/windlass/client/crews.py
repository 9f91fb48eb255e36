from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from windlass.client import talks
from windlass.client.lines import AsyncLine, Line, address, known_token
from windlass.client.requests import Kickoff, bodies, body, seconds
from windlass.client.talks import Patience

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    import httpx

    from windlass.client.errors import Refused
    from windlass.client.requests import Item
    from windlass.client.results import Inputs, Result, Status, Stopped

PATIENCE = 60.0


class _AnyCrew:
    def __init__(self, base_url: str, patience: float | timedelta) -> None:
        self.base_url = base_url
        self.patience = seconds("patience", patience)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"

    @property
    def _patience(self) -> Patience:
        return Patience(self.patience)


class Crew(_AnyCrew):
    """One crew at its base URL. Use it in a `with` block, or close it.

    Without a token, the variable WINDLASS_TOKEN has it. A server that is away, or says that it has no room for now, is
    asked again for `patience` seconds in a row; 0 asks once. Every method raises a CrewError (errors.py).
    """

    def __init__(
        self,
        base_url: str,
        token: str | None = None,
        *,
        patience: float | timedelta = PATIENCE,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(address(base_url), patience)
        self._line = Line(self.base_url, known_token(token), transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._line.close()

    def inputs(self) -> Inputs:
        return self._line.converse(talks.inputs(self._patience))

    def kickoff(
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> str:
        """Its id. It can't start twice, however often it had to be sent: without a key, one is made. `members` are
        the others of the request (docs/api.md): `priority`, `run_at`, `timeout`, `concurrency_key` and so on.
        """
        content = body(Kickoff(inputs, meta, idempotency_key, members))
        return self._line.converse(talks.kickoff(content, self._patience))

    def kickoff_many(self, items: Iterable[Item], *, idempotency_key: str | None = None) -> list[str | Refused]:
        """For each item, inputs or a Kickoff, the id or why it was refused; one that is refused spoils no other. With
        a key, the same list gives the same kickoffs when it is sent again.
        """
        return self._line.converse(talks.kickoff_many(bodies(items, idempotency_key), self._patience))

    def status(self, kickoff_id: str, wait: float | timedelta | None = None) -> Status:
        """How it stands when it has ended, or after `wait` seconds, 60 at most."""
        return self._line.converse(talks.status(kickoff_id, seconds("wait", wait or 0.0), self._patience))

    def wait(self, kickoff_id: str, timeout: float | timedelta | None = None) -> Status:
        """Until it has ended, well or badly. Raises StillRunning after `timeout` seconds, Unreachable where the server
        said nothing in them.
        """
        return self._line.converse(talks.wait(kickoff_id, _limit(timeout), self._patience))

    def stop(self, kickoff_id: str) -> Stopped:
        return self._line.converse(talks.stop(kickoff_id, self._patience))

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> Result:
        """Kicks off and waits for the result. Raises KickoffFailed when there is none. Takes what `kickoff` takes."""
        content = body(Kickoff(inputs, meta, idempotency_key, members))
        return self._line.converse(talks.run(content, self._patience))


class AsyncCrew(_AnyCrew):
    """As Crew, for asyncio. Use it in an `async with` block, or close it."""

    def __init__(
        self,
        base_url: str,
        token: str | None = None,
        *,
        patience: float | timedelta = PATIENCE,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(address(base_url), patience)
        self._line = AsyncLine(self.base_url, known_token(token), transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._line.close()

    async def inputs(self) -> Inputs:
        return await self._line.converse(talks.inputs(self._patience))

    async def kickoff(
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> str:
        content = body(Kickoff(inputs, meta, idempotency_key, members))
        return await self._line.converse(talks.kickoff(content, self._patience))

    async def kickoff_many(self, items: Iterable[Item], *, idempotency_key: str | None = None) -> list[str | Refused]:
        return await self._line.converse(talks.kickoff_many(bodies(items, idempotency_key), self._patience))

    async def status(self, kickoff_id: str, wait: float | timedelta | None = None) -> Status:
        return await self._line.converse(talks.status(kickoff_id, seconds("wait", wait or 0.0), self._patience))

    async def wait(
        self,
        kickoff_id: str,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - seconds of the talk
    ) -> Status:
        return await self._line.converse(talks.wait(kickoff_id, _limit(timeout), self._patience))

    async def stop(self, kickoff_id: str) -> Stopped:
        return await self._line.converse(talks.stop(kickoff_id, self._patience))

    async def run(
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> Result:
        content = body(Kickoff(inputs, meta, idempotency_key, members))
        return await self._line.converse(talks.run(content, self._patience))


def _limit(timeout: float | timedelta | None) -> float | None:
    return None if timeout is None else seconds("timeout", timeout)
