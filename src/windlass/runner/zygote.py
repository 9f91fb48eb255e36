from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import ChildLost, ProjectError
from windlass.kickoffs.outcome import signal_name
from windlass.runner.child_record import ChildRecord, settle
from windlass.runner.lines import Lines
from windlass.runner.readable import CHUNK, Readable
from windlass.runner.removal import remove
from windlass.runner.spawning import spawn
from windlass_crewside.frames import BadMessage, Frames, encode
from windlass_crewside.messages import (
    Exited,
    Fork,
    Forked,
    Kill,
    Lease,
    Message,
    NotForked,
    Preload,
    Ready,
    Signal,
    Unready,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from windlass.runner.spawning import Mould

START_SECONDS = 120.0
"""How long importing and warming a framework may take; 6 s is usual, on a machine with nothing else to do."""

FORK_SECONDS = 30.0
STOP_SECONDS = 8.0
"""A zygote takes 5 to end a child that has become hundreds of processes, and may be stuck after that."""
LAST_WORDS = 5

FROM_OUTSIDE = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM}
"""Signals that say nothing of the interpreter that they end."""

logger = log.logger(__name__)


class Zygote:
    """A zygote that runs: its process, its socket, its children."""

    def __init__(self, mould: Mould, process: asyncio.subprocess.Process, channel: socket.socket, folder: Path) -> None:
        self._mould = mould
        self._folder = folder
        self._process = process
        self._channel = channel
        self._forking = asyncio.Lock()
        self._children: dict[str, ChildRecord] = {}
        self._ready: asyncio.Future[Ready | Unready | None] = asyncio.get_running_loop().create_future()
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._overhear())]
        self._stopping = False
        self.lost = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(
        cls, mould: Mould, environment: Mapping[str, str], folder: Path, tasks: int | None = None
    ) -> Zygote:
        """`tasks` is how many processes and threads its user may have in all (RLIMIT_NPROC).

        Raises ProjectError when the interpreter can't serve, ChildLost when it does not answer in time.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with contextlib.ExitStack() as unless_started, theirs:
            unless_started.callback(ours.close)
            process = await spawn(mould, environment, folder, theirs, tasks)
            unless_started.pop_all()
        zygote = cls(mould, process, ours, folder)
        try:
            if mould.project is not None:
                await zygote._give(Preload(mould.project, {**environment, **dict(mould.environment)}))
            await zygote._become_ready(mould.interpreter)
        except BaseException:
            await asyncio.shield(zygote.stop())
            raise
        return zygote

    async def _give(self, order: Message) -> None:
        with contextlib.suppress(OSError):  # told by its end
            await asyncio.get_running_loop().sock_sendall(self._channel, encode(order))

    async def _become_ready(self, interpreter: Path) -> None:
        try:
            answer = await asyncio.wait_for(asyncio.shield(self._ready), START_SECONDS)
        except TimeoutError:
            raise ChildLost(f"{interpreter} was not ready to run crews within {START_SECONDS:.0f} s.") from None
        if isinstance(answer, Unready):
            raise ProjectError(answer.message)
        if answer is None:
            status = await self._process.wait()
            if -status in FROM_OUTSIDE:
                raise ChildLost(f"{interpreter} was killed by {signal_name(-status)} before it could run crews.")
            raise ProjectError(f"{interpreter} ended before it could run crews: {self._said}")

    @property
    def _said(self) -> str:
        if self._mould.project is not None:  # what a project prints may be a secret
            return 'what its project printed is not told; with `preload = "framework"` each run keeps it'
        return " ".join(self._last_words) or "it said nothing"

    async def fork(self, name: str, descriptors: Sequence[int], start: str = "fork", lease: float | None = None) -> int:
        """Starts a child; its process id. Raises ChildLost when there is none."""
        async with self._forking:  # one at a time, as the zygote does it: more would only fill its socket
            record = self._children[name] = ChildRecord()
            self._send(Fork(name, start), descriptors)
            if lease is not None:
                self.lease(name, lease)
            if self.lost:
                self._mourn(record)
            try:
                answer = await asyncio.wait_for(asyncio.shield(record.forked), FORK_SECONDS)
            except TimeoutError:
                self._end_process()
                raise ChildLost(f"no process was started for the crew within {FORK_SECONDS:.0f} s.") from None
        if isinstance(answer, ChildLost):
            raise answer
        return answer

    def signal(self, name: str, number: int, *, below: bool = False) -> None:
        """Sends it to the child, and to the processes below it too when wanted."""
        self._send(Signal(name, number, below))

    def lease(self, name: str, until: float) -> None:
        """The zygote ends the child then, unless it is told a later time before."""
        self._send(Lease(until, name))

    async def exit_of(self, name: str) -> Exited | None:
        """Waits for the end of a child. None when the zygote is gone and no one saw it end."""
        return await asyncio.shield(self._children[name].exited)

    async def end(self, name: str) -> None:
        """Ends a child, if it has not ended yet, with its process group; complete when it returns."""
        record = self._children.get(name)
        if record is None:
            return
        if not record.exited.done():
            self._send(Kill(name))
            await asyncio.wait([record.exited], timeout=STOP_SECONDS)
        if not record.exited.done():
            self._end_process()  # it does not listen any more, and its children go with it
            await asyncio.wait([record.exited])
        self._children.pop(name, None)

    async def stop(self) -> None:
        """Ends the zygote and all its children; complete when it returns."""
        if not self.lost:
            logger.event("zygote.stopped", pid=self._process.pid)
        self._stopping = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._end_process()
            await self._process.wait()
        _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        for task in late:  # a process that outlived its crew still holds the other end
            task.cancel()
        if late:
            await asyncio.wait(late)
        self._channel.close()
        await asyncio.to_thread(remove, self._folder)

    def _send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        # a zygote that is gone, or too busy for so short a message, is found out by who waits for its answer
        with contextlib.suppress(OSError):
            socket.send_fds(self._channel, [encode(message)], list(descriptors))

    async def _listen(self) -> None:
        reader, frames = Readable(self._channel.fileno()), Frames()
        try:
            while data := await reader.read():
                for message in frames.feed(data):
                    self._hear(message)
        except BadMessage:
            self._end_process()
        finally:
            self._be_lost()

    def _hear(self, message: Message) -> None:
        match message:
            case Ready() | Unready():
                settle(self._ready, message)
            case Forked(child=name, pid=pid) if name in self._children:
                settle(self._children[name].forked, pid)
            case NotForked(child=name, message=words) if name in self._children:
                settle(self._children[name].forked, ChildLost(words))
                settle(self._children[name].exited, None)
            case Exited(child=name) if name in self._children:
                settle(self._children[name].exited, message)

    def _be_lost(self) -> None:
        self.lost = True
        if not self._stopping:
            logger.event("zygote.lost", pid=self._process.pid, children=len(self._children), said=self._said)
        settle(self._ready, None)
        for record in self._children.values():
            self._mourn(record)

    def _mourn(self, record: ChildRecord) -> None:
        """No one is left to tell of this child's end: it is ended here."""
        settle(record.forked, ChildLost("the process that starts crews ended before it started this one."))
        pid = record.forked.result()
        if isinstance(pid, int) and not record.exited.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        settle(record.exited, None)

    async def _overhear(self) -> None:
        """Keeps the last of what the zygote itself complains of."""
        output, lines = self._process.stdout, Lines()
        while output is not None and (data := await output.read(CHUNK)):
            self._last_words.extend(lines.feed(data))

    def _end_process(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
