"""Stores the files of projects that are deployed: uploads of clients, and commits of git repositories."""

# See docs/decisions/deployments.md#a-source-is-identified-by-its-files

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from windlass.aio import abortable, shielded
from windlass.errors import ProjectError
from windlass.projects.archive import LARGEST, MB
from windlass.projects.git import fetch
from windlass.projects.snapshot import accept, explaining_full_disk
from windlass.projects.uv import Abort
from windlass.projects.virtual_environments import alone
from windlass.removal import removed

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
    from contextlib import AbstractContextManager

    from windlass.projects.git import Fetched
    from windlass.projects.snapshot import Snapshot
    from windlass.projects.uv import Builder
    from windlass.store.sources import SourceStore

Answer = TypeVar("Answer")

AT_ONCE = 2
"""Uploads that a process reads and packs at once. Each takes seconds of a processor, and 200 MB of the disk."""
LEFT_AFTER = 86_400.0
"""Seconds after which the folder of an upload was left by a process that was killed."""
PIECE = 1 << 20


class Sources:
    """Takes in files of projects, in temporary folders below `folder`.

    `builder` provides the user that git runs as, and `allow_private` is the setting WINDLASS_GIT_ALLOW_PRIVATE.
    """

    def __init__(
        self,
        store: SourceStore,
        folder: Path,
        builder: Callable[[], AbstractContextManager[Builder]],
        *,
        allow_private: bool = False,
    ) -> None:
        self._store = store
        self._folder = folder
        self._builder = builder
        self._allow_private = allow_private
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def receive(self, chunks: AsyncIterable[bytes]) -> Snapshot:
        """Stores the zip that a client sends. When this returns, the source is stored and `file` is removed.

        Raises ProjectError for an archive that is refused, and for a full disk. What `chunks` raises, for example
        because the client is gone, is raised, and nothing is left of the upload.
        """
        async with self._temporary() as folder:
            await _write(folder / "upload", chunks)
            async with self._turns:
                snapshot = await _in_thread(partial(accept, folder / "upload", folder / "source"))
            await self._store.add(snapshot)
        return snapshot

    async def fetch(
        self,
        url: str,
        ref: str | None,
        subfolder: str | None,
        variables: Mapping[str, str],
        report: Callable[[str], None],
    ) -> Fetched:
        """Stores the files of a git repository. `report` gets lines for the build log, in another thread.

        `variables` are those of the deployment, which may have the credentials. Raises ProjectError.
        """
        async with self._temporary() as folder:
            abort = Abort()
            place = folder / "source"
            work = partial(self._fetched, url, ref, subfolder, place, variables=variables, report=report, abort=abort)
            found = await abortable(work, abort.ask)
            await self._store.add(found.snapshot)
        return found

    def _fetched(
        self,
        url: str,
        ref: str | None,
        subfolder: str | None,
        to: Path,
        *,
        variables: Mapping[str, str],
        report: Callable[[str], None],
        abort: Abort,
    ) -> Fetched:
        with self._builder() as opened, alone(replace(opened, abort=abort), report) as builder:
            # the end of a build as root ends all processes of that user, git too
            return fetch(
                url,
                ref,
                subfolder,
                to,
                allow_local=self._allow_private,
                report=report,
                account=builder.account,
                environment=builder.environment,
                variables=variables,
                abort=abort,
            )

    @asynccontextmanager
    async def _temporary(self) -> AsyncIterator[Path]:
        with explaining_full_disk(self._folder):
            folder = await asyncio.to_thread(_new_folder, self._folder)
        for left in await asyncio.to_thread(_left_folders, self._folder):
            await removed(left)
        try:
            yield folder
        finally:
            await shielded(removed(folder))


async def _in_thread(work: Callable[[], Answer]) -> Answer:
    """Runs the work to its end, also when the caller is cancelled: its files are removed after that."""
    return await shielded(asyncio.to_thread(work))


async def _write(file: Path, chunks: AsyncIterable[bytes]) -> None:
    size, pending = 0, bytearray()
    with explaining_full_disk(file.parent), await asyncio.to_thread(file.open, "xb") as opened:
        async for chunk in chunks:
            size += len(chunk)
            if size > LARGEST:
                raise ProjectError(
                    f"The archive is larger than {LARGEST // MB} MB.", "Leave files out with a .gitignore."
                )
            pending += chunk
            if len(pending) >= PIECE:
                await shielded(asyncio.to_thread(opened.write, bytes(pending)))
                pending.clear()
        opened.write(pending)


def _new_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=folder))


def _left_folders(folder: Path) -> list[Path]:
    oldest, found = time.time() - LEFT_AFTER, []
    for one in folder.iterdir():
        with suppress(FileNotFoundError):  # another process has removed it
            if one.stat().st_mtime < oldest:
                found.append(one)
    return found
