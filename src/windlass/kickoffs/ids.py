from __future__ import annotations

import os
import time
from uuid import UUID

_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62


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
