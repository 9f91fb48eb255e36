"""How messages cross a socket.

A frame is a 4-byte big-endian length and that many bytes of JSON, ASCII only: {"is": "<type>", ...fields}.
Frames to the zygote that carry descriptors (SCM_RIGHTS) carry them with the first byte.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

from windlass_crewside.fields import maker
from windlass_crewside.messages import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_crewside.messages import Message

HEADER = struct.Struct("!I")
LARGEST_FRAME = 256 * 1024 * 1024
"""Bytes; what a sender refuses to send and a reader takes for garbage."""

MAKERS = {name: maker(kind) for name, kind in TYPES.items()}
NESTED = {"project", "surroundings", "budget"}


class BadMessage(ValueError):  # noqa: N818 - said of the message
    """Bytes on a socket that are no message of ours."""


class TooLarge(ValueError):  # noqa: N818 - said of the message
    """A message whose frame would be larger than LARGEST_FRAME. `size` in bytes."""

    def __init__(self, kind: str, size: int) -> None:
        super().__init__(f"a {kind} message of {size} bytes is over the limit of {LARGEST_FRAME}")
        self.size = size


def encode(message: Message) -> bytes:
    """Raises TooLarge, and TypeError or ValueError when a field is not JSON."""
    fields = {"is": type(message).__name__, **_plain(message)}
    body = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(body) > LARGEST_FRAME:
        raise TooLarge(fields["is"], len(body))
    return HEADER.pack(len(body)) + body


def _plain(message: Any) -> dict[str, Any]:
    # not dataclasses.asdict: it copies every value, and ends at a third of the depth that JSON allows
    values = {name: getattr(message, name) for name in message.__slots__}
    return {name: _plain(value) if name in NESTED else value for name, value in values.items()}


def decode(body: bytes | bytearray | memoryview) -> Message:
    """Raises BadMessage for anything that `encode` did not make."""
    return decoded(_text(body))


def _text(body: bytes | bytearray | memoryview) -> str:
    try:
        return str(body, "ascii")
    except ValueError:
        raise BadMessage(f"{len(body)} bytes that are no message") from None


def decoded(text: str) -> Message:
    """As `decode`, of the body as text."""
    try:
        fields = DECODER.decode(text)
        message: Message = MAKERS[fields.pop("is")](fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadMessage(f"{len(text)} bytes that are no message") from error
    return message


def _finite(text: str) -> float:
    """For a number as JSON has it, and for what it has not: NaN and the infinities."""
    if not math.isfinite(value := float(text)):
        raise ValueError
    return value


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


class Frames:
    """Cuts a stream of bytes back into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yields the messages that `data` completes. Raises BadMessage, after which the stream is of no more use."""
        return map(decoded, self.bodies(data))

    def bodies(self, data: bytes) -> Iterator[str]:
        """As `feed`, but each is still to be `decoded`, which for a large one takes a while."""
        self._bytes += data
        while (text := self._take()) is not None:
            yield text

    def _take(self) -> str | None:
        if len(self._bytes) < HEADER.size:
            return None
        (length,) = HEADER.unpack_from(self._bytes)
        if length > LARGEST_FRAME:
            raise BadMessage(f"a frame of {length} bytes is over the limit of {LARGEST_FRAME}")
        end = HEADER.size + length
        if len(self._bytes) < end:
            return None
        with memoryview(self._bytes) as whole, whole[HEADER.size : end] as body:
            text = _text(body)  # copied once: a frame may be as large as memory allows
        del self._bytes[:end]
        return text
