"""Watches the project's files under `windlass dev`, and registers the project again when they have changed."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from windlass import log
from windlass.accounts import ROOT, owner_of, with_rights_of
from windlass.aio import cancelled
from windlass.deployments.registration import loaded, read_project
from windlass.errors import ProjectError
from windlass.projects.digest import BESIDE, CODE, changes, glance, look
from windlass.projects.served_code import copied
from windlass.removal import removed
from windlass.wiring.change_notices import ChangeNotices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from concurrent.futures import Future
    from pathlib import Path

    from windlass.deployments.registration import Registration
    from windlass.lifecycle.worker_config import CrewEnvironment
    from windlass.projects import Interpreters, ServedCode
    from windlass.projects.digest import Snapshot
    from windlass.runner import Runner
    from windlass.store.deployments import Deployment, DeploymentStore
    from windlass.wiring.infrastructure import Notify

EVERY = 0.5
"""The fewest seconds between two snapshots of the files. The pause is longer where a snapshot takes long (see SHARE),
and while no change is reported.
"""
SHARE = 0.1
"""The largest share of the time that is spent on snapshots."""
OF_CODE, OF_OTHERS = 5, 2
"""A file that changes during so many loads in a row is taken for a file that the project writes itself. The number is
higher for code, because people may edit code while the project is loaded.
"""
REPORTED_EVERY = 10.0
"""Seconds between two messages about a load that takes long."""
NAMED = 3
"""The number of files that a message names."""

logger = log.logger(__name__)


class Reloading:
    """Registers the project, and registers it again when its files change.

    Runs in progress continue with the code that they have imported. `seen` is the snapshot of the files when
    `registration` was read.
    """

    def __init__(
        self,
        registration: Registration,
        seen: Snapshot,
        store: DeploymentStore,
        runner: Runner,
        environment: Callable[[], Awaitable[CrewEnvironment]],
        *,
        notify: Notify,
        interpreters: Interpreters,
        code: ServedCode,
    ) -> None:
        self._served = registration
        self._interpreters = interpreters
        self._code = code
        self._copy: Path | None = None
        """The copy of the files of the last version that could be loaded."""
        self._root = registration.root
        self._loads = False
        """Whether the last load succeeded."""
        self._tried = False
        """Whether the first load failed."""
        self._at_fault = False
        """Whether the user was notified that the project can't be loaded."""
        self._number: int | None = None
        self._files = FileTracker(seen, notify)
        self._notices = ChangeNotices(notify)
        self._ignore = registration.recognised.options.ignore
        self._took = 0.0
        self._store = store
        self._runner = runner
        self._environment = environment
        self._notify = notify

    async def first(self) -> Deployment:
        """Returns the deployment of the project.

        Returns at once when the project is unchanged since the last start. `watch` then checks that the project still
        loads. Raises ProjectError when the project can't be loaded.
        """
        deployment = await self._served.known(self._store)
        if deployment is None:
            self._notify(f"loading the project {self._served.slug} (the first time takes some seconds)")
            deployment = await self._loaded(self._served)
            self._loads = True
        self._number = deployment.version.number if deployment.version else None
        return deployment

    def fail_first(self, error: ProjectError) -> None:
        """Reports that the first load failed. `watch` then loads the project when its files have changed."""
        self._tried, self._at_fault = True, True
        self._notify_fault(error)

    async def watch(self) -> None:
        """Watches the files until it is cancelled. Reports errors, and tries again at the next change.

        A change that happens during a load cancels that load.
        """
        loading = asyncio.create_task(self._check_load())
        before = seen = self._files.base
        try:
            while True:
                busy, settled = not loading.done(), seen == before
                before, seen = seen, await self._snapshot(soon=not settled)
                if busy:
                    self._files.meanwhile |= changes(before, seen)
                if seen == before and (changed := self._files.news(seen)):  # the files no longer change
                    await cancelled(loading)
                    loading = asyncio.create_task(self._load(changed))
        finally:
            await cancelled(loading)
            await self._notices.end()

    async def _snapshot(self, *, soon: bool) -> Snapshot:
        if soon:
            await asyncio.sleep(EVERY)
        else:
            await self._notices.wait(max(EVERY, self._took / SHARE))
        began = time.monotonic()
        found, folders = await asyncio.to_thread(look, self._root, self._ignore)
        self._took = time.monotonic() - began
        await self._notices.follow(folders)
        return found

    async def _check_load(self) -> None:
        if not self._loads and not self._tried:
            await self._load(set())

    async def _load(self, changed: Collection[str]) -> None:
        if self._copy is not None and any(map(is_code, changed)):
            self._code.hold(self._root, self._copy)
        try:
            found = await asyncio.to_thread(read_project, self._served.path, self._notify, self._interpreters)
            found = replace(found, suffix=self._served.suffix)
            await self._follow(found.recognised.options.ignore)
            if found.slug != self._served.slug:
                self._notify_name(found.slug)
                return
            await self._take_in(found, changed)
            self._code.release(self._root)
        except ProjectError as error:
            self._loads, self._at_fault = False, True
            self._notify_fault(error)
        except Exception as error:  # noqa: BLE001 - the server continues to serve
            self._loads = False
            logger.event("project.not_reloaded", exc=error)
            self._notify(f"warning: the project could not be loaded again. The next change starts another try: {error}")

    async def _follow(self, ignore: list[str]) -> None:
        if ignore != self._ignore:
            self._ignore = ignore
            self._files.base = await asyncio.to_thread(glance, self._root, ignore)

    async def _take_in(self, found: Registration, changed: Collection[str]) -> None:
        same = (found.digest, found.source) == (self._served.digest, self._served.source)
        if same and self._loads and not BESIDE & set(changed):
            return
        if changed or not same:
            self._notify(f"the project's files have changed{in_brackets(changed)}: loading it again")
        deployment = await self._loaded(found)
        self._served, self._loads = found, True
        before, self._number = self._number, deployment.version.number if deployment.version else None
        if changed or self._at_fault or self._number != before:
            self._notify_version(new=self._number != before)
        self._files.hint(changed)

    async def _loaded(self, registration: Registration) -> Deployment:
        progress = asyncio.create_task(self._notify_progress(registration.slug))
        try:
            deployment = await loaded(registration, self._store, self._runner, await self._environment(), self._notify)
        finally:
            await cancelled(progress)
        await self._keep(registration)
        return deployment

    async def _notify_progress(self, slug: str) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(REPORTED_EVERY)
            seconds = time.monotonic() - began
            self._notify(f"still loading the project {slug}, for {seconds:.0f} s now: its code is imported")

    async def _keep(self, registration: Registration) -> None:
        """Copies the files that were just loaded, to serve them when later ones can't be loaded.

        A server that is root copies with the rights of the project's owner, who may have placed links there. The copy
        before is removed, unless a run was started from it: it then stays until the server stops.
        """
        self._code.release(self._root)
        former, self._copy = self._copy, None
        if former is not None and self._code.may_remove(former):
            await removed(former.parent)
        try:
            folder = await asyncio.to_thread(self._runner.access.folder_for_code, self._root)
            if await asyncio.wrap_future(self._copied(folder / self._root.name, registration)):
                self._copy = folder / self._root.name
            else:
                await removed(folder)
        except OSError as error:
            self._notify(f"warning: the project can't be copied, so broken files will be served: {error}")

    def _copied(self, copy: Path, registration: Registration) -> Future[bool]:
        ignore, opens = registration.recognised.options.ignore, self._runner.access.needs_copy(self._root)
        others = self._runner.access.has_crew_account and not opens
        work = partial(copied, self._root, copy, ignore, registration.digest, for_another_user=others, open_all=opens)
        owner = owner_of(self._root.stat().st_uid)
        return with_rights_of(owner if os.geteuid() == ROOT else None, work)

    def _notify_fault(self, error: ProjectError) -> None:
        trace = getattr(error, "trace", "")
        logger.event("project.broken", deployment=self._served.slug, version=self._number, error=error, trace=trace)
        if self._number is None:
            self._notify(f"warning: the project can't be loaded, and is not served until it can: {error}")
            return
        if self._copy is not None:
            until = f"version {self._number}, the last one that could be loaded, is served"
        else:
            until = f"kickoffs of it begin with the options of version {self._number}, and may fail"
        self._notify(f"warning: the project can't be loaded any more, and until it can, {until}: {error}")

    def _notify_version(self, *, new: bool) -> None:
        recovered = "the project can be loaded again: " if self._at_fault else ""
        self._at_fault = False
        running = "; runs in progress continue with the code that they have imported" if new else ""
        self._notify(f"{recovered}version {self._number} is served from now on{running}")

    def _notify_name(self, name: str) -> None:
        self._loads, self._at_fault = False, True
        self._notify(
            f"warning: the project is called {name} now: start again to serve it by that name. Until then kickoffs "
            f"begin with the options of version {self._number} of {self._served.slug}, and changes have no effect"
        )


class FileTracker:
    """Tracks the files whose changes cause a new load, and excludes files that the project writes itself."""

    def __init__(self, base: Snapshot, notify: Notify) -> None:
        self.base = base
        """The snapshot of the files at the start of the last load."""
        self.meanwhile: set[str] = set()
        """The files that changed during the last load."""
        self._times: Counter[str] = Counter()
        """The number of earlier loads in a row during which each file changed."""
        self._own: set[str] = set()
        self._hinted = False
        self._notify = notify

    def news(self, seen: Snapshot) -> set[str]:
        """Returns the files that changed since the last load began. The caller starts a new load if there are any."""
        changed = changes(self.base, seen) - self._own
        again = changed & self.meanwhile
        if written := {name for name in again if self._times[name] + 1 >= (OF_CODE if is_code(name) else OF_OTHERS)}:
            self._leave(written, seen)
        if news := changed - written:
            self._times = Counter({name: self._times[name] + 1 for name in again - written})
            self.base, self.meanwhile = seen, set()
        return news

    def hint(self, changed: Collection[str]) -> None:
        """Suggests, once, to exclude the files, when a run may have changed them: none of them is code."""
        if changed and not self._hinted and not any(map(is_code, changed)):
            self._hinted = True
            self._notify(f"if a run writes {listed(changed)}: {how_to_leave_out(changed)}")

    def _leave(self, written: set[str], seen: Snapshot) -> None:
        """Ignores these changes. Later changes are ignored as well, except those of code."""
        self._own |= {name for name in written if not is_code(name)}
        self.base = {name: facts for name, facts in self.base.items() if name not in written} | {
            name: seen[name] for name in written & seen.keys()
        }
        for name in written:
            del self._times[name]
        self._notify(
            f"warning: {listed(written)} changed each time that the project was loaded. Windlass does not load the "
            f"project again for that. {how_to_leave_out(written)}"
        )


def is_code(name: str) -> bool:
    return name in BESIDE or name.endswith(CODE)


def in_brackets(names: Collection[str]) -> str:
    return f" ({listed(names)})" if names else ""


def listed(names: Collection[str]) -> str:
    first = ", ".join(sorted(names)[:NAMED])
    return first if len(names) <= NAMED else f"{first} and {len(names) - NAMED} more"


def how_to_leave_out(names: Collection[str]) -> str:
    patterns = json.dumps(sorted(names)[:NAMED])
    return (
        f"In pyproject.toml, ignore = {patterns} under [tool.windlass] excludes files that are not part of the project"
    )
