"""Encodes messages as frames, and decodes them.

A frame is a 4-byte big-endian length and that many bytes, ASCII only: a head, which is the JSON {"is": "<type>",
...fields}. In a large frame, and in each frame of an event, fields that are marked Apart follow the head. The head ends
with a newline then, and its member "parts" has their names and lengths. The server bounds the frames that it reads
(windlass.runner.incoming).
A frame to the zygote that carries descriptors (SCM_RIGHTS) carries them with its first byte.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

from windlass_child.protocol.messages import FROM_CHILD, FROM_ZYGOTE, TYPES
from windlass_child.protocol.validation import apart_in, maker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_child.protocol.messages import Message

HEADER = struct.Struct("!I")
LARGEST_FRAME = 256 * 1024 * 1024
"""The most bytes of a frame. A sender does not send a larger one, and a reader takes its length for garbage."""

LARGEST_HEAD = 64 * 1024
"""The most bytes of the head of a frame that the server reads."""
INLINE = 16 * 1024
"""In a frame of more bytes the Apart fields follow the head."""

MAKERS = {name: maker(kind) for name, kind in TYPES.items()}
APART = {name: apart_in(kind) for name, kind in TYPES.items()}
DIVIDED = {name for name, marks in APART.items() if any(mark.always for mark in marks.values())}
ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
NESTED = {"project", "process_environment", "budget"}
BOUNDED = {kind.__name__ for kind in (*FROM_CHILD, *FROM_ZYGOTE)}


class BadMessage(ValueError):  # noqa: N818 - describes the message
    """Bytes on a socket that are no valid message."""


class TooLarge(ValueError):  # noqa: N818 - describes the message
    """A message, or a part of one, that is larger than its kind permits. `size` and `most` are in bytes."""

    def __init__(self, kind: str, size: int, most: int = LARGEST_FRAME) -> None:
        super().__init__(f"a {kind} message of {size} bytes is over the limit of {most}")
        self.size = size
        self.most = most


def encode(message: Message) -> bytes:
    """Returns the frame of a message. Raises TooLarge, and TypeError or ValueError when a field is not JSON."""
    kind, fields = type(message).__name__, _plain(message)
    divided = kind in DIVIDED
    body = b"" if divided else _json({"is": kind, **fields})
    if (divided or len(body) > INLINE) and (parts := _parts(kind, fields)):
        lengths = {name: len(part) for name, part in parts.items()}
        head = _json({"is": kind, "parts": lengths, **{name: fields[name] for name in fields if name not in parts}})
        _check(kind, len(head), LARGEST_HEAD)
        body = b"".join([head, b"\n", *parts.values()])
    elif kind in BOUNDED:
        _check(kind, len(body), LARGEST_HEAD)
    _check(kind, len(body), LARGEST_FRAME)
    return HEADER.pack(len(body)) + body


def _parts(kind: str, fields: dict[str, Any]) -> dict[str, bytes]:
    parts = {}
    for name, mark in APART[kind].items():
        value = fields[name]
        part = b"" if value is None else value.encode("ascii") if mark.raw else _json(value)
        if mark.always or len(part) > INLINE // len(APART[kind]):
            _check(kind, len(part), mark.most)
            parts[name] = part
    return parts


def _json(value: Any) -> bytes:
    return ENCODER.encode(value).encode("ascii")


def _check(kind: str, size: int, most: int) -> None:
    if size > most:
        raise TooLarge(kind, size, most)


def _plain(message: Any) -> dict[str, Any]:
    # dataclasses.asdict copies every value, and fails at a third of the depth that JSON allows.
    values = {name: getattr(message, name) for name in message.__slots__}
    return {name: _plain(value) if name in NESTED else value for name, value in values.items()}


def _text(body: memoryview) -> str:
    try:
        return str(body, "ascii")
    except ValueError:
        raise BadMessage(f"{len(body)} bytes that are no message") from None


def decoded(text: str) -> Message:
    """Returns the message of a frame with this body. Raises BadMessage for one that `encode` did not make."""
    try:
        fields, whole = DECODER.raw_decode(text)
        at = whole
        kind = fields.pop("is")
        for name, length in fields.pop("parts", {}).items():
            start = at + (at == whole)  # after the newline
            at = start + length
            fields[name] = text[start:at] if APART[kind][name].raw else DECODER.raw_decode(text, start)[0]
        message: Message = MAKERS[kind](fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadMessage(f"{len(text)} bytes that are no message") from error
    if at != len(text):
        raise BadMessage(f"{len(text)} bytes that are more than a message")
    return message


def _finite(text: str) -> float:
    """Parses a number of JSON. Raises ValueError for NaN and the infinities, which JSON does not have."""
    if not math.isfinite(value := float(text)):
        raise ValueError
    return value


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


class Frames:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yields the messages that `data` completes. Raises BadMessage; the stream can't be used after that."""
        self._bytes += data
        while (text := self._take()) is not None:
            yield decoded(text)

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
            text = _text(body)  # copied only once: a frame may be very large
        del self._bytes[:end]
        return text
