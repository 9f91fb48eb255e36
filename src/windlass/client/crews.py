"""Crew and AsyncCrew: the methods for calling one crew."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from windlass.client import protocol, requests
from windlass.client.downloads import chosen, downloads
from windlass.client.errors import CrewError
from windlass.client.event_stream import EventFollower, followed
from windlass.client.protocol import Patience
from windlass.client.requests import Kickoff, bodies, body, seconds
from windlass.client.transport import AsyncTransport, Transport, address, known_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
    from datetime import datetime, timedelta
    from os import PathLike

    import httpx

    from windlass.client.errors import Refused
    from windlass.client.requests import Item
    from windlass.client.results import Event, File, Inputs, Result, Resumed, Status, Stopped

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
    """A client of one crew at its base URL. Use it in a `with` block, or close it.

    If `token` is not given, the client uses the environment variable WINDLASS_TOKEN. If the server can't be reached, or
    has temporarily no room, the client repeats the request for `patience` seconds; 0 sends each request once. Every
    method raises a CrewError (errors.py).
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
        self._transport = Transport(self.base_url, known_token(token), transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def inputs(self) -> Inputs:
        return self._transport.perform(protocol.inputs(self._patience))

    def kickoff(
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> str:
        """Starts a kickoff and returns its id.

        The kickoff can't start twice, even if the request is repeated: without `idempotency_key`, the client makes one.
        `members` are the other members of the request (docs/reference/api.md): `priority`, `run_at`, `timeout`,
        `concurrency_key` and so on.
        """
        content = body(Kickoff(inputs, meta, idempotency_key, members))
        return self._transport.perform(protocol.kickoff(content, self._patience))

    def kickoff_many(self, items: Iterable[Item], *, idempotency_key: str | None = None) -> list[str | Refused]:
        """Starts a kickoff for each item, and returns its id or the error for each. An item is its inputs or a Kickoff.

        A refused item does not affect the others. With a key, the same list returns the same kickoffs when it is sent
        again.
        """
        return self._transport.perform(protocol.kickoff_many(bodies(items, idempotency_key), self._patience))

    def status(self, kickoff_id: str, wait: float | timedelta | None = None) -> Status:
        """Returns the status when the kickoff has ended, or after `wait` seconds, 60 at most."""
        return self._transport.perform(protocol.status(kickoff_id, seconds("wait", wait or 0.0), self._patience))

    def events(self, kickoff_id: str, after: int = 0) -> Iterator[Event]:
        """Yields the events of the kickoff after the number `after`, as they happen, until it has ended.

        If the connection is lost, it goes on after the last event.
        """
        follower = EventFollower(kickoff_id, after, self._patience)
        yield from followed(self._transport, follower, lambda seconds, _: time.sleep(seconds))

    def wait(self, kickoff_id: str, timeout: float | timedelta | None = None) -> Status:
        """Waits until the kickoff has ended, and returns its status. Raises StillRunning after `timeout` seconds, or
        Unreachable if the server did not answer in that time.
        """
        return self._transport.perform(protocol.wait(kickoff_id, _limit(timeout), self._patience))

    def files(self, kickoff_id: str) -> list[File]:
        """Returns the files that the run wrote, by path."""
        return self._transport.perform(protocol.files(kickoff_id, self._patience))

    def download(
        self, kickoff_id: str, folder: str | PathLike[str], paths: Iterable[str] | None = None, *, force: bool = False
    ) -> list[Path]:
        """Downloads the files that the run wrote into the folder, or those with these paths, and returns where they
        are. Checks their digests. Raises CrewError for a file that exists, unless `force` is true, and for a path that
        would lead out of the folder.
        """
        found = []
        for file, download in downloads(chosen(self.files(kickoff_id), paths), Path(folder), force=force):
            with download:
                self._transport.perform(protocol.content(kickoff_id, file, download.write, self._patience))
            found.append(download.path)
        return found

    def resume(
        self,
        kickoff_id: str,
        task_id: str | None = None,
        *,
        approve: bool | None = None,
        feedback: str | None = None,
        idempotency_key: str | None = None,
    ) -> Resumed:
        """Answers the question of a kickoff: the one that waits, or with `task_id` that of this id or task.

        `approve` accepts the draft. `feedback` without it has the task run again. A choice of a flow needs only
        `feedback`. Raises Conflict if somebody has answered before, and InvalidRequest if nothing waits.
        """
        exchange = protocol.resume(kickoff_id, task_id, approve, feedback, idempotency_key, self._patience)
        return self._transport.perform(exchange)

    def stop(self, kickoff_id: str) -> Stopped:
        return self._transport.perform(protocol.stop(kickoff_id, self._patience))

    def stop_all(self, *, state: str | None = None, user: str | None = None, before: datetime | None = None) -> int:
        """Stops the open kickoffs that match and that the token may stop, and returns their number. Without a filter,
        all match. `state` is PENDING, STARTED or PENDING_HUMAN_INPUT. `user` is the name of a user.
        """
        return self._transport.perform(protocol.stop_all(requests.stop_all(state, user, before), self._patience))

    def delete(self, kickoff_id: str, *, stop: bool = False) -> None:
        """Deletes the kickoff permanently, with all its data. The token needs the scope `admin`. Raises Conflict for a
        kickoff that has not ended, unless `stop` is true.
        """
        self._transport.perform(protocol.delete(kickoff_id, stop, self._patience))

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> Result:
        """Starts a kickoff and returns its result. Raises KickoffFailed if it fails. The arguments are as for
        `kickoff`.
        """
        content = body(Kickoff(inputs, meta, idempotency_key, members))
        return self._transport.perform(protocol.run(content, self._patience))


class AsyncCrew(_AnyCrew):
    """Does the same as Crew, for asyncio. Use it in an `async with` block, or close it."""

    def __init__(
        self,
        base_url: str,
        token: str | None = None,
        *,
        patience: float | timedelta = PATIENCE,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(address(base_url), patience)
        self._transport = AsyncTransport(self.base_url, known_token(token), transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def inputs(self) -> Inputs:
        return await self._transport.perform(protocol.inputs(self._patience))

    async def kickoff(
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> str:
        content = body(Kickoff(inputs, meta, idempotency_key, members))
        return await self._transport.perform(protocol.kickoff(content, self._patience))

    async def kickoff_many(self, items: Iterable[Item], *, idempotency_key: str | None = None) -> list[str | Refused]:
        return await self._transport.perform(protocol.kickoff_many(bodies(items, idempotency_key), self._patience))

    async def status(self, kickoff_id: str, wait: float | timedelta | None = None) -> Status:
        return await self._transport.perform(protocol.status(kickoff_id, seconds("wait", wait or 0.0), self._patience))

    async def events(self, kickoff_id: str, after: int = 0) -> AsyncIterator[Event]:
        follower = EventFollower(kickoff_id, after, self._patience)
        while not follower.has_ended():
            try:
                async with self._transport.lines(follower.request()) as lines:
                    if lines is None:
                        return
                    async for line in lines:
                        if (event := follower.feed(line)) is not None:
                            yield event
                        if follower.has_ended():
                            return
                follower.check_ended(self.base_url)
            except CrewError as error:
                await asyncio.sleep(follower.pause(error))

    async def wait(
        self,
        kickoff_id: str,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - it applies to the whole exchange
    ) -> Status:
        return await self._transport.perform(protocol.wait(kickoff_id, _limit(timeout), self._patience))

    async def files(self, kickoff_id: str) -> list[File]:
        return await self._transport.perform(protocol.files(kickoff_id, self._patience))

    async def download(
        self, kickoff_id: str, folder: str | PathLike[str], paths: Iterable[str] | None = None, *, force: bool = False
    ) -> list[Path]:
        found = []
        for file, download in downloads(chosen(await self.files(kickoff_id), paths), Path(folder), force=force):
            with download:
                await self._transport.perform(protocol.content(kickoff_id, file, download.write, self._patience))
            found.append(download.path)
        return found

    async def resume(
        self,
        kickoff_id: str,
        task_id: str | None = None,
        *,
        approve: bool | None = None,
        feedback: str | None = None,
        idempotency_key: str | None = None,
    ) -> Resumed:
        exchange = protocol.resume(kickoff_id, task_id, approve, feedback, idempotency_key, self._patience)
        return await self._transport.perform(exchange)

    async def stop(self, kickoff_id: str) -> Stopped:
        return await self._transport.perform(protocol.stop(kickoff_id, self._patience))

    async def stop_all(
        self, *, state: str | None = None, user: str | None = None, before: datetime | None = None
    ) -> int:
        return await self._transport.perform(protocol.stop_all(requests.stop_all(state, user, before), self._patience))

    async def delete(self, kickoff_id: str, *, stop: bool = False) -> None:
        await self._transport.perform(protocol.delete(kickoff_id, stop, self._patience))

    async def run(
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> Result:
        content = body(Kickoff(inputs, meta, idempotency_key, members))
        return await self._transport.perform(protocol.run(content, self._patience))


def _limit(timeout: float | timedelta | None) -> float | None:
    return None if timeout is None else seconds("timeout", timeout)
