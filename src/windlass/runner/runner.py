"""Runs crews: prepares a folder, forks a child, follows it, and turns its end into an Outcome."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from windlass import log
from windlass.aio import shielded
from windlass.errors import ChildLost, ProjectError, WindlassError
from windlass.kickoffs.egress import Egress
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.outcome import Ended, Outcome, decide, failure, lost
from windlass.kickoffs.states import Reason
from windlass.runner.child import Child, Supervision, born
from windlass.runner.crew_access import CrewAccess
from windlass.runner.crew_account import home_of
from windlass.runner.egress.proxy import OF_PROXIES
from windlass.runner.egress.run_network import RunNetwork, ports_of
from windlass.runner.egress.run_proxy import RunProxy
from windlass.runner.file_rules import OWN_INTERPRETER, FileRules
from windlass.runner.inspection import manifest_in, named_as, while_loading
from windlass.runner.place import Place, clear
from windlass.runner.processes import tasks_of_user
from windlass.runner.resource_monitor import ResourceMonitor
from windlass.runner.reuse.kept_children import KeptChildren
from windlass.runner.reuse.reusable_child import NotBegun, ReusableChild
from windlass.runner.run_context import (
    LeaseHandle,
    RunContext,
    Terminator,
    at_the_latest,
    ended_with_its_lease,
    timed_out,
    unless_ended,
    while_leased,
)
from windlass.runner.run_folder import RunFolder
from windlass.runner.run_spec import Boundary, Preparing, RunnerConfig, RunSpec, discard, message_of, sendable
from windlass.runner.scratch import DiskUse, Scratch
from windlass.runner.shared_memory import Share
from windlass.runner.spawning import (
    OF_ITS_OWN,
    OF_THE_MACHINE,
    WITHIN_THE_MACHINE,
    ZygoteSpec,
    state_of_environment,
)
from windlass.runner.zygote import Zygote
from windlass.runner.zygote_pool import ZygotePool
from windlass_child.masking.secret_values import SecretValues
from windlass_child.process.sockets import CLOSED
from windlass_child.protocol.messages import Fork, Inspect, ProcessEnvironment, Run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from windlass.accounts import Account
    from windlass.kickoffs.boundary_parts import BoundaryPart
    from windlass.kickoffs.manifest import Manifest
    from windlass.runner.run_spec import Report
    from windlass.runner.zygote_pool import ZygoteKey
    from windlass_child.protocol.messages import Project

C = TypeVar("C", bound=Child)
CODE = "code"
"""The folder in the scratch folder that has copies of projects that are not deployed."""

logger = log.logger(__name__)


class Runner:
    """Runs crews, each in a process of its own.

    A run has these steps: a folder is made, a zygote of the pool forks a child, the child gets the message `Run`, the
    runner follows its reports until it ends, and the folder is removed. With `reuse`, KeptChildren lends the child.
    What fails in these steps becomes the Outcome; a run is never retried here, except that a fork is tried a second
    time when its zygote ended.

    `scratch` is a folder that runners may share. `machine` is the base environment of zygotes and children
    (`machine_environment` makes one).
    """

    def __init__(self, scratch: Path, machine: Mapping[str, str], config: RunnerConfig | None = None) -> None:
        self._base = scratch
        self._machine = dict(machine)
        self._config = config or RunnerConfig()
        self._scratch: Scratch | None = None
        self._monitor = ResourceMonitor()
        self._kept = KeptChildren(self._config.cgroups)
        self._zygotes = ZygotePool(
            self._begin_zygote,
            self._kept,
            idle_seconds=self._config.zygote_idle,
            memory=self._config.zygote_memory,
        )
        self._numbers = itertools.count(1)
        self._tasks_beside_runs = 0
        self.access = CrewAccess(self._config, scratch, self._new_copy)
        self._rules = FileRules(self._config, machine)
        self._proxy = RunProxy()
        self._names: dict[object, str] = {}
        self._folders: set[Path] = set()
        self._folders_gone = asyncio.Event()

    async def start(self) -> None:
        if self._scratch is None:
            self._scratch = await asyncio.to_thread(Scratch, self._base)
            await self._monitor.start()
            if self._config.sockets != CLOSED:
                await self._proxy.start()
            await self._zygotes.start()
            self._kept.start()

    async def stop(self) -> None:
        """Stops the runner. No zygote, child or folder is left when it returns. Runs in progress end as lost."""
        scratch, self._scratch = self._scratch, None
        if scratch is None:
            return
        await self._kept.stop()
        await self._zygotes.stop()
        while self._folders:
            self._folders_gone.clear()
            await self._folders_gone.wait()
        await self._kept.stop()  # those that became idle meanwhile
        await self._monitor.stop()
        await self._proxy.stop()
        self._config.outside.close()
        await asyncio.to_thread(scratch.close)
        if self._config.cgroups is not None:
            await asyncio.to_thread(self._config.cgroups.close)

    async def warm(self, interpreter: Path, preload: str | None) -> None:
        """Starts a zygote, so that it is ready for the first run.

        Raises ProjectError when the interpreter can't be used, and ChildLost when it fails temporarily.
        """
        self.access.check(interpreter, None)
        spec = self._base_spec(interpreter, preload)
        async with self._zygotes.use(replace(spec, network=self._network_of(self._config.egress))):
            pass

    def zygotes(self) -> tuple[int, int]:
        """Returns the number of zygotes, and their memory in bytes."""
        return self._zygotes.usage()

    @property
    def boundary(self) -> tuple[BoundaryPart, ...]:
        """What separates the runs of this machine from it and from each other."""
        return self._config.boundary

    def degraded(self) -> list[str]:
        """Returns the codes of what Windlass can't do with the frameworks that crews run on now."""
        return sorted(self._zygotes.degraded())

    def failed_warm_ups(self) -> int:
        """Returns the number of interpreters whose framework could not run a crew as Windlass runs it."""
        return self._zygotes.failed_warm_ups()

    def egress_of(self, own: Collection[str] | None) -> Egress:
        """Returns the egress of a crew with this setting; that of the runner if it has none."""
        return Egress.parse(own) if own else self._config.egress

    def limits_of(self, own: Limits) -> Limits:
        """Returns the limits of an inspection: the runner's limits, replaced by those that the project sets."""
        return self._config.limits.replaced_by(own)

    async def inspect(
        self,
        interpreter: Path,
        preload: str | None,
        project: Project,
        environment: Mapping[str, str],
        report: Report | None = None,
        limits: Limits | None = None,
        *,
        secrets: Collection[str] = (),
        boundary: Boundary | None = None,
    ) -> Manifest:
        """Loads the project in a child, and returns its manifest.

        `report` gets the lines that the project writes and its warnings. `limits` are those that the project sets.
        `secrets` are the names of the variables whose values are masked in all that leaves the process. `boundary` is
        as in RunSpec.
        Raises ProjectError with the reason when the project can't be loaded, and ChildLost when its process was lost.
        """
        given, project = project, await self.access.reachable(project)
        spec = RunSpec(
            "inspection",
            1,
            interpreter,
            preload,
            project,
            environment,
            {},
            self.limits_of(limits or Limits()),
            secrets=frozenset(secrets),
            boundary=boundary or Boundary(egress=self._config.egress),
        )
        with named_as(given, project):
            return await self._inspect(self._past_the_proxy(spec), report)

    async def _inspect(self, spec: RunSpec, report: Report | None) -> Manifest:
        self.access.check(spec.interpreter, Path(spec.project.root))
        async with self._zygotes.use(self._zygote_spec(spec)):  # the time limit does not include its start
            context = RunContext(report or discard, Terminator(), LeaseHandle())
            with while_loading(context.terminator):
                ended = await self._live(spec, lambda place: Inspect(spec.project, place), context)
        return manifest_in(ended)

    async def run(
        self,
        spec: RunSpec,
        report: Report,
        terminator: Terminator | None = None,
        lease_handle: LeaseHandle | None = None,
    ) -> Outcome:
        """Runs the crew until it ends, `terminator` ends it, or its lease ends. `lease_handle` passes renewals of the
        lease and commits of the journal to the run.

        Raises only exceptions of `report`. The run is ended then, and also when this call is cancelled.
        """
        terminator, lease_handle = terminator or Terminator(), lease_handle or LeaseHandle()
        lease_handle.begin(spec.lease)
        context = RunContext(while_leased(lease_handle, report), terminator, lease_handle)
        try:
            spec = self._past_the_proxy(spec)
            given, spec = spec.project, await self.access.checked(spec)
            with (
                ended_with_its_lease(lease_handle, terminator),
                named_as(given, spec.project),
                at_the_latest(terminator, spec.seconds_left, timed_out(spec.limits.timeout), lease_handle),
            ):
                ended = await self._live(spec, lambda place: message_of(spec, place), context)
        except ChildLost as error:
            return decide(Ended(asked=terminator.asked)) if terminator.asked else lost(str(error))
        except WindlassError as error:
            return failure(Reason.ERROR, str(error))
        return decide(ended)

    async def _live(
        self, spec: RunSpec, message_in: Callable[[ProcessEnvironment], Run | Inspect], context: RunContext
    ) -> Ended:
        account = self._account_of(spec)
        async with self._folder(account, spec) as place:
            with contextlib.ExitStack() as stack:
                if spec.hooks is not None:
                    run_folder = RunFolder(place.folder, account, Path(spec.project.root))
                    stack.enter_context(closing(run_folder))
                    await spec.hooks.begin(run_folder)
                try:
                    ended = await self._in_child(spec, message_in, place, context)
                except NotBegun:  # at most once: a child that never ran raises no such error
                    ended = await self._in_child(spec, message_in, place, context, fresh=True)
                if spec.hooks is not None:
                    spec.hooks.process_released()
                return ended

    async def _in_child(
        self,
        spec: RunSpec,
        message_in: Callable[[ProcessEnvironment], Run | Inspect],
        place: Place,
        context: RunContext,
        *,
        fresh: bool = False,
    ) -> Ended:
        """Runs in a new child, or without `fresh` in one that has run before. Raises NotBegun."""
        async with contextlib.AsyncExitStack() as stack:
            child = await unless_ended(context.terminator, lambda: self._child(spec, context, stack, place, fresh))
            if child is None:
                return Ended(asked=context.terminator.asked)
            cooperative = spec.preload is not None
            given = self._process_environment(spec, place.folder, child.network)
            names = given.environment.keys() & set(given.secrets)
            secrets = SecretValues({name: given.environment[name] for name in names})
            supervision = Supervision(
                context,
                self._monitor,
                spec.limits,
                self._config.grace,
                cooperative,
                place.share.disk,
                place.share,
                secrets,
            )
            message = sendable(message_in(given))
            ended = await child.follow(spec.journal, message, supervision)
            if spec.hooks is not None and not context.lease_handle.lapsed:
                await spec.hooks.end(decide(ended))
            return ended

    async def _child(
        self, spec: RunSpec, context: RunContext, stack: contextlib.AsyncExitStack, place: Place, fresh: bool
    ) -> Child:
        """Returns a child for the run until the end of the stack. Tries to start one a second time when the zygote
        ended before the fork, or when there were too many processes.
        """
        if spec.hooks is not None:
            await spec.hooks.wait_for_slot()
        preparing = not self._zygotes.ready(*self._zygote_of(spec))
        if preparing:
            await context.report(Preparing("zygote"))
        try:
            child = await self._lent_or_born(spec, context, stack, place, fresh=fresh)
        except ChildLost:
            await self._kept.end_all()
            child = await self._lent_or_born(spec, context, stack, place, fresh=True)
        if spec.hooks is not None:
            spec.hooks.process_started()
        if preparing:
            await context.report(Preparing(None))
        return child

    async def _lent_or_born(
        self, spec: RunSpec, context: RunContext, stack: contextlib.AsyncExitStack, place: Place, *, fresh: bool
    ) -> Child:
        if not spec.is_reusing:
            return await self._born(spec, context, place, Child, stack)
        make = partial(self._born, spec, context, place, ReusableChild)
        born_with = self._zygote_of(spec), self._most_tasks(spec), spec.boundary
        return await self._kept.lend(spec, born_with, place, stack, make, fresh=fresh)

    async def _born(
        self, spec: RunSpec, context: RunContext, place: Place, kind: type[C], stack: contextlib.AsyncExitStack
    ) -> C:
        """Returns a new child, which the end of the stack ends. Its zygote is used as long."""
        zygote = await stack.enter_async_context(self._zygotes.use(*self._zygote_of(spec)))
        name = f"{spec.name}#{next(self._numbers)}"
        lease, tasks, user = context.lease_handle.until, self._tasks_at_most(spec), self._user_in_namespace(spec)
        egress, network = spec.boundary.egress, None
        kind_of_network, ports = self._network_of(egress), None
        if kind_of_network == OF_ITS_OWN:
            ports = ports_of(egress, {**self._machine, **spec.environment})
            network = RunNetwork(egress, self._config.outside)
        elif kind_of_network == str(self._proxy.port):
            network = RunNetwork(egress, self._config.outside, self._proxy)
        places = self._rules.of_run(spec, place.around or place.folder)
        order = Fork(name, str(place.folder), spec.start, lease, tasks, user, ports, places)
        return await stack.enter_async_context(born(kind, zygote, order, network))

    def _network_of(self, egress: Egress) -> str:
        """Returns what the zygotes of runs with this egress may connect to (ZygoteSpec.network). Raises ProjectError
        for runs that must not start here.
        """
        if not egress.is_enforced or not (self._config.namespaces or egress.is_strict):
            return OF_THE_MACHINE
        if self._config.namespaces:
            return OF_ITS_OWN
        if self._config.sockets == CLOSED:
            raise ProjectError(
                "this machine can't enforce the egress of the crew: it permits crews no namespaces, and no filter of "
                "system calls (seccomp).",
                "`windlass doctor` has the reason. Permit one of them, or set the egress of the crew to `open`.",
            )
        return WITHIN_THE_MACHINE if egress.is_closed else str(self._proxy.port)

    def _past_the_proxy(self, spec: RunSpec) -> RunSpec:
        """Returns the run without the variables of the server's proxy, if the server makes its connections: clients
        would connect to the proxy, and the server then could not check where to.
        """
        proxy = self._config.outside.proxy
        if proxy is None or self._network_of(spec.boundary.egress) == OF_THE_MACHINE:
            return spec
        kept = spec.environment.items() - proxy.variables.items()
        return replace(spec, environment=dict(sorted(kept)))

    def _account_of(self, spec: RunSpec) -> Account | None:
        """Returns the user that the run has, None for the server's own."""
        crews, user = self._config.crew_account, spec.boundary.user
        return crews if crews is None or user is None else replace(crews, uid=user)

    def _user_in_namespace(self, spec: RunSpec) -> int | None:
        """Returns the user that the child of a zygote becomes in a user namespace; None if it keeps that of the
        zygote.
        """
        account, zygotes = self._account_of(spec), self._zygote_spec(spec).account
        return account.uid if account is not None and account != zygotes else None

    def _most_tasks(self, spec: RunSpec) -> int | None:
        bounds = self._config.tasks
        return None if bounds is None else bounds.of_run(spec.limits.process_limit)

    def _tasks_at_most(self, spec: RunSpec) -> int | None:
        """Returns the number of processes and threads of the crews' user at which a new child starts no others.

        Those of a fork bomb that the last look has seen do not count against the child.
        """
        most = self._most_tasks(spec)
        return None if most is None else self._tasks_beside_runs + self._monitor.tasks + most

    def _zygote_of(self, spec: RunSpec) -> ZygoteKey:
        """Returns what identifies the zygote of the run in the pool."""
        # See docs/decisions/runner.md#a-kickoff-that-lost-its-process-runs-in-a-zygote-of-its-own
        return self._zygote_spec(spec), spec.name if spec.isolated else ""

    def _zygote_spec(self, spec: RunSpec) -> ZygoteSpec:
        is_exec = spec.start == "exec"  # such a child discards the memory of its zygote
        with_project = spec.preload_project and not is_exec
        places = self._rules.of_zygote(spec, self._open_scratch().shared_folder(CODE), with_project=with_project)
        zygote_spec = replace(
            self._base_spec(spec.interpreter, None if is_exec else spec.preload),
            places=None if places is None else tuple(sorted(places.items())),
        )
        zygote_spec = replace(zygote_spec, network=self._network_of(spec.boundary.egress))
        if not self._config.namespaces:
            zygote_spec = replace(zygote_spec, account=self._account_of(spec))
        if not with_project:
            return zygote_spec
        environment = tuple(sorted(spec.environment.items()))
        return replace(
            zygote_spec,
            account=self._account_of(spec),
            project=spec.project,
            environment=environment,
            secrets=tuple(sorted(spec.secrets)),
            digest=f"{zygote_spec.digest} {spec.digest}",
        )

    def _base_spec(self, interpreter: Path, preload: str | None) -> ZygoteSpec:
        prepared = self._config.prepared
        used = prepared.interpreter if interpreter == OWN_INTERPRETER else interpreter
        made = state_of_environment(used)
        return ZygoteSpec(used, preload, account=self._config.crew_account, digest=made, program=prepared.program)

    async def _begin_zygote(self, spec: ZygoteSpec) -> Zygote:
        folder = self._open_scratch().folder_for_crews("z", spec.account)
        tasks = None
        if self._config.tasks is not None:
            user = spec.account.uid if spec.account else os.geteuid()
            existing = await asyncio.to_thread(tasks_of_user, user)
            self._tasks_beside_runs = max(0, existing - self._monitor.tasks)
            tasks = self._config.tasks.total + existing
        variables = {**self._machine, **home_of(spec.account, folder)}
        zygote = await Zygote.start(spec, variables, folder, self._folder_of_runs(spec), tasks)
        logger.event("zygote.started", interpreter=spec.interpreter, preload=spec.preload, pid=zygote.pid)
        return zygote

    def _process_environment(self, spec: RunSpec, folder: Path, network: RunNetwork | None) -> ProcessEnvironment:
        home, proxy = home_of(self._account_of(spec), folder), network.variables if network else {}
        variables = {**self._machine, **home, **spec.environment, **proxy}
        secrets = sorted({*spec.secrets, *(name for name in proxy if name in OF_PROXIES)})
        return ProcessEnvironment(variables, str(folder), secrets, proxied=bool(proxy))

    @contextlib.asynccontextmanager
    async def _folder(self, account: Account | None, spec: RunSpec) -> AsyncIterator[Place]:
        runs = self._folder_of_runs(self._zygote_spec(spec))
        folder = self._open_scratch().folder_for_crews("k", account, runs)
        self._folders.add(folder)
        share = Share(account.uid if account else os.geteuid(), disk=DiskUse.of(folder, spec.limits))
        place = Place(folder, share)
        try:
            if self._config.cgroups is not None:
                share.cgroup = self._config.cgroups.open(folder.name, spec.limits)
            self._monitor.shared_memory.begin(share)
            yield place
        finally:
            try:
                await shielded(clear(place, self._monitor.shared_memory))
            finally:  # also after a cancellation: `stop` waits for this folder
                self._folders.discard(folder)
                self._folders_gone.set()

    def _new_copy(self) -> Path:
        scratch = self._open_scratch()
        return scratch.folder("p", scratch.shared_folder(CODE))

    def _folder_of_runs(self, spec: ZygoteSpec) -> Path:
        """Returns the folder of all runs whose zygote may use the same files, which includes this folder."""
        name = self._names.setdefault((spec.interpreter, spec.places), str(len(self._names)))
        return self._open_scratch().shared_folder(name)

    def _open_scratch(self) -> Scratch:
        if self._scratch is None:
            raise ChildLost("the runner is not running.")
        return self._scratch
