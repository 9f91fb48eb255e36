"""`windlass dev` looks at its project's files, and registers it anew when they have changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import ProjectError
from windlass.projects.digest import CODE, VARIABLES, changes, glance
from windlass.store.cancelling import cancelled
from windlass.wiring.registering import loaded, read_project

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from windlass.lifecycle.registration import Registration
    from windlass.projects.digest import Glance
    from windlass.runner import Runner
    from windlass.store.deployments import Deployment, DeploymentStore
    from windlass.wiring.ground import Say

EVERY = 0.5
"""Seconds between two looks, or longer where a look takes long."""
SHARE = 0.1
"""Of the time that is spent looking, at most."""
OF_CODE, OF_OTHERS = 5, 2
"""A file that changes while the project is loaded, in so many loads in a row, is written by the project itself. People
write code, and may do so while it is loaded.
"""
NAMED = 3
"""Files that are told by name."""

logger = log.logger(__name__)


class Reloading:
    """Takes the project in, and again when its files change: what runs goes on with the code that it has imported.

    `seen` is how the files were when `registration` was read.
    """

    def __init__(
        self,
        registration: Registration,
        seen: Glance,
        store: DeploymentStore,
        runner: Runner,
        environment: Callable[[], Mapping[str, str]],
        say: Say,
    ) -> None:
        self._served = registration
        self._root = registration.root
        self._loads = False
        """It did so the last time."""
        self._at_fault = False
        """It was told that it can't be loaded."""
        self._number: int | None = None
        self._files = Followed(seen, say)
        self._ignore = registration.recognised.options.ignore
        self._took = 0.0
        self._store = store
        self._runner = runner
        self._environment = environment
        self._say = say

    async def first(self) -> Deployment:
        """At once when the project is as it was at the last start: that it still loads is looked at by `watch`. Raises
        ProjectError when it can't be loaded.
        """
        deployment = await self._served.known(self._store)
        if deployment is None:
            self._say(f"loading the project {self._served.slug} (the first time takes some seconds)")
            deployment = await loaded(self._served, self._store, self._runner, self._environment(), self._say)
            self._loads = True
        self._number = deployment.version.number if deployment.version else None
        return deployment

    async def watch(self) -> None:
        """For ever. What goes wrong is said, and looked at again with the next change; one that comes while the
        project is loaded ends that.
        """
        loading = asyncio.create_task(self._look_again())
        before = seen = self._files.base
        try:
            while True:
                busy, settled = not loading.done(), seen == before
                before, seen = seen, await self._look(soon=not settled)
                if busy:
                    self._files.meanwhile |= changes(before, seen)
                if seen == before and (changed := self._files.news(seen)):  # whoever writes them is done
                    await cancelled(loading)
                    loading = asyncio.create_task(self._load(changed))
        finally:
            await cancelled(loading)

    async def _look(self, *, soon: bool) -> Glance:
        await asyncio.sleep(EVERY if soon else max(EVERY, self._took / SHARE))
        began = time.monotonic()
        found = await asyncio.to_thread(glance, self._root, self._ignore)
        self._took = time.monotonic() - began
        return found

    async def _look_again(self) -> None:
        if not self._loads:
            await self._load(set())

    async def _load(self, changed: Collection[str]) -> None:
        until = f"kickoffs of it begin with the options of version {self._number}"
        try:
            found = await asyncio.to_thread(read_project, self._root, self._say)
            await self._follow(found.recognised.options.ignore)
            if found.slug != self._served.slug:
                self._tell_of_name(found.slug)
                return
            until = self._kickoffs_of_broken_code()
            await self._take_in(found, changed)
        except ProjectError as error:
            self._loads, self._at_fault = False, True
            self._say(f"warning: the project can't be loaded any more, and until it can, {until}: {error}")
        except Exception as error:  # noqa: BLE001 - the server serves on
            self._loads = False
            logger.event("project.not_reloaded", exc=error)
            self._say(f"warning: the project could not be loaded again, which the next change tries anew: {error}")

    async def _follow(self, ignore: list[str]) -> None:
        if ignore != self._ignore:
            self._ignore = ignore
            self._files.base = await asyncio.to_thread(glance, self._root, ignore)

    async def _take_in(self, found: Registration, changed: Collection[str]) -> None:
        same = (found.digest, found.source) == (self._served.digest, self._served.source)
        if same and self._loads and VARIABLES not in changed:
            return
        if changed or not same:
            self._say(f"the project's files have changed{in_brackets(changed)}: loading it again")
        deployment = await loaded(found, self._store, self._runner, self._environment(), self._say)
        self._served, self._loads = found, True
        before, self._number = self._number, deployment.version.number if deployment.version else None
        if changed or self._at_fault or self._number != before:
            self._tell_of_version(new=self._number != before)
        self._files.hint(changed)

    def _tell_of_version(self, *, new: bool) -> None:
        what = "the project can be loaded again: " if self._at_fault else ""
        self._at_fault = False
        goes_on = "; what runs goes on with the code that it has imported" if new else ""
        self._say(f"{what}version {self._number} is served from now on{goes_on}")

    def _tell_of_name(self, name: str) -> None:
        self._loads, self._at_fault = False, True
        self._say(
            f"warning: the project is called {name} now: start again to serve it by that name. Until then kickoffs "
            f"begin with the options of version {self._number} of {self._served.slug}, and no change is taken in"
        )

    def _kickoffs_of_broken_code(self) -> str:
        options = self._served.recognised.options
        if options.preload == "project" and options.start == "fork":
            held = f'but where a process holds the code of version {self._number} (preload = "project")'
            return f"kickoffs of it fail, {held}"
        return "kickoffs of it fail"


class Followed:
    """The files of a project whose changes have it loaded again: not those that it writes itself."""

    def __init__(self, base: Glance, say: Say) -> None:
        self.base = base
        """As they were when the last load began."""
        self.meanwhile: set[str] = set()
        """What changed while it went on."""
        self._times: Counter[str] = Counter()
        """In how many loads in a row that was so before."""
        self._own: set[str] = set()
        self._hinted = False
        self._say = say

    def news(self, seen: Glance) -> set[str]:
        """What changed since the last load began, or nothing. With what is returned a new load begins."""
        changed = changes(self.base, seen) - self._own
        again = changed & self.meanwhile
        if written := {name for name in again if self._times[name] + 1 >= (OF_CODE if is_code(name) else OF_OTHERS)}:
            self._leave(written, seen)
        if news := changed - written:
            self._times = Counter({name: self._times[name] + 1 for name in again - written})
            self.base, self.meanwhile = seen, set()
        return news

    def hint(self, changed: Collection[str]) -> None:
        """Once, when it may have been a run that changed them."""
        if changed and not self._hinted and not any(map(is_code, changed)):
            self._hinted = True
            self._say(f"if a run writes {listed(changed)}: {how_to_leave_out(changed)}")

    def _leave(self, written: set[str], seen: Glance) -> None:
        """Of code only these changes are passed over."""
        self._own |= {name for name in written if not is_code(name)}
        self.base = {name: facts for name, facts in self.base.items() if name not in written} | {
            name: seen[name] for name in written & seen.keys()
        }
        for name in written:
            del self._times[name]
        self._say(
            f"warning: {listed(written)} changed each time that the project was loaded, which is not taken for "
            f"a change of it any more. {how_to_leave_out(written)}"
        )


def is_code(name: str) -> bool:
    return name == VARIABLES or name.endswith(CODE)


def in_brackets(names: Collection[str]) -> str:
    return f" ({listed(names)})" if names else ""


def listed(names: Collection[str]) -> str:
    told = ", ".join(sorted(names)[:NAMED])
    return told if len(names) <= NAMED else f"{told} and {len(names) - NAMED} more"


def how_to_leave_out(names: Collection[str]) -> str:
    patterns = json.dumps(sorted(names)[:NAMED])
    return f"In pyproject.toml, ignore = {patterns} under [tool.windlass] leaves out what is no part of the project"
