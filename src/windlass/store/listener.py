from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from windlass import log
from windlass.store.cancelling import cancelled
from windlass.store.database import KEEPALIVES

if TYPE_CHECKING:
    from collections.abc import Callable

KICKOFFS, ENDED, STOPS = "windlass_kickoffs", "windlass_ended", "windlass_stops"
DEPLOYMENTS, TOKENS = "windlass_deployments", "windlass_tokens"
CHANNELS = (KICKOFFS, ENDED, STOPS, DEPLOYMENTS, TOKENS)
BETWEEN_ATTEMPTS = 0.25

logger = log.logger(__name__)


class Listener:
    """Hears PostgreSQL's NOTIFYs on a connection of its own, and connects again for ever when that ends.

    While it is away nothing is heard, so whoever caches must not: `on_gap` callbacks run when the connection is lost
    and again when there is a new one, `hearing` tells at any time.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._heard: dict[str, list[Callable[[str], None]]] = {channel: [] for channel in CHANNELS}
        self._gaps: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._was_away = False
        self.hearing = asyncio.Event()

    def on(self, channel: str, heard: Callable[[str], None]) -> None:
        self._heard[channel].append(heard)

    def on_gap(self, gap: Callable[[], None]) -> None:
        self._gaps.append(gap)

    async def start(self) -> None:
        self._task = self._task or asyncio.create_task(self._stay_connected(), name="listener")

    async def stop(self) -> None:
        if self._task:
            await cancelled(self._task)
            self._task = None
            self.hearing.clear()

    async def _stay_connected(self) -> None:
        while True:
            try:
                await self._listen()
            except psycopg.Error as error:
                self._lose(" ".join(str(error).split()))
            except Exception as error:  # noqa: BLE001 - one turn of a loop: whoever listens may fail, hearing goes on
                logger.event("worker.loop_failed", loop="listener", exc=error)
                self._lose(type(error).__name__)
            await asyncio.sleep(BETWEEN_ATTEMPTS)

    async def _listen(self) -> None:
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo(self._url, connect_timeout=3, application_name="windlass listener", **KEEPALIVES),
            autocommit=True,
        )
        async with connection:
            for channel in CHANNELS:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
            self._gain()
            async for notice in connection.notifies():
                for heard in self._heard.get(notice.channel, ()):
                    heard(notice.payload)

    def _gain(self) -> None:
        if self._was_away:
            logger.event("database.back")
        self._was_away = False
        self.hearing.set()
        self._tell_gap()

    def _lose(self, why: str) -> None:
        if not self._was_away:
            logger.event("database.away", error=why)
        self._was_away = True
        if self.hearing.is_set():
            self.hearing.clear()
            self._tell_gap()

    def _tell_gap(self) -> None:
        for gap in self._gaps:
            gap()
