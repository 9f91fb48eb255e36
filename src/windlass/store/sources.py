"""Stores snapshots of projects' files, in chunks. A source is visible when all of its chunks are stored."""

# See docs/decisions/deployments.md#the-last-of-several-additions-of-a-source-counts

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.kickoffs.ids import new_id
from windlass.store.database import Store, queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


SQL = queries("sources")
CHUNK = 1 << 20
UNUSED_AFTER = timedelta(days=1)


class Snapshot(Protocol):
    """What is stored of a snapshot (windlass.projects.snapshot)."""

    @property
    def file(self) -> Path: ...
    @property
    def digest(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def files(self) -> int: ...


class NoSuchSource(WindlassError):  # noqa: N818 - describes the source
    pass


class SourceStore(Store):
    async def has(self, digest: str) -> bool:
        """Returns whether the source is stored and undamaged. If so, it is kept for another day."""
        return bool(await self._database.rows(SQL["has"], {"digest": digest}))

    async def add(self, snapshot: Snapshot) -> None:
        """Stores the snapshot, unless it is stored. May be repeated, and called by several servers at once."""
        if await self.has(snapshot.digest):
            return
        content = new_id()
        try:
            await self._append_all(content, snapshot.file)
        except BaseException:
            with suppress(DatabaseUnavailable):  # then `remove_unused` removes them
                await self._database.execute(SQL["drop_content"], {"content": content})
            raise
        values = {"digest": snapshot.digest, "content": content, "size": snapshot.size, "files": snapshot.files}
        await self._database.execute(SQL["add"], values)

    async def read(self, digest: str) -> AsyncIterator[bytes]:
        """Yields the zip of the source. Raises NoSuchSource when it is not stored, or is damaged."""
        found = await self._database.row(SQL["find"], {"digest": digest})
        if found is None:
            raise NoSuchSource(f"The source {digest} is not stored.", "Deploy the project again.")
        left = found["size"]
        for position in range(-(-left // CHUNK)):
            chunk = await self._chunk(found["content"], position)
            if len(chunk) != min(left, CHUNK):
                raise NoSuchSource(
                    f"The source {digest} is damaged in the database, in part {position + 1}.",
                    "Deploy the same files again, which stores them again.",
                )
            left -= len(chunk)
            yield chunk

    async def remove_unused(self, *, after: timedelta = UNUSED_AFTER) -> int:
        """Removes the sources that no version and no open build has, and the chunks of interrupted uploads.

        Keeps what was added or asked for within the time `after`. Returns the number of sources.
        """
        before = datetime.now(UTC) - after
        removed = await self._database.rows(SQL["remove_unused"], {"before": before})
        oldest = UUID(int=int(before.timestamp() * 1000) << 80)
        while row := await self._database.row(SQL["unlisted_content"], {"before": oldest}):
            await self._database.execute(SQL["drop_content"], {"content": row["content"]})
        return len(removed)

    async def _append_all(self, content: UUID, file: Path) -> None:
        with await asyncio.to_thread(file.open, "rb") as opened:
            position = 0
            while chunk := await asyncio.to_thread(opened.read, CHUNK):
                values = {"content": content, "position": position, "sha256": sha256(chunk).digest(), "bytes": chunk}
                await self._database.rows(SQL["append"], values)
                position += 1

    async def _chunk(self, content: UUID, position: int) -> bytes:
        """Returns nothing for a chunk that is missing or damaged."""
        async with self._database.connection() as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(SQL["chunk"], {"content": content, "position": position})
            row = await cursor.fetchone()
        return bytes(row["bytes"]) if row and sha256(row["bytes"]).digest() == row["sha256"] else b""
