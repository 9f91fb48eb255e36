from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import ChildLost, ProjectError, WindlassError
from windlass.kickoffs.inputs import InputsCheck
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.outcome import Ended, Ending, Outcome, decide, failure, lost, words_for
from windlass.kickoffs.states import Reason, State
from windlass.runner.account import home_of, places_of
from windlass.runner.child import Child, Seen, born
from windlass.runner.ender import Ender, at_the_latest, unless_ended
from windlass.runner.orders import Preparing, RunOrder, message_of, sendable, unheard
from windlass.runner.processes import tasks_of_user
from windlass.runner.removal import remove
from windlass.runner.scratch import Scratch
from windlass.runner.spawning import Mould
from windlass.runner.tether import Tether, Ties, ended_with_its_lease, while_leased
from windlass.runner.uninterrupted import uninterrupted
from windlass.runner.watch import WHERE, Watch
from windlass.runner.ways import Ways
from windlass.runner.zygote import Zygote
from windlass.runner.zygotes import Zygotes
from windlass_crewside.messages import Failed, Inspect, Inspected, Run, Surroundings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from windlass.accounts import Account
    from windlass.runner.orders import Report
    from windlass_crewside.messages import Project

INSPECTION_SECONDS = 120.0

logger = log.logger(__name__)


class Runner:
    """Runs crews, each in a process of its own.

    `scratch` is a folder that runners may share; `machine` is the environment of zygotes, and what children have below
    their own (machine_environment makes one).
    """

    def __init__(self, scratch: Path, machine: Mapping[str, str], ways: Ways | None = None) -> None:
        self._base = scratch
        self._machine = dict(machine)
        self._ways = ways or Ways()
        self._scratch: Scratch | None = None
        self._watch = Watch()
        self._zygotes = Zygotes(
            self._begin_zygote, idle_seconds=self._ways.zygote_idle, memory=self._ways.zygote_memory
        )
        self._numbers = itertools.count(1)
        self._accounts: dict[tuple[Path, Path | None], Account | None] = {}
        self._folders: set[Path] = set()
        self._folders_gone = asyncio.Event()

    async def start(self) -> None:
        if self._scratch is None:
            self._scratch = await asyncio.to_thread(Scratch, self._base)
            await self._watch.start()
            await self._zygotes.start()

    async def stop(self) -> None:
        """When it returns no zygote, child or folder is left. Runs that are in progress end as lost."""
        scratch, self._scratch = self._scratch, None
        if scratch is None:
            return
        await self._zygotes.stop()
        while self._folders:
            self._folders_gone.clear()
            await self._folders_gone.wait()
        await self._watch.stop()
        await asyncio.to_thread(scratch.close)

    async def warm(self, interpreter: Path, preload: str | None) -> None:
        """Has a zygote ready. Raises ProjectError when this interpreter can't serve, ChildLost when it can't now."""
        async with self._zygotes.use(Mould(interpreter, preload, account=self.account_for(interpreter, None))):
            pass

    def account_for(self, interpreter: Path, root: Path | None) -> Account | None:
        """The user that this crew's code runs as, None for our own. Raises ProjectError when it must be another one,
        and that one can't reach the crew.
        """
        wanted = self._ways.crew_account
        if wanted is None:
            return None
        key = (interpreter, root)
        fault = wanted.fault([*places_of(interpreter, root), self._base])
        if key not in self._accounts:  # once and for all: what is closed to it later on is no reason to become root
            self._accounts[key] = wanted.account if fault is None or wanted.demanded else None
            if root is not None and self._accounts[key] is None:
                logger.event("crews.as_root", project=root, why=fault)
        if fault is not None and self._accounts[key] is not None:
            raise fault
        return self._accounts[key]

    async def inspect(
        self,
        interpreter: Path,
        preload: str | None,
        project: Project,
        environment: Mapping[str, str],
        report: Report | None = None,
        limits: Limits | None = None,
    ) -> Manifest:
        """Loads the project in a child. `report` gets the lines that it writes, and its warnings, meanwhile.

        Raises ProjectError, in words, when it can't be loaded, and ChildLost when its process was lost.
        """
        order = RunOrder("inspection", 1, interpreter, preload, project, environment, {}, limits or Limits())
        async with self._zygotes.use(self._mould(order)):  # its start does not count
            ties = Ties(report or unheard, Ender(), Tether())
            with at_the_latest(ties.ender, INSPECTION_SECONDS, too_slow_to_load()):
                ended = await self._live(order, lambda place: Inspect(project, place), ties)
        return manifest_in(ended)

    async def run(
        self, order: RunOrder, report: Report, ender: Ender | None = None, tether: Tether | None = None
    ) -> Outcome:
        """Runs the crew to its end, or until it is made to end, or its lease ends. `tether` tells it of renewals of the
        lease, and of what of its journal is written.

        Raises only what `report` raises; then, and when cancelled, the run is ended.
        """
        ender, tether = ender or Ender(), tether or Tether()
        tether.begin(order.lease)
        ties = Ties(while_leased(tether, report), ender, tether)
        try:
            async with ended_with_its_lease(tether, ender):
                with at_the_latest(ender, order.seconds_left, timed_out(order.limits.timeout)):
                    ended = await self._live(order, lambda place: message_of(order, place), ties)
        except ChildLost as error:
            return decide(Ended(asked=ender.asked)) if ender.asked else lost(str(error))
        except WindlassError as error:
            return failure(Reason.ERROR, str(error))
        return decide(ended)

    async def _live(self, order: RunOrder, message_in: Callable[[Surroundings], Run | Inspect], ties: Ties) -> Ended:
        account = self.account_for(order.interpreter, Path(order.project.root))
        name = f"{order.kickoff_id}-{order.attempt}"
        async with self._folder(account) as folder, contextlib.AsyncExitStack() as stack:
            message = sendable(message_in(self._surroundings(order, folder, account)))
            child = await unless_ended(ties.ender, lambda: self._child(order, name, ties, stack))
            if child is None:
                return Ended(asked=ties.ender.asked)
            cooperative = order.preload is not None
            seen = Seen(ties, self._watch, order.limits, self._ways.grace, cooperative)
            return await child.follow(order.journal, message, seen)

    async def _child(self, order: RunOrder, name: str, ties: Ties, stack: contextlib.AsyncExitStack) -> Child:
        """A new child, for as long as the stack. One more is tried when its zygote ended before it forked it."""
        mould, alone = self._mould(order), name if order.alone else ""
        preparing = not self._zygotes.ready(mould, alone)
        if preparing:
            await ties.report(Preparing("zygote"))
        try:
            child = await self._fork(mould, alone, name, order.start, ties.tether, stack)
        except ChildLost:
            child = await self._fork(mould, alone, name, order.start, ties.tether, stack)
        if preparing:
            await ties.report(Preparing(None))
        return child

    async def _fork(
        self, mould: Mould, alone: str, name: str, start: str, tether: Tether, stack: contextlib.AsyncExitStack
    ) -> Child:
        zygote = await stack.enter_async_context(self._zygotes.use(mould, alone))
        return await stack.enter_async_context(born(zygote, f"{name}#{next(self._numbers)}", start, tether.until))

    def _mould(self, order: RunOrder) -> Mould:
        account = self.account_for(order.interpreter, Path(order.project.root))
        if order.start == "exec":  # nothing of its zygote is left in it
            return Mould(order.interpreter, account=account)
        if not order.preload_project:
            return Mould(order.interpreter, order.preload, account=account)
        environment = tuple(sorted(order.environment.items()))
        return Mould(order.interpreter, order.preload, order.project, environment, account, order.digest)

    async def _begin_zygote(self, mould: Mould) -> Zygote:
        folder = self._open_scratch().folder("z", mould.account)
        tasks = None
        if self._ways.tasks is not None:
            user = mould.account.uid if mould.account else os.geteuid()
            tasks = self._ways.tasks + await asyncio.to_thread(tasks_of_user, user)
        zygote = await Zygote.start(mould, {**self._machine, **home_of(mould.account, folder)}, folder, tasks)
        logger.event("zygote.started", interpreter=mould.interpreter, preload=mould.preload, pid=zygote.pid)
        return zygote

    def _surroundings(self, order: RunOrder, folder: Path, account: Account | None) -> Surroundings:
        return Surroundings({**self._machine, **home_of(account, folder), **order.environment}, str(folder))

    @contextlib.asynccontextmanager
    async def _folder(self, account: Account | None) -> AsyncIterator[Path]:
        folder = self._open_scratch().folder("k", account)
        self._folders.add(folder)
        try:
            yield folder
        finally:
            try:
                await uninterrupted(asyncio.to_thread(remove, folder))
            finally:  # also when it was cancelled meanwhile: `stop` waits for it
                self._folders.discard(folder)
                self._folders_gone.set()

    def _open_scratch(self) -> Scratch:
        if self._scratch is None:
            raise ChildLost("the runner is not running.")
        return self._scratch


def too_slow_to_load() -> Ending:
    return Ending(
        State.TIMED_OUT,
        Reason.TIMED_OUT,
        f"the project was not loaded within {INSPECTION_SECONDS:.0f} s.",
        at_once=True,
    )


def timed_out(timeout: float | None) -> Ending:
    return Ending(
        State.TIMED_OUT,
        Reason.TIMED_OUT,
        f"the run took longer than its timeout of {timeout or 0:g} s, which counts from its first start. "
        f"Raise timeout {WHERE}.",
    )


def with_a_schema(manifest: Manifest) -> Manifest:
    """By which the inputs of kickoffs can be checked."""
    try:
        InputsCheck.of(manifest.inputs_schema)
    except ValueError as error:
        raise ProjectError(f"{error}.", "Correct it where the project declares its inputs.") from None
    return manifest


def manifest_in(ended: Ended) -> Manifest:
    if ended.asked:
        late = ended.asked.reason is Reason.TIMED_OUT
        raise ProjectError(ended.asked.error, "Look for code that waits at import." if late else "")
    match ended.answer:
        case Inspected(manifest=manifest):
            return with_a_schema(Manifest.from_json(manifest))
        case Failed(message=message, hint=hint):
            raise ProjectError(message, hint)
    if ended.status is None:
        raise ChildLost("the process that inspects the project was lost.")
    raise ProjectError(f"while the project was loaded {words_for(ended.status)}")
