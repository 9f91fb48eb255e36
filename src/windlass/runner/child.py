from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from windlass.away import away
from windlass.kickoffs.outcome import Answer, Ended
from windlass.runner.output import Kept
from windlass.runner.readable import Readable, ReadableSocket
from windlass.runner.remembering import next_frames
from windlass.runner.stacks import stacks_of
from windlass.runner.tether import LAPSED
from windlass.runner.uninterrupted import uninterrupted
from windlass.runner.watch import Watched, end_family
from windlass_crewside.frames import BadMessage, Frames, decoded, encode
from windlass_crewside.messages import Abort, Born, Event, Lease, Warned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from windlass.kickoffs.limits import Limits
    from windlass.kickoffs.outcome import Ending
    from windlass.runner.orders import Report
    from windlass.runner.tether import Tether, Ties
    from windlass.runner.watch import Watch
    from windlass.runner.zygote import Zygote
    from windlass_crewside.messages import Remember

COOPERATIVE_SHARE = 0.6
"""Of the grace time: for the run to end by itself, before it is sent SIGTERM."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How a child is seen to its end: by whom, and within what bounds.

    `grace` is in seconds; `cooperative` says that what runs in it can hear a request to end.
    """

    ties: Ties
    watch: Watch
    limits: Limits
    grace: float
    cooperative: bool


class Child:
    """A child that runs, seen from the server: its socket and the two pipes of its output."""

    def __init__(self, zygote: Zygote, name: str, pid: int, channel: socket.socket, output: int, errors: int) -> None:
        self._zygote = zygote
        self._name = name
        self._pid = pid
        self._channel = channel
        self._messages = ReadableSocket(channel)
        self._pipes: dict[Literal["stdout", "stderr"], Readable] = {
            "stdout": Readable(output),
            "stderr": Readable(errors),
        }
        self._sending = asyncio.Lock()
        self._garbled = False

    async def follow(self, journal: Sequence[Remember], order: bytes, seen: Seen) -> Ended:
        """Gives the child what it is to know and its order, and sees it to its end. What is raised by who hears of it
        ends the child, and is raised here.
        """
        watched = Watched(self._pid, seen.limits, seen.ties.ender)
        watched.stalled = lambda silence: self._tell_stall(silence, watched, seen)
        heard = noting_life(watched, seen.ties.report)
        kept = Kept(seen.limits.output_limit)
        try:
            with seen.watch.over(watched), seen.ties.tether.held(partial(self._zygote.lease, self._name)):
                async with asyncio.TaskGroup() as group:
                    giving = group.create_task(self._give_all(journal, order, seen.ties.tether))
                    ending = group.create_task(self._end_when_asked(seen))
                    answer = group.create_task(self._listen(heard, watched, seen.ties.tether))
                    for stream, pipe in self._pipes.items():
                        group.create_task(kept.read(stream, pipe, heard))
                    exited = await self._zygote.exit_of(self._name)
                    if exited is not None and exited.lapsed:
                        seen.ties.ender.end(LAPSED)
                    asked = seen.ties.ender.asked  # what is asked for later is asked of nobody
                    ending.cancel()
                    giving.cancel()
                    for readable in (self._messages, *self._pipes.values()):
                        readable.finish()
                if exited is None:
                    end_family(watched.family)
        except BaseExceptionGroup as group_of_errors:
            raise group_of_errors.exceptions[0] from None
        await kept.tell_what_was_dropped(seen.ties.report)
        return Ended(answer.result(), exited.status if exited else None, garbled=self._garbled, asked=asked)

    async def _give_all(self, journal: Sequence[Remember], order: bytes, tether: Tether) -> None:
        if tether.until is not None:
            await self._give(encode(Lease(tether.until)))
        entries = iter(journal)
        while journal and (frames := await next_frames(entries)):
            await self._give(frames)
        await self._give(order)
        while True:
            for news in await tether.news():
                await self._give(encode(news))

    async def _give(self, frames: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # told by its end
            async with self._sending:
                await asyncio.get_running_loop().sock_sendall(self._channel, frames)

    async def _end_when_asked(self, seen: Seen) -> None:
        """In three steps: by itself, by SIGTERM, by SIGKILL. On ways that what the crew writes can't block."""
        ending = await seen.ties.ender.wait()
        if not ending.at_once:
            by_itself = seen.grace * COOPERATIVE_SHARE if seen.cooperative else 0.0
            if by_itself:
                await self._abort(ending, by_itself)
            self._zygote.signal(self._name, signal.SIGTERM, below=True)
            await asyncio.sleep(seen.grace - by_itself)
        await self._zygote.end(self._name)

    async def _abort(self, ending: Ending, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._give(encode(Abort(ending.error)))
                await asyncio.Event().wait()  # its end cancels this

    async def _listen(self, report: Report, watched: Watched, tether: Tether) -> Answer | None:
        frames, answer = Frames(), None
        try:
            while data := await self._messages.read():
                for body in frames.bodies(data):
                    message = await away(len(body), partial(decoded, body))
                    if isinstance(message, Born):
                        watched.take(message, self._messages.take_descriptors())
                    elif isinstance(message, Answer):
                        answer = None if tether.lapsed else message
                    else:
                        await report(message)
        except BadMessage:
            self._garbled = True
            await self._zygote.end(self._name)
        finally:
            for left in self._messages.take_descriptors():
                os.close(left)
        return answer

    async def _tell_stall(self, seconds: float, watched: Watched, seen: Seen) -> None:
        stacks = await stacks_of(self._zygote, self._name, watched.stacks)
        await seen.ties.report(Event("stalled", time.time(), {"seconds": round(seconds, 1), "stacks": stacks}))
        await seen.ties.report(
            Warned(
                "stalled",
                f"The run gave no sign of life for {seconds:.0f} s and goes on; where each of its threads stood is "
                "kept in its event `stalled`.",
            )
        )


def noting_life(watched: Watched, report: Report) -> Report:
    """A run whose report waits to be written is not silent."""

    async def heard(what: object) -> None:
        with watched.heard():
            await report(what)  # type: ignore[arg-type]  # passed on as it came

    return heard


@contextlib.asynccontextmanager
async def born(zygote: Zygote, name: str, start: str = "fork", lease: float | None = None) -> AsyncIterator[Child]:
    """A new child, dead by the end of the block, however that comes. Raises ChildLost when none could be started."""
    with contextlib.ExitStack() as ours:
        try:
            with contextlib.ExitStack() as theirs:
                channel, far_end = socket.socketpair()
                ours.enter_context(channel).setblocking(False)
                theirs.enter_context(far_end)
                output, errors = pipe(ours, theirs), pipe(ours, theirs)
                pid = await zygote.fork(name, [far_end.fileno(), output.write, errors.write], start, lease)
            yield Child(zygote, name, pid, channel, output.read, errors.read)
        finally:
            await uninterrupted(zygote.end(name))


class Pipe(NamedTuple):
    read: int
    write: int


def pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> Pipe:
    """A pipe to read from here; each end is closed with its stack."""
    made = Pipe(*os.pipe())
    ours.callback(os.close, made.read)
    theirs.callback(os.close, made.write)
    return made
