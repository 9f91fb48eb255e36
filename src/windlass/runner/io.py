"""Reads sockets and pipes of children, captures their output, and encodes the journal for a child."""

# See docs/decisions/runner.md#data-of-crews-is-peeked-at-before-it-is-read

from __future__ import annotations

import asyncio
import os
import select
import socket
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from windlass.aio import offload
from windlass.errors import WindlassError
from windlass.kickoffs.limits import WHERE
from windlass.runner.descriptors import CHUNK, let_go, size_of_next
from windlass.runner.run_spec import Output
from windlass_child.protocol.frames import BadMessage, TooLarge, encode
from windlass_child.protocol.messages import Warned
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator, Sequence

    from windlass.runner.run_spec import Report
    from windlass_child.masking.secret_values import SecretValues
    from windlass_child.protocol.messages import Answered, JournalReplay


MOST_AT_ONCE = 253
"""The most descriptors that the kernel permits in one message (SCM_MAX_FD)."""
MOST_READS = 4
"""Reads in a row before other tasks of the event loop run."""
MOST_LEFT = 4 << 20
"""Bytes that are read after the end of a run. A pipe and a socket hold less."""

CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class FdReader:
    """Reads a descriptor that others own and write to.

    After `finish()` the reader returns the bytes that are there, MOST_LEFT of them at most, and waits for no more: a
    process that outlives a child may hold the other end, and write to it, for ever.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._finishing = False
        self._left = MOST_LEFT
        self._at_once = 0
        self._is_drained = False
        """Whether the last read was short. Then probably no bytes are left, and the next read waits first."""
        self._wake = asyncio.Event()

    async def read(self) -> bytes:
        """Returns the next bytes; none at the end."""
        while True:
            if self._is_drained and not self._finishing:
                await self._wait()
                self._at_once = 0
            self._at_once += 1
            if self._at_once > MOST_READS:  # a writer may never stop: let other tasks run
                self._at_once = 0
                await asyncio.sleep(0)
            try:
                data = self._take()
            except BlockingIOError:
                if self._finishing:
                    return b""
                self._is_drained = True
            except ConnectionResetError:
                return b""
            else:
                self._is_drained = 0 < len(data) < CHUNK
                self._left -= len(data) if self._finishing else 0
                return data if self._left >= 0 else b""

    def _take(self) -> bytes:
        return os.read(self._descriptor, CHUNK)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._wake.clear()
        loop.add_reader(self._descriptor, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            loop.remove_reader(self._descriptor)

    def finish(self) -> None:
        self._finishing = True
        self._wake.set()

    def resume(self) -> None:
        """Undoes `finish`."""
        self._finishing, self._left = False, MOST_LEFT


class UnexpectedDescriptors(BadMessage):
    """Code of a crew sent descriptors (SCM_RIGHTS) that no message of Windlass carries. `words` are for the person who
    started the kickoff.
    """

    words = (
        "the crew's code sent open files or sockets to the server, which accepts none. "
        "Look for socket.send_fds and socket.sendmsg."
    )


class SocketReader(FdReader):
    """Reads a socket that code of a crew can send to. `expected` is how many descriptors may arrive before
    `take_descriptors`.

    Any others end the reading with UnexpectedDescriptors. They stay in the socket, which only `close` may close.
    """

    def __init__(self, given: socket.socket, expected: int = 0) -> None:
        super().__init__(given.fileno())
        self.socket = given
        self._expected = expected
        self._kept: list[int] = []
        self._unused: list[int] = []

    def take_descriptors(self, *, then: int = 0) -> list[int]:
        """Returns the descriptors that arrived so far. After this call `then` further ones are accepted."""
        kept, self._kept, self._expected = self._kept, [], then
        return kept

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent that is not read yet, and the other side is still there."""
        try:
            size_of_next(self.socket)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def refuse(self, descriptors: Sequence[int]) -> None:
        """Adds descriptors for `close` to close."""
        self._unused += descriptors

    async def close(self) -> None:
        await let_go(self.socket, [*self._kept, *self._unused])

    def _take(self) -> bytes:
        size = size_of_next(self.socket)
        if size is not None:
            return self.socket.recv(size) if size else b""
        if not self._expected:
            raise UnexpectedDescriptors("descriptors that were not expected")
        # Room for all descriptors of one message: the kernel would close those without room in this process.
        data, descriptors, _, _ = socket.recv_fds(self.socket, CHUNK, MOST_AT_ONCE, CLOSE_ON_EXEC)
        self._kept += descriptors
        if len(self._kept) > self._expected:
            raise UnexpectedDescriptors(f"{len(self._kept)} descriptors in place of {self._expected}")
        return data


def is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class Pipe(NamedTuple):
    read: int
    write: int


def pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> Pipe:
    """Makes a pipe that this process reads. Each end is closed with its stack."""
    made = Pipe(*os.pipe())
    ours.callback(os.close, made.read)
    theirs.callback(os.close, made.write)
    return made


LONGEST_LINE = 8 * 1024
"""Bytes of a line that are kept."""

MOST_FORMS = 20
"""The forms in which a secret is searched for: what is read before the first search, for each byte of it."""

CUT = " [... cut by Windlass: the line is longer than 8 KB]"


class LineSplitter:
    """Splits a stream of bytes into lines of text. Drops the rest of a line over LONGEST_LINE, and marks the line with
    CUT.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._too_long = False

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that `data` completes."""
        *ended, rest = data.split(b"\n")
        lines = []
        for part in ended:
            self._grow(part)
            lines.append(self._take())
        self._grow(rest)
        return lines

    def end(self) -> list[str]:
        """Returns the last line if it has no line end."""
        return [self._take()] if self._line else []

    def _grow(self, part: bytes) -> None:
        self._line += part[: LONGEST_LINE + 1]
        if len(self._line) > LONGEST_LINE:
            del self._line[LONGEST_LINE:]
            self._too_long = True

    def _take(self) -> str:
        mark = CUT if self._too_long else ""
        # A cut may have split a character.
        text = self._line.decode("utf-8", "ignore" if self._too_long else "replace")
        self._line.clear()
        self._too_long = False
        return text.removesuffix("\r") + mark


class OutputCapture:
    """Reports the lines that a run prints, without the values of its secret variables, up to its output_limit (bytes,
    both streams together).

    The rest is read and dropped: an unread pipe would block the run.
    """

    def __init__(self, limit: int | None, secrets: SecretValues) -> None:
        self._limit = limit
        self._room = limit
        self._dropped = 0
        self._secrets = secrets

    async def read(self, stream: Literal["stdout", "stderr"], pipe: FdReader, report: Report) -> None:
        lines = LineSplitter()
        data = await pipe.read()
        masked = await offload(self._secrets.size * MOST_FORMS, self._secrets.stream)
        while data:
            for line in lines.feed(self._take(masked.feed(data) if self._room != 0 else data)):
                await report(Output(stream, line, time.time()))
            data = await pipe.read()
        for line in [*lines.feed(self._take(masked.end())), *lines.end()]:
            await report(Output(stream, line, time.time()))

    async def report_dropped(self, report: Report) -> None:
        if self._dropped and self._limit is not None:
            printed = size_in_words(self._limit + self._dropped)
            await report(
                Warned(
                    "output_cut",
                    f"The run printed {printed}; its output after the first {size_in_words(self._limit)} "
                    f"(output_limit) was dropped. Print less, or raise output_limit {WHERE}.",
                )
            )

    def _take(self, data: bytes) -> bytes:
        if self._room is None:
            return data
        kept = data[: self._room]
        self._room -= len(kept)
        self._dropped += len(data) - len(kept)
        return kept


AT_ONCE = 1 << 20
"""Bytes that are encoded before they are sent. A whole journal may be too large to be in memory twice."""


async def next_frames(entries: Iterator[JournalReplay | Answered]) -> bytes:
    """Returns the frames of the next entries, about AT_ONCE bytes; none at the end. Encodes them in a thread, because
    they may be large.

    Raises WindlassError for an entry that no frame can hold.
    """
    return await asyncio.to_thread(encoded, entries)


def encoded(entries: Iterator[JournalReplay | Answered]) -> bytes:
    frames = bytearray()
    for entry in entries:
        frames += frame_of(entry)
        if len(frames) >= AT_ONCE:
            break
    return bytes(frames)


def frame_of(entry: JournalReplay | Answered) -> bytes:
    try:
        return encode(entry)
    except TooLarge as error:
        raise WindlassError(
            f"the journal entry of {getattr(entry, 'key', 'an answer')} can't be sent to the crew: {error}.",
            "Start the kickoff anew, and let that step return less, or the place where its data is stored.",
        ) from error
