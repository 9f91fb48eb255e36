"""A running child, seen from the server: its messages, its output, its lease and its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from windlass import log
from windlass.aio import offload, shielded
from windlass.kickoffs.events import CONNECTION
from windlass.kickoffs.outcome import Answer, Ended
from windlass.runner.incoming import MOST_AT_ONCE, ROOM, Incoming, OverLimit, ResultSize
from windlass.runner.io import (
    FdReader,
    OutputCapture,
    SocketReader,
    UnexpectedDescriptors,
    next_frames,
    pipe,
)
from windlass.runner.processes import end_family
from windlass.runner.resource_monitor import WatchedRun, out_of_memory
from windlass.runner.run_context import LAPSED
from windlass.runner.run_spec import ResultSent, no_journal
from windlass_child.masking.secret_values import SecretValues
from windlass_child.protocol.frames import BadMessage, encode
from windlass_child.protocol.messages import (
    FROM_CHILD,
    Abort,
    Asked,
    Born,
    Event,
    Lease,
    Listening,
    Succeeded,
    Warned,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windlass.kickoffs.limits import Limits
    from windlass.kickoffs.outcome import Termination
    from windlass.runner.egress.run_network import RunNetwork
    from windlass.runner.processes import Process
    from windlass.runner.resource_monitor import ResourceMonitor
    from windlass.runner.run_context import LeaseHandle, RunContext
    from windlass.runner.run_spec import Replay, Report
    from windlass.runner.scratch import DiskUse
    from windlass.runner.shared_memory import Share
    from windlass.runner.zygote import Zygote
    from windlass_child.protocol.messages import Exited, Fork, Message


MOST_DESCRIPTORS = 2
"""Descriptors that a child sends with its `Born`."""

COOPERATIVE_SHARE = 0.6
"""The share of the grace time in which the run may end on the message `Abort`, before it gets SIGTERM."""


logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Supervision:
    """The parts and the bounds with which a child is supervised until its end.

    `grace` is in seconds. `cooperative` is true when the code in the child reads the message `Abort`.
    `secrets` are masked in the lines that it prints.
    """

    context: RunContext
    monitor: ResourceMonitor
    limits: Limits
    grace: float
    cooperative: bool
    disk: DiskUse | None = None
    share: Share | None = None
    secrets: SecretValues = field(default_factory=lambda: SecretValues({}))


class Child:
    """A running child, seen from the server: its socket and the two pipes of its output."""

    takes_more = False
    """Whether the child takes another run after one that succeeds (windlass.runner.reuse)."""

    def __init__(
        self, zygote: Zygote, name: str, process: Process, messages: SocketReader, output: int, errors: int
    ) -> None:
        self._zygote = zygote
        self._name = name
        self.process = process
        self._messages = messages
        self._pipes: dict[Literal["stdout", "stderr"], int] = {"stdout": output, "stderr": errors}
        self.network: RunNetwork | None = None
        self._sending = asyncio.Lock()
        self._garbled = False
        self._refused = self._over_limit = ""

    def close(self) -> None:
        """Closes what the child has sent and is kept beyond a run."""
        if self.network is not None:
            self.network.close()

    def _watched(self, supervision: Supervision) -> WatchedRun:
        return WatchedRun(
            self.process.pid,
            supervision.limits,
            supervision.context.terminator,
            started=self.process.started,
            disk=supervision.disk,
            share=supervision.share,
            user=self._zygote.user_of(self._name),
        )

    async def follow(self, journal: Replay, message: bytes, supervision: Supervision) -> Ended:
        """Sends the journal and the message to the child, and supervises it until its end.

        An exception of the report callback ends the child and is raised here.
        """
        context = supervision.context
        watched = self._watched(supervision)
        cgroup = supervision.share.cgroup if supervision.share else None
        if cgroup is not None and cgroup.take(self.process):  # before it gets its message
            watched.cgroup = cgroup
        watched.stalled = lambda silence: self._report_stall(silence, watched, supervision)
        report = watched.noting_life(context.report)
        capture = OutputCapture(supervision.limits.output_limit, supervision.secrets)
        pipes = {stream: FdReader(descriptor) for stream, descriptor in self._pipes.items()}
        try:
            async with contextlib.AsyncExitStack() as stack:
                if self.network is not None:
                    await stack.enter_async_context(self.network.during(context.report, supervision.secrets))
                stack.enter_context(supervision.monitor.over(watched))
                stack.enter_context(context.lease_handle.held(partial(self._zygote.lease, self._name)))
                async with asyncio.TaskGroup() as group:
                    sending = group.create_task(self._send_all(journal, message, context.lease_handle))
                    ending = group.create_task(self._end_when_asked(supervision))
                    answer = group.create_task(self._listen(report, watched, supervision))
                    for stream, pipe in pipes.items():
                        group.create_task(capture.read(stream, pipe, report))
                    exited = await self._end_of_run()
                    stopped_by = watched.end()
                    if exited is not None and exited.lapsed:
                        context.terminator.end(LAPSED)
                    asked = context.terminator.asked or stopped_by  # a later request has no process to end
                    if asked is None and watched.cgroup and (found := watched.cgroup.out_of_memory()):
                        asked = out_of_memory(found, supervision.limits)
                    ending.cancel()
                    sending.cancel()
                    for readable in (self._messages, *pipes.values()):
                        readable.finish()
                if exited is None:
                    end_family(watched.family, watched.user)
        except BaseExceptionGroup as group_of_errors:
            raise group_of_errors.exceptions[0] from None
        await capture.report_dropped(context.report)
        return Ended(
            answer.result(),
            exited.status if exited else None,
            garbled=self._garbled,
            refused=self._refused,
            over_limit=self._over_limit,
            asked=asked,
            memory_known=watched.cgroup is not None,
        )

    async def _end_of_run(self) -> Exited | None:
        """Waits until the child has ended. Returns its exit, or None if its zygote is gone."""
        return await asyncio.shield(self._zygote.exit_of(self._name))

    async def _send_all(self, journal: Replay, message: bytes, lease_handle: LeaseHandle) -> None:
        """Sends the journal and the message, then renewals of the lease and commits until it is cancelled. Without a
        journal, all that the run begins with is sent at once, because each send wakes the child.
        """
        first = self._first_frames()
        if lease_handle.until is not None:
            first += encode(Lease(lease_handle.until))
        if journal is not no_journal:
            await self._send(first)
            async for part in journal():
                entries = iter(part)
                while frames := await next_frames(entries):
                    await self._send(frames)
            first = b""
        await self._send(first + message)
        while True:
            for news in await lease_handle.news():
                await self._send(encode(news))

    def _first_frames(self) -> bytes:
        return b""

    async def _send(self, frames: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the end of the child reports the fault
            async with self._sending:
                await asyncio.get_running_loop().sock_sendall(self._messages.socket, frames)

    async def _end_when_asked(self, supervision: Supervision) -> None:
        """Ends the child on request in three steps: `Abort`, SIGTERM, SIGKILL. No output of the crew can block them."""
        termination = await asyncio.shield(supervision.context.terminator.requested)
        if not termination.at_once:
            cooperative = supervision.grace * COOPERATIVE_SHARE if supervision.cooperative else 0.0
            if cooperative:
                await self._abort(termination, cooperative)
            self._zygote.signal(self._name, signal.SIGTERM, below=True)
            await asyncio.sleep(supervision.grace - cooperative)
        await self._zygote.end(self._name)

    async def _abort(self, termination: Termination, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._send(encode(Abort(termination.error)))
                await asyncio.Event().wait()  # the end of the child cancels this

    async def _listen(self, report: Report, watched: WatchedRun, supervision: Supervision) -> Answer | None:
        """Passes on the messages of the child until it sends no more. Returns its answer."""
        answer: Answer | None = None
        try:
            incoming, count = Incoming(FROM_CHILD, supervision.limits.result_limit), 0
            size = ResultSize(supervision.limits.result_limit)
            with ROOM.share() as share:
                while data := await share.in_time(self._messages.read):
                    for received in incoming.feed(data):
                        work = received.work
                        message = await offload(work, received.message) if work else received.message()
                        if isinstance(message, Event):  # most messages are events
                            if message.type != CONNECTION:  # only the server reports these
                                await report(message)
                        else:
                            await size.check(message)
                            answer = await self._take(message, answer, report, watched, supervision)
                        count += 1
                        if count % MOST_AT_ONCE == 0:  # one read may hold thousands: let other tasks run
                            await asyncio.sleep(0)
                    await share.hold(count, incoming.announced)
        except BadMessage as error:
            self._garbled = True
            if isinstance(error, UnexpectedDescriptors):
                self._refused = UnexpectedDescriptors.words
                logger.event("run.descriptors_refused", run=self._name)
            if isinstance(error, OverLimit):
                self._over_limit = error.words
            await self._zygote.end(self._name)
        return answer

    async def _take(
        self, message: Message, answer: Answer | None, report: Report, watched: WatchedRun, supervision: Supervision
    ) -> Answer | None:
        """Handles a message. Returns the answer that the child has given so far, `answer` if this is none."""
        if isinstance(message, Listening) and self.network is not None:
            self._messages.refuse(self.network.take(self._messages.take_descriptors(then=MOST_DESCRIPTORS)))
        elif isinstance(message, Listening):
            raise BadMessage("sockets of a process that has no network of its own")
        elif isinstance(message, Born):
            if self.network is not None and not self.network.is_connected:
                raise BadMessage("no sockets of a process that has a network of its own")
            self._messages.refuse(watched.take(message, self._messages.take_descriptors()))
        elif isinstance(message, Answer) and not (isinstance(message, Asked) and message.waits):
            answer = None if supervision.context.lease_handle.lapsed else message
            await report(ResultSent(self.takes_more and isinstance(message, Succeeded)))
        else:
            await report(message)
        return answer

    async def _report_stall(self, seconds: float, watched: WatchedRun, supervision: Supervision) -> None:
        if supervision.context.lease_handle.waits_for_person:
            watched.alive_at, watched.stall_reported = time.monotonic(), False
            return
        report = supervision.context.report
        stacks = supervision.secrets.masked(await self._zygote.stacks_of(self._name, watched.stacks))
        await report(Event("stalled", time.time(), {"seconds": round(seconds, 1), "stacks": stacks}))
        await report(
            Warned(
                "stalled",
                f"The run gave no sign of life for {seconds:.0f} s and goes on. Its event `stalled` has the stack of "
                "each of its threads.",
            )
        )


C = TypeVar("C", bound=Child)


@contextlib.asynccontextmanager
async def born(kind: type[C], zygote: Zygote, order: Fork, network: RunNetwork | None = None) -> AsyncIterator[C]:
    """Starts a child, and ends it at the end of the block in all cases. `network` takes the connections to the ports of
    the order. Raises ChildLost when no child could be started.
    """
    channel, far_end = socket.socketpair()
    messages = SocketReader(channel, MOST_DESCRIPTORS if order.ports is None else len(order.ports) + 1)
    made: list[C] = []

    async def end() -> None:
        await zygote.end(order.child)
        await messages.close()
        for child in made:
            child.close()

    with contextlib.ExitStack() as ours:
        try:
            with contextlib.ExitStack() as theirs:
                theirs.enter_context(far_end)
                output, errors = pipe(ours, theirs), pipe(ours, theirs)
                descriptors = [far_end.fileno(), output.write, errors.write]
                process = await zygote.fork(order, descriptors)
            made.append(kind(zygote, order.child, process, messages, output.read, errors.read))
            made[0].network = network
            yield made[0]
        finally:
            await shielded(end())
