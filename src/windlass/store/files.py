"""Stores the files of kickoffs, in chunks. Only this module knows where content is stored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass.kickoffs.files import StoredFile
from windlass.store.database import Store, queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.kickoffs.files import FileChanges
    from windlass.store.database import Connection, Database

SQL = queries("files")
READS_AT_ONCE = 3
"""Chunks that are read at once, so that downloads leave connections of the pool to others."""


class FileStore(Store):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def append(self, kickoff: UUID, attempt: int, content: UUID, position: int, chunk: bytes) -> bool:
        """Stores a chunk of a content that no file has yet.

        Returns False, and stores nothing, when the kickoff has gone on to another attempt or has ended.
        """
        values = {"kickoff": kickoff, "attempt": attempt, "content": content, "position": position, "bytes": chunk}
        return bool(await self._database.rows(SQL["append"], values))

    async def resume(self, kickoff: UUID, attempt: int) -> list[StoredFile]:
        """Returns the files that earlier attempts have stored, and removes chunks that belong to no file."""
        rows = await self._database.rows(SQL["resume"], {"kickoff": kickoff, "attempt": attempt})
        return [StoredFile(**row) for row in rows]

    async def drop_contents(self, kickoff: UUID, contents: Sequence[UUID]) -> None:
        await self._database.execute(SQL["drop_contents"], {"kickoff": kickoff, "contents": list(contents)})

    async def of(self, kickoff: UUID) -> list[StoredFile]:
        return [StoredFile(**row) for row in await self._database.rows(SQL["list"], {"kickoff": kickoff}, soon=True)]

    async def find(self, kickoff: UUID, path: str) -> StoredFile | None:
        row = await self._database.row(SQL["find"], {"kickoff": kickoff, "path": path}, soon=True)
        return StoredFile(**row) if row else None

    async def chunk(self, kickoff: UUID, content: UUID, position: int) -> bytes | None:
        """Returns None when the file was changed or deleted meanwhile."""
        values = {"kickoff": kickoff, "content": content, "position": position}
        async with self._reads, self._database.connection(soon=True) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(SQL["chunk"], values)
            row = await cursor.fetchone()
        return bytes(row["bytes"]) if row else None


async def apply(connection: Connection, kickoff: UUID, changes: FileChanges) -> None:
    """Lists the changed files, and removes those that are gone, in the transaction of the caller."""
    values = {
        "kickoff": kickoff,
        "count": changes.count,
        "paths": [file.path for file in changes.put],
        "sizes": [file.size for file in changes.put],
        "digests": [file.sha256 for file in changes.put],
        "media_types": [file.media_type for file in changes.put],
        "contents": [file.content for file in changes.put],
        "gone": list(changes.gone),
        "unused": list(changes.unused),
    }
    await connection.execute(SQL["apply"], values)
