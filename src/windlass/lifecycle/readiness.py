"""Checks whether the server can do its work, at most once in a few seconds, and only when it is asked."""

from __future__ import annotations

import asyncio
import errno
import math
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from windlass import log
from windlass.aio import cancelled, in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Check = Callable[[], Awaitable[str | None]]
"""Returns what is at fault and what to do, None if nothing is."""

FAILED_FOR = 1.0
"""Seconds for which a fault counts. After it is mended, the next result follows soon."""
SIZE = 1 << 16
"""Bytes that are written into each folder."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

logger = log.logger(__name__)


class CachedCheck:
    """Runs a check that costs something. Calls at the same time share one run, and its result counts for seconds."""

    def __init__(self, check: Check, slow: str, *, passed_for: float = 5.0, answer_seconds: float = 6.0) -> None:
        """`slow` is the fault of a check that takes longer than `answer_seconds`. The check continues, and a later call
        gets its result. One that finds no fault counts for `passed_for` seconds.
        """
        self._check = check
        self._slow = slow
        self._passed_for = passed_for
        self._answer_seconds = answer_seconds
        self._run: asyncio.Task[str | None] | None = None
        self._valid_until = -math.inf

    async def __call__(self) -> str | None:
        if self._run is None or (self._run.done() and time.monotonic() >= self._valid_until):
            self._run = asyncio.create_task(self._checked())
        if not self._run.done():
            await asyncio.wait({self._run}, timeout=self._answer_seconds)
        return self._run.result() if self._run.done() else self._slow

    async def stop(self) -> None:
        if self._run is not None:
            await cancelled(self._run)

    async def _checked(self) -> str | None:
        fault = await self._check()
        self._valid_until = time.monotonic() + (self._passed_for if fault is None else FAILED_FOR)
        return fault


class Folders:
    """The folders that the server writes to. `folders` maps the name of each, for everybody to read, to its path."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._reported: str | None = None

    async def fault(self) -> str | None:
        """Returns why a folder can't be written to, None if each can. Logs the path when this changes."""
        found = await in_thread(self._found, "windlass-folders")
        if found is None:
            self._reported = None
            return None
        folder, name, error = found
        reason = error.strerror or type(error).__name__
        if self._reported != f"{folder} {reason}":
            self._reported = f"{folder} {reason}"
            logger.event("folder.not_writable", folder=folder, error=reason)
        remedy = "Free some space" if error.errno in NO_ROOM else "Give the server's user the permission to write"
        where = "The path is in the server's log (folder.not_writable)."
        return f"The server can't write to {name}: {reason}. {remedy}. {where}"

    def _found(self) -> tuple[Path, str, OSError] | None:
        for name, folder in self._folders.items():
            try:
                with tempfile.TemporaryFile(dir=folder) as file:
                    file.write(bytes(SIZE))
                    file.flush()
            except OSError as error:
                if isinstance(error, FileNotFoundError) and folder.parent.is_dir():  # it is made when it is needed
                    continue
                return folder, name, error
        return None
