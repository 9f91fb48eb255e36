"""Keeps the files of sources on this machine, so that runs can read them."""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import asynccontextmanager, suppress
from typing import IO, TYPE_CHECKING, Literal

from windlass import log
from windlass.aio import shielded
from windlass.errors import ProjectError
from windlass.files import try_lock
from windlass.projects.snapshot import digest_of, explaining_full_disk, unpack
from windlass.removal import removed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

    from windlass.store.sources import SourceStore

DIGEST = re.compile(r"[0-9a-f]{64}")
UNUSED_SECONDS = 86_400.0
LONGEST_WAIT, WAIT_SECONDS = 300.0, 0.05
"""Seconds that a caller waits for another process that makes the same checkout, and between two tries."""

logger = log.logger(__name__)


class Checkouts:
    """The folder with the checkouts of a machine: `<digest>/` has the files of a source, `<digest>.lock` its lock.

    Several processes of a machine may share the folder. Only the server's user may have the right to write to it.
    """

    def __init__(self, store: SourceStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._checked: set[str] = set()

    async def get(self, digest: str) -> Path:
        """Returns the folder with the files of the source. Nobody may change it.

        Fetches the source if need be, once, however many callers and processes ask. The first call of this process
        compares an existing checkout with its digest. Raises NoSuchSource, ProjectError and DatabaseUnavailable.
        """
        if not DIGEST.fullmatch(digest):
            raise ProjectError(f"{digest!r} is no digest of a source.", "Deploy the project again.")
        if not self._is_ready(digest):
            async with self._locked(digest):
                await shielded(self._make(digest))
        return self._folder / digest

    async def remove_unused(self, in_use: Collection[str], *, after: float = UNUSED_SECONDS) -> int:
        """Removes the checkouts that are not `in_use` and that nobody got in the last `after` seconds.

        Returns their number.
        """
        names = await asyncio.to_thread(_locked_names, self._folder)
        return sum([await self._remove_unused(name, after) for name in names if name not in in_use])

    async def _remove_unused(self, digest: str, after: float) -> bool:
        file = self._lock_file(digest)
        if _unused_seconds(file) < after or (lock := _lock_of(file)) is None:
            return False
        try:
            if is_unused := _unused_seconds(file) >= after:  # else a process got it meanwhile
                await shielded(self._remove(digest))
                self._checked.discard(digest)
                os.unlink(file)  # noqa: PTH108 - takes microseconds
        finally:
            os.close(lock)
        return is_unused

    def _is_ready(self, digest: str) -> bool:
        with suppress(OSError):
            os.utime(self._lock_file(digest))  # before the look, so that no process removes it after that
            return digest in self._checked and (self._folder / digest).is_dir()
        return False

    async def _make(self, digest: str) -> None:
        if self._is_ready(digest):  # another caller has made it meanwhile
            return
        state = await asyncio.to_thread(_state, self._folder / digest, digest)
        if state == "damaged":
            logger.event("checkout.damaged", source=digest, folder=self._folder / digest)
        if state != "intact":
            await self._remove(digest)
            await self._fetch(digest)
        self._checked.add(digest)

    async def _fetch(self, digest: str) -> None:
        archive, new = self._parts(digest)
        try:
            with explaining_full_disk(self._folder):
                with _new_file(archive) as file:
                    async for chunk in self._store.read(digest):
                        await asyncio.to_thread(file.write, chunk)
                found = await asyncio.to_thread(unpack, archive, new)
                if found != digest:
                    raise ProjectError(
                        f"The source {digest} is damaged: its files have the digest {found}.",
                        "Deploy the project again. If the error stays, check the database and the machine's memory.",
                    )
                os.rename(new, self._folder / digest)  # noqa: PTH104 - takes microseconds
        finally:
            await self._remove_parts(digest)

    async def _remove(self, digest: str) -> None:
        _, new = self._parts(digest)
        await self._remove_parts(digest)
        with suppress(FileNotFoundError):
            os.rename(self._folder / digest, new)  # noqa: PTH104 - whole or gone, also when the removal is interrupted
            await removed(new)

    async def _remove_parts(self, digest: str) -> None:
        archive, new = self._parts(digest)
        await asyncio.to_thread(archive.unlink, missing_ok=True)
        await removed(new)

    def _parts(self, digest: str) -> tuple[Path, Path]:
        return self._folder / f"{digest}.zip", self._folder / f"{digest}.new"

    def _lock_file(self, digest: str) -> Path:
        return self._folder / f"{digest}.lock"

    @asynccontextmanager
    async def _locked(self, digest: str) -> AsyncIterator[None]:
        _make_folder(self._folder)
        file, ends = self._lock_file(digest), time.monotonic() + LONGEST_WAIT
        while (lock := _lock_of(file)) is None:
            if time.monotonic() > ends:
                raise ProjectError(
                    f"Another process has fetched the source {digest} for {LONGEST_WAIT:.0f} s.",
                    f"Check the disk of {self._folder}.",
                )
            await asyncio.sleep(WAIT_SECONDS)
        try:
            yield
        finally:
            os.close(lock)


def _lock_of(file: Path) -> int | None:
    """Returns a descriptor that holds the lock, None when another holds it or has just removed the file."""
    lock = try_lock(file)
    if lock is None:
        return None
    with suppress(FileNotFoundError):
        if os.fstat(lock).st_ino == file.stat().st_ino:
            return lock
    os.close(lock)
    return None


def _unused_seconds(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:  # another process has removed it
        return 0


def _locked_names(folder: Path) -> list[str]:
    return [file.stem for file in folder.glob("*.lock") if DIGEST.fullmatch(file.stem)]


def _state(place: Path, digest: str) -> Literal["missing", "damaged", "intact"]:
    if not place.is_dir():
        return "missing"
    try:
        return "intact" if digest_of(place) == digest else "damaged"
    except (OSError, ProjectError):
        return "damaged"


def _new_file(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def _make_folder(folder: Path) -> None:
    """Makes the folder of the checkouts. Crews reach their own by its path, and can't list those of others."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
