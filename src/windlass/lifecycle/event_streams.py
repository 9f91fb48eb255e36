"""Streams the events of kickoffs from the database: those that are stored, then each new one."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass.batching import Batcher
from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.lifecycle.background_tasks import BackgroundTasks
from windlass.lifecycle.notices import Notices
from windlass.store.listener import ENDED, EVENTS
from windlass.store.reading import KickoffReads, NextEvents, WantedEvents

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
    from uuid import UUID

    from windlass.store.listener import Listener

LANES = 2
MOST_TOGETHER = 32
"""Kickoffs whose next events one statement reads. Each has at most STREAMED_BYTES (store/reading.py)."""
KEPT = timedelta(seconds=30)
NOTED_EVERY = 10.0
"""Seconds between two writes that keep this server's streams noted in the database."""
FIRST_LOOK = 0.3
"""Seconds after which a new stream looks again. A write that had begun before the stream was noted notifies nobody."""
HEARTBEAT = 15.0
"""Seconds without an event after which the stream yields None, and looks again."""
WITHOUT_DATABASE = 0.5
"""Seconds between two tries to read while the database is unavailable."""


class TooManyStreams(WindlassError):  # noqa: N818 - describes the streams
    pass


class Shares:
    """Divides `most` places for requests that stay open among deployments.

    A deployment may have half of the places that the others leave. So the clients of one take at most half of all,
    and there is always a place for another one. `what` names the requests in errors.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._taken: Counter[UUID] = Counter()

    def check(self, deployment: UUID) -> None:
        """Raises TooManyStreams."""
        own = self._taken[deployment]
        free = self._most - (self._taken.total() - own)
        if own >= max(1, free // 2) or free < 1:
            raise TooManyStreams(
                f"The clients of this crew have {own} {self._what} on this server, which is its share.",
                "Try again later, close some, or ask without waiting.",
            )

    @contextmanager
    def taken(self, deployment: UUID) -> Iterator[None]:
        """Takes a place. Raises TooManyStreams."""
        self.check(deployment)
        self._taken[deployment] += 1
        try:
            yield
        finally:
            self._taken = _less(self._taken, deployment)


class EventStreams:
    """Streams events to many readers. All streams of one kickoff that are at the same event share one read.

    A stream holds one page of events at most: it reads on when its reader has taken the page. `most` is how many
    streams there may be at once, which deployments share, and `most_of_user` how many of them one user may have.
    """

    def __init__(self, store: KickoffReads, listener: Listener, *, most: int, most_of_user: int) -> None:
        self._store = store
        self._most = most
        self._shares = Shares(most, "streams of events")
        self._most_of_user = most_of_user
        self._of_users: Counter[UUID] = Counter()
        self._batches: Batcher[WantedEvents, NextEvents] = Batcher(
            self._look_up, fatal=DatabaseUnavailable, largest=MOST_TOGETHER * 8, lanes=LANES
        )
        self._streams: Counter[UUID] = Counter()
        self._notices = Notices(listener, EVENTS, ENDED)
        self._noting = BackgroundTasks(self._keep_noted)
        self._stopping = False

    def __len__(self) -> int:
        return self._streams.total()

    async def start(self) -> None:
        self._stopping = False
        await self._noting.start()

    async def stop(self) -> None:
        """Ends all streams without their last events. Clients go on at another server, or after the start."""
        self._stopping = True
        self._notices.resolve_all()
        await self._noting.stop()

    async def open(
        self, kickoff: UUID, deployment: UUID, after: int, asker: UUID | None, valid: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[NextEvents | None]:
        """Returns a stream of the events of a kickoff of the deployment. Raises TooManyStreams.

        It yields the events after the number `after` in pages, and None when nothing happened for HEARTBEAT seconds.

        The last page `is_last`: the kickoff has ended, and its events are all yielded. Without such a page, the server
        stops or `valid` is false: the reader may no longer read. `asker` is the user who may see the events, None for
        the organization.
        """
        self._check_room(asker)
        pages = self._pages(kickoff, deployment, after, asker, valid)
        await anext(pages)  # it counts itself
        return pages

    async def _pages(
        self, kickoff: UUID, deployment: UUID, after: int, asker: UUID | None, valid: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[NextEvents | None]:
        with self._shares.taken(deployment), self._counted(kickoff, asker):
            yield None
            await self._note([kickoff])
            wait = FIRST_LOOK
            while not self._stopping:
                with self._notices.of(kickoff) as notice:
                    page = await self._next(WantedEvents(kickoff, after, asker is None), valid)
                    if page is None:
                        return
                    if page.events or page.is_last:
                        yield page
                        if page.is_last:
                            return
                        after, wait = page.events[-1].seq, HEARTBEAT
                        continue
                    notified, _ = await asyncio.wait({notice}, timeout=wait)
                if not notified and wait == HEARTBEAT:
                    yield None
                wait = HEARTBEAT

    def _check_room(self, asker: UUID | None) -> None:
        if len(self) >= self._most:
            raise TooManyStreams(
                f"This server streams the events of {len(self)} kickoffs, which is the most.",
                "Try again later, or read the events in pages.",
            )
        if asker is not None and self._of_users[asker] >= self._most_of_user:
            raise TooManyStreams(
                f"This user has {self._most_of_user} streams of events, which is the most.",
                "Close some, or read the events in pages.",
            )

    async def _next(self, wanted: WantedEvents, valid: Callable[[], Awaitable[bool]]) -> NextEvents | None:
        """Returns None when the reader may no longer read, or the server stops."""
        while not self._stopping:
            try:
                return await self._batches.ask(wanted) if await valid() else None
            except DatabaseUnavailable:
                await asyncio.sleep(WITHOUT_DATABASE)
        return None

    async def _look_up(self, wanted: list[WantedEvents]) -> Sequence[NextEvents]:
        distinct = list(dict.fromkeys(wanted))
        found: dict[WantedEvents, NextEvents] = {}
        for start in range(0, len(distinct), MOST_TOGETHER):
            part = distinct[start : start + MOST_TOGETHER]
            found |= zip(part, await self._store.events_of_many(part), strict=True)
        return [found[one] for one in wanted]

    @contextmanager
    def _counted(self, kickoff: UUID, asker: UUID | None) -> Iterator[None]:
        self._streams[kickoff] += 1
        if asker is not None:
            self._of_users[asker] += 1
        try:
            yield
        finally:
            self._streams = _less(self._streams, kickoff)
            if asker is not None:
                self._of_users = _less(self._of_users, asker)

    async def _note(self, kickoffs: Sequence[UUID]) -> None:
        with suppress(DatabaseUnavailable):  # the stream then looks for new events at times
            await self._store.note_streamed(kickoffs, KEPT)

    async def _keep_noted(self) -> None:
        await asyncio.sleep(NOTED_EVERY)
        if self._streams:
            await self._note(list(self._streams))


def _less(counts: Counter[UUID], key: UUID) -> Counter[UUID]:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
    return counts
