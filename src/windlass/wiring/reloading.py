"""`windlass dev` looks at its project's files, and registers it anew when they have changed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import WindlassError
from windlass.projects import glance
from windlass.wiring.registering import loaded, read_project

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.lifecycle.registration import Registration
    from windlass.runner import Runner
    from windlass.store.deployments import DeploymentStore
    from windlass.wiring.ground import Say

EVERY = 0.5
"""Seconds between two looks, or longer where a look takes long."""
SHARE = 0.05
"""Of the time that is spent looking, at most."""

logger = log.logger(__name__)


class Reloading:
    """Kickoffs that run go on with the code that they began with: it is in their processes."""

    def __init__(
        self,
        registration: Registration,
        store: DeploymentStore,
        runner: Runner,
        environment: Callable[[], Mapping[str, str]],
        say: Say,
    ) -> None:
        self._served = registration
        self._root = registration.root
        self._store = store
        self._runner = runner
        self._environment = environment
        self._say = say

    async def watch(self) -> None:
        """For ever. What goes wrong is said, and looked at again with the next change."""
        seen, loaded = await self._look(), ""  # it may have changed since it was registered
        while True:
            before, seen = seen, await self._look()
            if seen == before and seen != loaded:  # whoever writes them is done
                loaded = seen
                await self._reload()

    async def _look(self) -> str:
        began = time.monotonic()
        try:
            found = await asyncio.to_thread(glance, self._root)
        except OSError as error:  # a file went between the list and the look
            found = f"{error.filename}"
        await asyncio.sleep(max(EVERY, (time.monotonic() - began) / SHARE))
        return found

    async def _reload(self) -> None:
        try:
            found = await asyncio.to_thread(read_project, self._root, self._say)
            if (found.digest, found.source) == (self._served.digest, self._served.source):
                return
            if found.slug != self._served.slug:
                self._say(f"warning: the project is called {found.slug} now: start again to serve it by that name")
                return
            self._say("the project's files have changed: loading it again")
            await self._load(found)
        except WindlassError as error:
            self._say(f"warning: the project can't be loaded any more, and kickoffs of it fail until it can: {error}")
        except Exception as error:  # noqa: BLE001 - the server serves on
            logger.event("project.not_reloaded", exc=error)
            self._say(f"warning: the project could not be loaded again: {error}")

    async def _load(self, found: Registration) -> None:
        deployment = await loaded(found, self._store, self._runner, self._environment(), self._say)
        self._served = found
        number = deployment.version.number if deployment.version else None
        self._say(f"version {number} is served from now on; what runs goes on with the code that it began with")
