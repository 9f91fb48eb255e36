"""Starts a zygote, asks it for forks, and follows its children until they have ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from windlass import log
from windlass.errors import ChildLost, ProjectError, WindlassError
from windlass.kickoffs.outcome import signal_name
from windlass.removal import removed
from windlass.runner.descriptors import CHUNK
from windlass.runner.incoming import Incoming
from windlass.runner.io import LineSplitter, SocketReader, UnexpectedDescriptors
from windlass.runner.namespaces import answer
from windlass.runner.processes import ForeignProcess, Process, child_of, end_families
from windlass.runner.spawning import spawn
from windlass_child.protocol.frames import BadMessage, encode
from windlass_child.protocol.messages import (
    DUMP_SIGNAL,
    FROM_ZYGOTE,
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
from windlass_child.protocol.truncation import beginning
from windlass_child.protocol.working_folder import PLACES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from windlass.runner.spawning import ZygoteSpec


T = TypeVar("T")


CODE, MOST_CODES = re.compile(r"[a-z_]{1,60}"), 20


def codes_in(answer: Ready) -> set[str]:
    """Returns the codes of a zygote, whose process may run code of a project. Everybody can read them in /ready."""
    return {code for code in answer.degraded[:MOST_CODES] if CODE.fullmatch(code)}


def new_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


class FrameworkMissing(ProjectError):  # noqa: N818 - describes the interpreter
    """The interpreter does not have the framework, or a package that the framework needs."""


@dataclass(slots=True)
class ChildRecord:
    """The reports of a zygote about one child.

    `forked` is the child as the system shows it (processes.child_of), not as the zygote describes it. The result of
    `exited` is None when the zygote was lost before it reported the exit. `user` is the user that it runs as, None for
    the server's own. `lease` is the last one that was sent.
    """

    user: int | None

    forked: asyncio.Future[Process | WindlassError] = field(default_factory=new_future)
    exited: asyncio.Future[Exited | None] = field(default_factory=new_future)
    lease: float = 0.0

    @property
    def process(self) -> Process | None:
        """The process of the child; None before its start, and when it could not be started."""
        found = self.forked.result() if self.forked.done() else None
        return None if isinstance(found, Exception) else found


def settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


START_SECONDS = 120.0
"""How long importing and warming a framework may take; 6 s is usual on an idle machine."""

FORK_SECONDS = 30.0
STOP_SECONDS = 8.0
"""A zygote takes 5 s to end a child that has become hundreds of processes. After this time it counts as stuck."""
LAST_LINES = 5
LONGEST_FAULT = 500
LEASE_STEP = 0.1
"""Seconds. An extension of a lease by less is not sent."""
STACKS_SECONDS = 2.0
LARGEST_STACKS = 64 * 1024
NO_STACKS = "(the process did not write them)"

FROM_OUTSIDE = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM}
"""Signals that come from outside: an interpreter that ends by one of them is not at fault."""

logger = log.logger(__name__)


class Zygote:
    """A running zygote: its process, its socket, its children."""

    def __init__(
        self, spec: ZygoteSpec, process: asyncio.subprocess.Process, channel: socket.socket, folder: Path
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._process = process
        self._channel = channel
        self._forking = asyncio.Lock()
        self._children: dict[str, ChildRecord] = {}
        self.degraded: set[str] = set()
        """Codes of what Windlass can't do with the framework of this zygote."""
        self.failed_warm_up = False
        self._ready: asyncio.Future[Ready | Unready | None] = asyncio.get_running_loop().create_future()
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._messages = SocketReader(channel)
        self._tasks = [asyncio.create_task(work) for work in (self._listen(), self._read_output(), self._finish())]
        self._stopping = False
        self._fault: ProjectError | None = None
        self.lost = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def user(self) -> int | None:
        """The user that the zygote runs as; None for the server's own."""
        return self._spec.account.uid if self._spec.account else None

    def user_of(self, name: str) -> int | None:
        """Returns the user that a child runs as; None for the server's own."""
        return self._children[name].user

    @classmethod
    async def start(
        cls, spec: ZygoteSpec, environment: Mapping[str, str], folder: Path, runs: Path, tasks: int | None = None
    ) -> Zygote:
        """Starts a zygote and waits until it is ready.

        `folder` is the folder of the zygote, in which it imports its modules. It is emptied when the zygote is ready.
        `runs` is the folder of its runs.
        `tasks` is how many processes and threads its user may have in all (RLIMIT_NPROC). Raises ProjectError when the
        interpreter can't serve, and ChildLost when it does not answer in time.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with contextlib.ExitStack() as unless_started, theirs:
            unless_started.callback(ours.close)
            process = await spawn(spec, environment, folder, runs, theirs, tasks)
            unless_started.pop_all()
        zygote = cls(spec, process, ours, folder)
        try:
            async with asyncio.timeout(START_SECONDS):
                if spec.project is not None:
                    await zygote._send_all(
                        Preload(spec.project, {**environment, **dict(spec.environment)}, [*spec.secrets])
                    )
                answer = await asyncio.shield(zygote._ready)
            await zygote._check_ready(answer, spec.interpreter)
            await zygote._close_folder()
        except TimeoutError:
            await asyncio.shield(zygote.stop())
            raise ChildLost(f"{spec.interpreter} was not ready to run crews within {START_SECONDS:.0f} s.") from None
        except BaseException:
            await asyncio.shield(zygote.stop())
            raise
        return zygote

    async def _close_folder(self) -> None:
        """Empties the folder, and closes it. Paths in it may be left in the memory of all children: no crew may put a
        file there for another one.
        """
        for name in PLACES:
            await removed(self._folder / name)
        self._folder.chmod(0o555)

    async def _send_all(self, message: Message) -> None:
        with contextlib.suppress(OSError):  # the end of the zygote reports the fault
            await asyncio.get_running_loop().sock_sendall(self._channel, encode(message))

    async def _check_ready(self, answer: Ready | Unready | None, interpreter: Path) -> None:
        if isinstance(answer, Unready):
            raise FrameworkMissing(answer.message) if answer.missing_package else ProjectError(answer.message)
        if isinstance(answer, Ready):
            self.degraded = codes_in(answer)
            self.failed_warm_up = bool(answer.fault)
        if isinstance(answer, Ready) and answer.fault:
            fault = beginning(answer.fault, LONGEST_FAULT)
            logger.event("zygote.warm_up_failed", pid=self.pid, interpreter=str(interpreter), error=fault)
        if isinstance(answer, Ready) and answer.threads:
            logger.event("zygote.threads", pid=self.pid, threads=answer.threads)
        if answer is None and self._fault:
            raise self._fault
        if answer is None:
            status = await self._process.wait()
            if -status in FROM_OUTSIDE:
                raise ChildLost(f"{interpreter} was killed by {signal_name(-status)} before it could run crews.")
            raise ProjectError(f"{interpreter} ended before it could run crews: {self._printed}")

    @property
    def _printed(self) -> str:
        if self._spec.project is not None:  # the output of a project may hold a secret
            return 'the output of its project is not shown here; with `preload = "framework"` each run keeps it'
        return " ".join(self._last_lines) or "it printed nothing"

    async def fork(self, order: Fork, descriptors: Sequence[int]) -> Process:
        """Starts a child. `descriptors` are its socket and the write ends of its output.

        Raises ChildLost when no child is started, and ProjectError when the zygote names a process that is not its
        child.
        """
        try:
            async with asyncio.timeout(FORK_SECONDS):
                if order.user is None or self._spec.account is None:
                    return await self._forked(order, descriptors)
                return await self._admitted(order, descriptors, order.user, self._spec.account.gid)
        except TimeoutError:
            self._end_process()
            raise ChildLost(f"no process was started for the crew within {FORK_SECONDS:.0f} s.") from None

    async def _admitted(self, order: Fork, descriptors: Sequence[int], user: int, group: int) -> Process:
        """Starts a child that becomes another user, which the server permits in its namespace."""
        door, theirs = socket.socketpair()
        with door:
            door.setblocking(False)
            with theirs:
                process = await self._forked(order, [*descriptors, theirs.fileno()])
            await answer(door, process.pid, user, group)
        return process

    async def _forked(self, order: Fork, descriptors: Sequence[int]) -> Process:
        async with self._forking:  # one at a time, like the zygote: more orders would only fill its socket
            user = self.user if order.user is None else order.user
            record = self._children[order.child] = ChildRecord(user, lease=order.lease or 0.0)
            self._send(order, descriptors)
            if self.lost:
                self._settle_lost(record)
            found = await asyncio.shield(record.forked)
        if isinstance(found, WindlassError):
            raise found
        return found

    def signal(self, name: str, number: int, *, below: bool = False) -> None:
        """Sends the signal to the child, and with `below` also to all processes below it."""
        self._send(Signal(name, number, below))

    async def stacks_of(self, name: str, file: int | None) -> str:
        """Returns the stack of each thread of a child, also of a thread that is blocked in C code.

        The child's interpreter writes the stacks on a signal. `file` is the descriptor of the file that it writes to,
        None if the child has sent none.
        """
        if file is None:
            return NO_STACKS
        before = os.fstat(file).st_size
        self.signal(name, DUMP_SIGNAL)
        deadline, last = time.monotonic() + STACKS_SECONDS, before
        while time.monotonic() < deadline:
            await asyncio.sleep(0.05)
            now = os.fstat(file).st_size
            if now > before and now == last:  # the file no longer grows: it is complete
                return os.pread(file, LARGEST_STACKS, before).decode("utf-8", "replace").strip()
            last = now
        return NO_STACKS

    def lease(self, name: str, until: float) -> None:
        """Has the zygote end the child at `until` (CLOCK_BOOTTIME), unless a later call renews the lease before.

        Sends nothing for a child that has ended, and where the zygote has a lease that ends up to LEASE_STEP earlier.
        """
        record = self._children.get(name)
        if record is not None and not 0 <= until - record.lease < LEASE_STEP and self._send(Lease(until, name)):
            record.lease = until

    def exit_of(self, name: str) -> asyncio.Future[Exited | None]:
        """Returns a future of the child's exit. Its result is None when the zygote was lost before it reported.

        All waiters share it: wait with `asyncio.wait` or `asyncio.shield`.
        """
        return self._children[name].exited

    def has_ended(self, name: str) -> bool:
        record = self._children.get(name)
        return record is None or record.exited.done()

    async def end(self, name: str) -> None:
        """Ends a child, if it has not ended yet, with its process group. The child has ended when this returns."""
        record = self._children.get(name)
        if record is None:
            return
        if not record.exited.done():
            self._send(Kill(name))
            await asyncio.wait([record.exited], timeout=STOP_SECONDS)
        if not record.exited.done():
            self._end_process()  # it no longer reads its socket; its children end with it
            await asyncio.wait([record.exited])
        self._children.pop(name, None)

    async def stop(self) -> None:
        """Ends the zygote and all its children. They have ended when this returns."""
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
        await self._messages.close()
        await removed(self._folder)

    def _send(self, message: Message, descriptors: Sequence[int] = ()) -> bool:
        """Returns False when the zygote is gone, or too busy for so short a message. A caller that waits for the answer
        notices that in any case.
        """
        try:
            socket.send_fds(self._channel, [encode(message)], list(descriptors))
        except OSError:
            return False
        return True

    async def _listen(self) -> None:
        incoming = Incoming(FROM_ZYGOTE)
        try:
            while data := await self._messages.read():
                for received in incoming.feed(data):
                    self._handle(received.message())
        except UnexpectedDescriptors as error:
            self._refuse(str(error), "sent open files or sockets to the server", "socket.send_fds and socket.sendmsg")
        except BadMessage:
            self._end_process()
        finally:
            await self._be_lost()

    async def _finish(self) -> None:
        """Ends `_listen` with the zygote: a process that crew code started may hold the other end of the socket."""
        await self._process.wait()
        self._messages.finish()

    def _handle(self, message: Message) -> None:
        match message:
            case Ready() | Unready():
                settle(self._ready, message)
            case Forked(child=name, pid=pid) if name in self._children:
                settle(self._children[name].forked, self._verified(pid))
            case NotForked(child=name, message=words) if name in self._children:
                settle(self._children[name].forked, ChildLost(words))
                settle(self._children[name].exited, None)
            case Exited(child=name) if name in self._children:
                settle(self._children[name].exited, message)

    def _verified(self, pid: int) -> Process | ProjectError:
        """Returns the child that the zygote has named. Ends a zygote that names another process: code of the project
        replaces os.fork in it, or writes to its socket.
        """
        try:
            return child_of(self.pid, pid, self.user)
        except ForeignProcess as error:
            words = f"reported a child that it did not start ({error})"
            return self._refuse(str(error), words, "code that replaces os.fork when it is imported")

    def _refuse(self, why: str, words: str, look_for: str) -> ProjectError:
        """Ends the zygote, and returns the error with which all its pending orders fail."""
        logger.event("zygote.refused", pid=self.pid, why=why)
        self._end_process()
        self._fault = ProjectError(f"the process that starts this crew {words}.", f"Look for {look_for}.")
        return self._fault

    async def _be_lost(self) -> None:
        """Ends the children of the lost zygote, because nobody is left to report their ends."""
        self.lost = True
        if not self._stopping:
            logger.event("zygote.lost", pid=self._process.pid, children=len(self._children), output=self._printed)
        settle(self._ready, None)
        records = list(self._children.values())
        left = [(record.process, record.user) for record in records if record.process and not record.exited.done()]
        try:
            if left:
                await asyncio.to_thread(end_families, left)
        finally:
            for record in records:
                self._settle_lost(record)

    def _settle_lost(self, record: ChildRecord) -> None:
        lost = ChildLost("the process that starts crews ended before it started this one.")
        settle(record.forked, self._fault or lost)
        settle(record.exited, None)

    async def _read_output(self) -> None:
        """Keeps the last lines that the zygote itself prints."""
        output, lines = self._process.stdout, LineSplitter()
        while output is not None and (data := await output.read(CHUNK)):
            self._last_lines.extend(lines.feed(data))

    def _end_process(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
