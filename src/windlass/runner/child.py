from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from windlass.kickoffs.outcome import Answer, Ended
from windlass.runner.lines import Lines
from windlass.runner.orders import Output
from windlass.runner.readable import Readable
from windlass_crewside.messages import BadMessage, Frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from windlass.runner.orders import Report
    from windlass.runner.zygote import Zygote


class Child:
    """A child that runs, seen from the server: its socket and the two pipes of its output."""

    def __init__(self, zygote: Zygote, name: str, channel: socket.socket, output: int, errors: int) -> None:
        self._zygote = zygote
        self._name = name
        self._channel = channel
        self._messages = Readable(channel.fileno())
        self._pipes: dict[Literal["stdout", "stderr"], Readable] = {
            "stdout": Readable(output),
            "stderr": Readable(errors),
        }
        self._garbled = False

    async def follow(self, order: bytes, report: Report) -> Ended:
        """Gives the child its order, and sees it to its end. What `report` raises ends the child, and is raised."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._give(order))
                answer = group.create_task(self._listen(report))
                for stream, pipe in self._pipes.items():
                    group.create_task(read_lines(stream, pipe, report))
                status = await self._zygote.status_of(self._name)
                for readable in (self._messages, *self._pipes.values()):
                    readable.finish()
        except BaseExceptionGroup as group_of_errors:
            raise group_of_errors.exceptions[0] from None
        return Ended(answer.result(), status, garbled=self._garbled)

    async def _give(self, order: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # told by its end
            await asyncio.get_running_loop().sock_sendall(self._channel, order)

    async def _listen(self, report: Report) -> Answer | None:
        frames, answer = Frames(), None
        try:
            while data := await self._messages.read():
                for message in frames.feed(data):
                    if isinstance(message, Answer):
                        answer = message
                    else:
                        await report(message)
        except BadMessage:
            self._garbled = True
            await self._zygote.end(self._name)
        return answer


async def read_lines(stream: Literal["stdout", "stderr"], pipe: Readable, report: Report) -> None:
    lines = Lines()
    while data := await pipe.read():
        for line in lines.feed(data):
            await report(Output(stream, line, time.time()))
    for line in lines.end():
        await report(Output(stream, line, time.time()))


@contextlib.asynccontextmanager
async def born(zygote: Zygote, name: str) -> AsyncIterator[Child]:
    """A new child, dead by the end of the block, however that comes. Raises ChildLost when none could be started."""
    with contextlib.ExitStack() as ours:
        try:
            with contextlib.ExitStack() as theirs:
                channel, far_end = socket.socketpair()
                ours.enter_context(channel).setblocking(False)
                theirs.enter_context(far_end)
                output, errors = pipe(ours, theirs), pipe(ours, theirs)
                await zygote.fork(name, [far_end.fileno(), output.write, errors.write])
            yield Child(zygote, name, channel, output.read, errors.read)
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


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Completes the work even when its caller is cancelled; the cancellation goes on after it."""
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
