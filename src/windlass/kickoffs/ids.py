"""Makes and parses the ids of kickoffs, which have the time of their acceptance."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62

FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)
CLOCKS_APART = timedelta(minutes=5)
"""How far the clocks of two servers may differ. A kickoff has its id from a server, and its time from PostgreSQL."""


def new_id() -> UUID:
    """Returns a UUIDv7 (RFC 9562). Ids sort in the order of their creation, to a quarter of a microsecond of the
    process's clock.
    """
    nanoseconds = time.time_ns()
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    fraction = (rest << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8), "big") >> 2
    return UUID(int=milliseconds << 80 | _VERSION | fraction << 64 | _VARIANT | random)


def parse_id(text: str) -> UUID | None:
    """Returns the id if `text` has the canonical form of a UUID, else None. No other text is an id of Windlass."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text.lower() else None


def accepted_at(kickoff: UUID) -> float:
    """Returns the Unix time in seconds at which the id was created."""
    return (kickoff.int >> 80) / 1000


def first_id(at: datetime, shift: timedelta) -> UUID:
    """Returns the smallest UUIDv7 of the shifted time. For a time outside of the range of UUIDv7, returns the nearest
    one.
    """
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = max(0, min((at - epoch + shift) // timedelta(milliseconds=1), 2**48 - 1))
    return UUID(int=milliseconds << 80)


def id_before(one: UUID) -> UUID:
    return UUID(int=max(one.int - 1, 0))


def id_after(one: UUID) -> UUID:
    return UUID(int=min(one.int + 1, LAST_ID.int))
