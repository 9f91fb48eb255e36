"""Reads the messages of children and zygotes within bounds: code of a crew may have written any of them.

The server parses the head of a message, which is short. The type of the message bounds the parts that the head
announces. The server passes large parts on undecoded: parsing JSON of many small values takes thirty times its size in
memory.
"""

# See docs/decisions/runner.md#large-values-follow-the-head-of-their-message

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from windlass.aio import offload
from windlass_child.process.budget import hint
from windlass_child.protocol.fields import DEEPEST
from windlass_child.protocol.frames import APART, DECODER, HEADER, LARGEST_FRAME, LARGEST_HEAD, MAKERS, BadMessage
from windlass_child.protocol.messages import Event, Succeeded, TaskEnded
from windlass_child.protocol.sizes import size_in_words
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from windlass_child.protocol.fields import Text
    from windlass_child.protocol.messages import Message
    from windlass_child.protocol.validation import Apart

HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
"""Matches the escape of half a surrogate pair, which is no character."""
BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""Matches a string without its end too: the search would begin again at each of its quotes. Such JSON is refused."""
CHARACTERS = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+')
HIGH_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
MASK = b"\xff\xff"
"""Bytes that no message has: all are ASCII."""
PIECE = 256 * 1024
ESCAPE = 6
STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
REFUSED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class OverLimit(BadMessage):
    """A message that is larger than its type permits. `words` are for the person who started the kickoff."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.words = f"{message}. {hint}"


class Room:
    """Bounds the bytes of large messages that all runs of this process have begun to send and that are not stored yet.

    A message that is larger than the whole room waits until it is the only one.
    """

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.contextmanager
    def share(self) -> Iterator[Share]:
        share = Share(self)
        try:
            yield share
        finally:
            share.release()

    async def take(self, size: int) -> int:
        """Waits for this many bytes of room, first come, first served. Returns the bytes that were taken."""
        size = min(size, self._size)
        if self._waiting or size > self._free:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.release(size)
                raise
        else:
            self._free -= size
        return size

    def release(self, size: int) -> None:
        self._free += size
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= wanted
                turn.set_result(None)


class Share:
    """The part of the room that one run holds, with a deadline: a run that stops in the middle of a message keeps the
    others waiting.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._held = 0
        self._number = -1
        self._until: float | None = None

    async def hold(self, number: int, announced: int) -> None:
        """Waits for room for the message with this number. `announced` is the bytes of its parts, 0 for none."""
        if self._held and number == self._number:
            return
        self.release()
        if announced > LARGE:
            self._held, self._number = await self._room.take(announced), number
            self._until = asyncio.get_running_loop().time() + SECONDS_FOR_A_MESSAGE

    def release(self) -> None:
        held, self._held, self._until = self._held, 0, None
        if held:
            self._room.release(held)

    async def in_time(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """Returns what `read` returns. Raises OverLimit when the rest of a large message does not arrive in time."""
        if self._until is None:
            return await read()
        try:
            async with asyncio.timeout_at(self._until):
                return await read()
        except TimeoutError:
            words = f"its process did not send the rest of a message within {SECONDS_FOR_A_MESSAGE:.0f} s"
            raise OverLimit(words, LOOK) from None


FEW = 4096
"""Bytes that are read at once, without a count of the work."""
LARGE = 1 << 20
"""Bytes from which on a message takes room."""
SECONDS_FOR_A_MESSAGE = 60.0
ROOM = Room(128 << 20)
MOST_AT_ONCE = 64
"""Messages that are passed on before other tasks of the event loop run."""


class Received:
    """A complete message. `parts` are the fields that followed its head."""

    def __init__(self, kind: str, fields: dict[str, Any], parts: dict[str, bytearray]) -> None:
        self._kind = kind
        self._fields = fields
        self._parts = parts

    @property
    def work(self) -> int:
        """The bytes that `message` reads one by one, 0 if they are few."""
        if sum(map(len, self._parts.values())) < FEW:
            return 0
        read = sum(len(part) for name, part in self._parts.items() if APART[self._kind][name].read or may_halve(part))
        nested = [part for part in self._parts.values() if self._kind == "Event" and brackets(part) > DEEPEST]
        return read + sum(map(len, nested)) * 16

    def message(self) -> Message:
        """Raises BadMessage."""
        try:
            return self._message()
        except REFUSED as error:
            raise BadMessage(f"a {self._kind} message that is none") from error

    def _message(self) -> Message:
        kept: dict[str, Encoded] = {}
        for name, part in self._parts.items():
            if name == "record":  # only a child reads it
                self._fields[name] = str(part, "ascii")
            elif APART[self._kind][name].read:
                self._fields[name] = DECODER.decode(str(whole(part), "ascii"))
            else:
                self._fields[name] = kept[name] = Encoded(whole(part))
        if isinstance(text := self._fields.get("structured"), str):  # JSON in the JSON of the head
            self._fields["structured"] = str(whole(text.encode("ascii")), "ascii")
        message: Message = MAKERS[self._kind](self._fields)
        check_kept(message, kept)
        return message


class Incoming:
    """Splits a stream of bytes into messages of the given types. `result_limit` is the run's limit in bytes."""

    def __init__(self, kinds: tuple[type[Any], ...], result_limit: int | None = None) -> None:
        self._kinds = {kind.__name__ for kind in kinds}
        self._result_limit = result_limit
        self._buffer = bytearray()
        self._at = 0
        """The offset of the first byte in the buffer that is not taken yet."""
        self._kind = ""
        self._fields: dict[str, Any] = {}
        self._missing: list[tuple[str, int]] = []
        self._parts: dict[str, bytearray] = {}

    @property
    def announced(self) -> int:
        """The bytes of the parts of a message that is not complete yet."""
        return sum(map(len, self._parts.values())) + sum(length for _, length in self._missing)

    def feed(self, data: bytes) -> Iterator[Received]:
        """Yields the messages that `data` completes. Raises BadMessage; the stream can't be used after that."""
        self._buffer += data
        try:
            while self._missing or self._take_head():
                if self._missing and not self._take_parts():
                    return
                parts, self._parts = self._parts, {}
                yield Received(self._kind, self._fields, parts)
        finally:
            del self._buffer[: self._at]
            self._at = 0

    def _take_head(self) -> bool:
        start = self._at + HEADER.size
        if len(self._buffer) < start:
            return False
        (length,) = HEADER.unpack_from(self._buffer, self._at)
        if length > LARGEST_FRAME:
            raise OverLimit(f"its process sent a message of {size_in_words(length)}", LOOK)
        end = start + length
        newline = self._buffer.find(b"\n", start, start + min(length, LARGEST_HEAD))
        if newline < 0 and length > LARGEST_HEAD and len(self._buffer) >= start + LARGEST_HEAD:
            raise OverLimit(f"its process sent a message of {size_in_words(length)} without parts", LOOK)
        if newline < 0 and (length > LARGEST_HEAD or len(self._buffer) < end):
            return False
        head = bytes(self._buffer[start : newline if newline >= 0 else end])
        self._at = start + len(head) + (newline >= 0)
        self._announce(head, length - len(head) - (newline >= 0))
        return True

    def _announce(self, head: bytes, rest: int) -> None:
        try:
            text = str(whole(head), "ascii")
            self._fields, end = DECODER.raw_decode(text)
            if end != len(text):
                raise ValueError
            self._kind = self._fields.pop("is")
            lengths = self._fields.pop("parts", {})
            if self._kind not in self._kinds or any(type(length) is not int for length in lengths.values()):
                raise ValueError
            for name, length in lengths.items():
                self._check(name, length, APART[self._kind][name])
        except OverLimit:
            raise
        except REFUSED as error:
            raise BadMessage(f"{len(head)} bytes that are no message") from error
        if sum(lengths.values()) != rest or any(length <= 0 for length in lengths.values()):
            raise BadMessage("a message whose parts are not as long as it")
        self._missing = list(lengths.items())

    def _check(self, name: str, length: int, mark: Apart) -> None:
        most = mark.most
        if self._kind == Succeeded.__name__ and self._result_limit is not None:
            structured = "structured" in self._fields or name == "structured"
            most = min(most, most_of_result(self._result_limit, name, structured=structured))
            if length > most:
                raise over_result_limit(self._result_limit)
        if length > most:
            what = f"its process sent a {self._kind} message of {size_in_words(length)}"
            raise OverLimit(f"{what}; the limit is {size_in_words(most)}", LOOK)

    def _take_parts(self) -> bool:
        while self._missing:
            name, length = self._missing[0]
            part = self._parts.get(name)
            chunk = self._buffer[self._at : self._at + length - len(part or b"")]
            if not chunk.isascii():
                raise BadMessage(f"bytes in a {self._kind} message that are not ASCII")
            self._at += len(chunk)
            if part is None:
                self._parts[name] = part = chunk
            else:
                part += chunk
            if len(part) < length:
                return False
            del self._missing[0]
        return True


LOOK = "Look for code that writes to the socket which the process reports on (os.write)."

WIDEST = 3
"""The most bytes of ASCII JSON for one byte of text in UTF-8. Control characters are an exception: UTF-8 JSON escapes
them too.
"""


def most_of_result(limit: int, name: str, *, structured: bool) -> int:
    """Returns the most bytes that this part of a result can have when the result is within its limit."""
    if name == "structured":
        return limit
    return 2 * limit + 2 if structured else WIDEST * limit + 2


def may_halve(part: bytes | bytearray) -> bool:
    """Returns whether JSON may contain a half of a surrogate pair."""
    return b"\\ud" in part or b"\\uD" in part


def whole(part: bytes | bytearray) -> bytes | bytearray:
    """Replaces each half of a surrogate pair in JSON by U+FFFD, of the same length.

    A crew's text may be cut within a character. Halves can't be encoded as UTF-8, and strict clients refuse their JSON.
    """
    if not may_halve(part):
        return part
    other = part.replace(rb"\\", MASK)  # after an escaped backslash, `u` begins no escape
    return HALF.sub(rb"\\ufffd", other).replace(MASK, rb"\\")


def brackets(part: bytes | bytearray) -> int:
    return part.count(b"[") + part.count(b"{")


def check_kept(message: Message, kept: dict[str, Encoded]) -> None:
    """Raises ValueError for a part of another JSON type than its field. PostgreSQL checks only that a part is JSON."""
    for name, encoded in kept.items():
        if isinstance(message, Event):
            if encoded.data[:1] != b"{" or (brackets(encoded.data) > DEEPEST and too_deep(encoded.data)):
                raise ValueError
        elif name in ("output", "draft") and encoded.data[:1] != b'"':
            raise ValueError


def too_deep(data: bytes | bytearray) -> bool:
    """Returns whether more than DEEPEST brackets are open at once."""
    bare = STRING.sub(b"", data).translate(None, BRACKETS)
    return max(accumulate((STEP[byte] for byte in bare), initial=0)) > DEEPEST


class ResultSize:
    """Enforces the `result_limit` of a run (bytes, None for none). A child enforces it too, unless crew code has
    changed the child.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._over: set[int] = set()

    async def check(self, message: Message) -> None:
        """Raises OverLimit for a result that is too large. A result may be a task's output that was sent before."""
        if isinstance(message, TaskEnded):
            self._over.discard(message.position)
            if message.output is not None and await self._exceeds(message.output):
                self._over.add(message.position)
        elif isinstance(message, Succeeded):
            await self._check(message)

    async def _check(self, result: Succeeded) -> None:
        over = False
        if result.structured is not None:
            over = self._limit is not None and len(result.structured) > self._limit
        elif result.output_of is not None:
            over = result.output_of in self._over
        else:
            over = await self._exceeds(result.output)
        if over:
            raise over_result_limit(self._limit or 0)

    async def _exceeds(self, output: Text) -> bool:
        if self._limit is None or len(output) < self._limit // 6:
            return False
        if isinstance(output, str):
            return len(json.dumps(output, ensure_ascii=False).encode("utf-8", "surrogatepass")) > self._limit
        if len(output) <= self._limit:
            return False
        try:
            return await offload(len(output), lambda: utf8_size(output)) > self._limit
        except ValueError as error:
            raise BadMessage("text that is no JSON string") from error


def over_result_limit(limit: int) -> OverLimit:
    return OverLimit(f"its result is larger than its limit of {size_in_words(limit)}", hint("result_limit"))


def utf8_size(text: Encoded) -> int:
    """Returns the bytes of a JSON string with its characters in UTF-8, the measure of a result. Raises ValueError when
    it is no JSON string.
    """
    data, at, size = text.data, 1, 2
    while at < len(data) - 1:
        whole = CHARACTERS.match(data, at, min(at + PIECE, len(data) - 1))
        end = whole.end() if whole else at
        if HIGH_HALF.fullmatch(data, max(at, end - ESCAPE), end) and end < len(data) - 1 and end - at > ESCAPE:
            end -= ESCAPE  # the other half of the character is in the next piece
        if end == at:
            raise ValueError
        piece = json.loads(b'"' + data[at:end] + b'"', strict=False)
        size += len(json.dumps(piece, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2
        at = end
    return size
