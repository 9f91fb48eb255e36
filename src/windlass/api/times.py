from __future__ import annotations

from datetime import UTC, datetime


def utc(at: datetime) -> str:
    """`2026-01-15T09:30:00.000000Z`."""
    return f"{at.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z"
