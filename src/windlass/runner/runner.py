from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import ChildLost, ProjectError, WindlassError
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.outcome import Ended, Outcome, decide, failure, lost, words_for
from windlass.kickoffs.states import Reason
from windlass.runner.child import Child, born, uninterrupted
from windlass.runner.scratch import Scratch
from windlass.runner.zygote import Zygote
from windlass_crewside.messages import Failed, Inspect, Inspected, Run, Surroundings, encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from windlass.runner.orders import Output, Report, RunOrder
    from windlass_crewside.messages import Message, Project

INSPECTION_SECONDS = 120.0

logger = log.logger(__name__)


class Runner:
    """Runs crews, each in a process of its own.

    `scratch` is a folder that runners may share; `machine` is the environment of zygotes, and what children have below
    their own (machine_environment makes one).
    """

    def __init__(self, scratch: Path, machine: Mapping[str, str]) -> None:
        self._base = scratch
        self._machine = dict(machine)
        self._scratch: Scratch | None = None
        self._zygotes: dict[tuple[Path, str | None], asyncio.Task[Zygote]] = {}
        self._numbers = itertools.count(1)
        self._folders: set[Path] = set()
        self._folders_gone = asyncio.Event()

    async def start(self) -> None:
        if self._scratch is None:
            self._scratch = await asyncio.to_thread(Scratch, self._base)

    async def stop(self) -> None:
        """When it returns no zygote, child or folder is left. Runs that are in progress end as lost."""
        scratch, self._scratch = self._scratch, None
        if scratch is None:
            return
        zygotes, self._zygotes = list(self._zygotes.values()), {}
        await asyncio.gather(*(stop_zygote(zygote) for zygote in zygotes))
        while self._folders:
            self._folders_gone.clear()
            await self._folders_gone.wait()
        await asyncio.to_thread(scratch.close)

    async def warm(self, interpreter: Path, preload: str | None) -> None:
        """Has a zygote ready. Raises ProjectError when this interpreter can't serve, ChildLost when it can't now."""
        await self._zygote(interpreter, preload)

    async def inspect(
        self,
        interpreter: Path,
        preload: str | None,
        project: Project,
        environment: Mapping[str, str],
        report: Report | None = None,
    ) -> Manifest:
        """Loads the project in a child. `report` gets the lines that it writes meanwhile.

        Raises ProjectError, in words, when it can't be loaded, and ChildLost when its process was lost.
        """
        await self.warm(interpreter, preload)
        try:
            async with asyncio.timeout(INSPECTION_SECONDS):
                ended = await self._live(
                    (interpreter, preload),
                    "inspection",
                    lambda folder: Inspect(project, self._surroundings(environment, folder)),
                    report or unheard,
                )
        except TimeoutError:
            raise ProjectError(
                f"the project was not loaded within {INSPECTION_SECONDS:.0f} s.", "Look for code that waits at import."
            ) from None
        return manifest_in(ended)

    async def run(self, order: RunOrder, report: Report) -> Outcome:
        """Runs the crew to its end. Raises only what `report` raises; then, and when cancelled, the run is ended."""
        try:
            ended = await self._live(
                (order.interpreter, order.preload),
                f"{order.kickoff_id}-{order.attempt}",
                lambda folder: Run(
                    order.kickoff_id,
                    order.attempt,
                    order.project,
                    self._surroundings(order.environment, folder),
                    order.inputs,
                ),
                report,
            )
        except ChildLost as error:
            return lost(str(error))
        except WindlassError as error:
            return failure(Reason.ERROR, str(error))
        return decide(ended)

    async def _live(
        self,
        key: tuple[Path, str | None],
        name: str,
        order_in: Callable[[Path], Run | Inspect],
        report: Report,
    ) -> Ended:
        async with self._folder(name) as folder, contextlib.AsyncExitStack() as stack:
            order = sendable(order_in(folder))
            child = await self._child(key, name, stack)
            return await child.follow(order, report)

    async def _child(self, key: tuple[Path, str | None], name: str, stack: contextlib.AsyncExitStack) -> Child:
        """A new child, for as long as the stack. One more is tried when its zygote ended before it forked it."""
        try:
            return await stack.enter_async_context(born(await self._zygote(*key), self._unique(name)))
        except ChildLost:
            return await stack.enter_async_context(born(await self._zygote(*key), self._unique(name)))

    def _unique(self, name: str) -> str:
        return f"{name}#{next(self._numbers)}"

    def _surroundings(self, environment: Mapping[str, str], folder: Path) -> Surroundings:
        return Surroundings({**self._machine, **environment}, str(folder))

    @contextlib.asynccontextmanager
    async def _folder(self, name: str) -> AsyncIterator[Path]:
        folder = self._open_scratch().folder(name)
        self._folders.add(folder)
        try:
            yield folder
        finally:
            try:
                await uninterrupted(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
            finally:  # also when it was cancelled meanwhile: `stop` waits for it
                self._folders.discard(folder)
                self._folders_gone.set()

    def _open_scratch(self) -> Scratch:
        if self._scratch is None:
            raise ChildLost("the runner is not running.")
        return self._scratch

    async def _zygote(self, interpreter: Path, preload: str | None) -> Zygote:
        key = (interpreter, preload)
        starting = self._zygotes.get(key)
        if starting is None or is_over(starting):
            folder = self._open_scratch().folder("zygote")
            starting = asyncio.create_task(self._replace(starting, interpreter, preload, folder))
            self._zygotes[key] = starting
        await asyncio.wait([starting])  # not awaited itself: who is cancelled while waiting would cancel it for all
        if starting.cancelled():
            raise ChildLost("the runner was stopped.")
        return starting.result()

    async def _replace(
        self, former: asyncio.Task[Zygote] | None, interpreter: Path, preload: str | None, folder: Path
    ) -> Zygote:
        if former is not None:
            await stop_zygote(former)
        zygote = await Zygote.start(interpreter, preload, self._machine, folder)
        logger.event("zygote.started", interpreter=interpreter, preload=preload)
        return zygote


def sendable(order: Run | Inspect) -> bytes:
    try:
        return encode(order)
    except (ValueError, TypeError, RecursionError) as error:
        raise WindlassError(f"the inputs can't be given to the crew: {error}.") from error


def is_over(starting: asyncio.Task[Zygote]) -> bool:
    """Whether this zygote could not be started, or has ended."""
    if not starting.done():
        return False
    return starting.cancelled() or starting.exception() is not None or starting.result().lost


async def stop_zygote(starting: asyncio.Task[Zygote]) -> None:
    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await starting.result().stop()


def manifest_in(ended: Ended) -> Manifest:
    match ended.answer:
        case Inspected(manifest=manifest):
            return Manifest.from_json(manifest)
        case Failed(message=message, hint=hint):
            raise ProjectError(message, hint)
    if ended.status is None:
        raise ChildLost("the process that inspects the project was lost.")
    raise ProjectError(f"while the project was loaded {words_for(ended.status)}")


async def unheard(_: Message | Output) -> None:
    pass
