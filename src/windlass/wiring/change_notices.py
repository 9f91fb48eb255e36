"""Waits until files of the project may have changed.

The kernel reports changes in a project's folders through watchfiles. A report only decides when to look at the files:
a snapshot of them decides what has changed (`windlass.projects.digest`). Where the kernel reports nothing, as on many
network file systems, the files are looked at from time to time anyway.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from watchfiles import awatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from windlass.projects.digest import Folders
    from windlass.wiring.infrastructure import Notify

STEP = 100
"""Milliseconds between two checks of watchfiles for reports. Reports that follow each other so closely are one."""


class ChangeNotices:
    """Follows reports of changes in folders. Without reports, `wait` only sleeps.

    `watch` is `watchfiles.awatch`. `longest` are the most seconds between two looks at the files.
    """

    def __init__(
        self, notify: Notify, watch: Callable[..., AsyncIterator[Any]] = awatch, *, longest: float = 5.0
    ) -> None:
        self._notify = notify
        self._watch = watch
        self._longest = longest
        self._folders: Folders = {}
        self._following: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._changed.set()  # files may have changed since they were read
        self._reports = True
        """False after the kernel has refused to report changes."""

    async def follow(self, folders: Folders) -> None:
        """Follows these folders from now on. The next `wait` is short if it did not follow them before."""
        if folders == self._folders or not self._reports:
            return
        await self.end()
        self._folders, self._stop = folders, asyncio.Event()
        self._following = asyncio.create_task(self._follow(list(folders), self._stop))
        self._changed.set()  # files may have changed before the kernel reports changes

    async def wait(self, at_least: float) -> None:
        """Waits `at_least` seconds, and then until a change is reported, for `longest` seconds at most."""
        await asyncio.sleep(at_least)
        if self._reports:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._longest):
                    await self._changed.wait()
        self._changed.clear()

    async def end(self) -> None:
        self._stop.set()
        if self._following is not None:
            await self._following

    async def _follow(self, folders: list[str], stop: asyncio.Event) -> None:
        try:
            async for _ in self._watch(
                *folders,
                watch_filter=None,
                step=STEP,
                stop_event=stop,
                recursive=False,
                force_polling=False,
                ignore_permission_denied=True,
            ):
                self._changed.set()
        except FileNotFoundError:  # a folder was removed after the look: the next look finds those that exist
            self._folders = {}
            self._changed.set()
        except (OSError, RuntimeError) as error:  # watchfiles' own errors are RuntimeErrors
            self._reports = False
            self._changed.set()
            self._notify(
                f"warning: the kernel can't report changes of the project's files ({error}). They are looked at in "
                "intervals instead, which takes more time. The limits fs.inotify.max_user_watches and "
                "fs.inotify.max_user_instances of this machine may be too low"
            )
