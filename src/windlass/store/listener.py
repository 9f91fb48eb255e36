from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from windlass import log
from windlass.aio import cancelled
from windlass.store.barrier import BARRIERS, LISTENER, NOTIFY, PASSED
from windlass.store.database import KEEPALIVES, prepare_session

KICKOFFS, ENDED, STOPS, ANSWERS = "windlass_kickoffs", "windlass_ended", "windlass_stops", "windlass_answers"
DEPLOYMENTS, TOKENS, BUILDS = "windlass_deployments", "windlass_tokens", "windlass_builds"
SIGNING_KEYS, MASTER_KEYS, EVENTS = "windlass_signing_keys", "windlass_master_keys", "windlass_events"
CHANNELS = (KICKOFFS, ENDED, STOPS, ANSWERS, DEPLOYMENTS, TOKENS, BUILDS, SIGNING_KEYS, MASTER_KEYS, EVENTS, BARRIERS)
BETWEEN_ATTEMPTS = 0.25
MOST_KNOWN = 10_000
"""The most rows in one cache."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

logger = log.logger(__name__)


class Listener:
    """Receives PostgreSQL's notifications on its own connection, and reconnects for ever when the connection is lost.

    Without a connection, notifications are missed, so caches must not be used. The callbacks of `on_gap` run when the
    connection is lost and again when there is a new one. The event `listening` is set while there is a connection.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._callbacks: dict[str, list[Callable[[str], None]]] = {channel: [] for channel in CHANNELS}
        self._gaps: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._was_unavailable = False
        self.listening = asyncio.Event()

    def on(self, channel: str, callback: Callable[[str], None]) -> None:
        self._callbacks[channel].append(callback)

    def on_gap(self, gap: Callable[[], None]) -> None:
        self._gaps.append(gap)

    async def start(self) -> None:
        self._task = self._task or asyncio.create_task(self._stay_connected(), name="listener")

    async def stop(self) -> None:
        if self._task:
            await cancelled(self._task)
            self._task = None
            self.listening.clear()

    async def _stay_connected(self) -> None:
        while True:
            try:
                await self._listen()
            except psycopg.Error as error:
                self._lose(" ".join(str(error).split()))
            except Exception as error:  # noqa: BLE001 - a callback may fail; the loop goes on
                logger.event("worker.loop_failed", loop="listener", exc=error)
                self._lose(type(error).__name__)
            await asyncio.sleep(BETWEEN_ATTEMPTS)

    async def _listen(self) -> None:
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo(self._url, connect_timeout=3, application_name="windlass", **KEEPALIVES),
            autocommit=True,
        )
        async with connection:
            await prepare_session(connection)
            for channel in CHANNELS:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
            await connection.execute("SELECT set_config('application_name', %s, false)", [LISTENER])
            self._gain()
            while True:
                barriers = []
                async for notice in connection.notifies(stop_after=1):  # and those that arrived with it
                    for callback in self._callbacks[notice.channel]:
                        callback(notice.payload)
                    if notice.channel == BARRIERS:
                        barriers.append(notice.payload)
                for barrier in barriers:
                    await connection.execute(NOTIFY, [PASSED, barrier])

    def _gain(self) -> None:
        if self._was_unavailable:
            logger.event("database.back")
        self._was_unavailable = False
        self.listening.set()
        self._report_gap()

    def _lose(self, why: str) -> None:
        if not self._was_unavailable:
            logger.event("database.away", error=why)
        self._was_unavailable = True
        if self.listening.is_set():
            self.listening.clear()
            self._report_gap()

    def _report_gap(self) -> None:
        for gap in self._gaps:
            gap()


class NotifyCache(Generic[Key, Value]):
    """Caches rows that every request needs.

    PostgreSQL notifies of each change on `channel`. One notification empties the whole cache. Nothing is cached while
    the listener is disconnected. Missing rows are not cached.
    """

    def __init__(self, look_up: Callable[[Key], Awaitable[Value | None]], listener: Listener, channel: str) -> None:
        self._look_up = look_up
        self._listener = listener
        self._kept: dict[Key, Value] = {}
        self._changes = 0
        listener.on(channel, lambda _: self._forget())
        listener.on_gap(self._forget)

    def kept(self, key: Key) -> Value | None:
        """Returns the cached value, without a query."""
        return self._kept.get(key)

    async def get(self, key: Key) -> Value | None:
        kept = self._kept.get(key)
        return kept if kept is not None else await self._get(key)

    async def _get(self, key: Key) -> Value | None:
        changes = self._changes
        found = await self._look_up(key)
        # A change that was notified during the query may be newer than the row.
        if found is not None and changes == self._changes and self._listener.listening.is_set():
            if len(self._kept) >= MOST_KNOWN:
                self._kept.clear()
            self._kept[key] = found
        return found

    def _forget(self) -> None:
        self._changes += 1
        self._kept.clear()
