"""Writes sizes as people read them."""

from __future__ import annotations

UNITS = (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))


def size_in_words(size: float) -> str:
    """Returns a size as limits are written: `512 MB`, `1.5 GB`."""
    for unit, factor in UNITS:
        if size >= factor:
            return f"{round(size / factor, 1):g} {unit}"
    return f"{size:.0f} bytes"
