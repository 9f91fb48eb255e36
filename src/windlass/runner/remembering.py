"""The journal on its way to a child."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass.errors import WindlassError
from windlass_crewside.frames import TooLarge, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_crewside.messages import Remember

AT_ONCE = 1 << 20
"""Bytes that are encoded before they are sent: all of it may be more than memory is to hold twice."""


async def next_frames(entries: Iterator[Remember]) -> bytes:
    """Of as many entries as are encoded at once, none when there are no more. In a thread: they may be large.

    Raises WindlassError for an entry that no frame can hold.
    """
    return await asyncio.to_thread(encoded, entries)


def encoded(entries: Iterator[Remember]) -> bytes:
    frames = bytearray()
    for entry in entries:
        frames += frame_of(entry)
        if len(frames) >= AT_ONCE:
            break
    return bytes(frames)


def frame_of(entry: Remember) -> bytes:
    try:
        return encode(entry)
    except TooLarge as error:
        raise WindlassError(
            f"what the journal holds of {entry.key} can't be given to the crew: {error}.",
            "Start the kickoff anew, and let that step return less, or where it is stored.",
        ) from error
