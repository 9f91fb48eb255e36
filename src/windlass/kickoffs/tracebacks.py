"""Shortens the tracebacks of failed runs to what the author of a project can use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FRAME = re.compile(r'  File "(?P<file>.*)", line \d+')
OURS = ("/windlass_child/", "<frozen importlib.")
LIBRARIES = (*OURS, "/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")


def without_frames(trace: str, files: Sequence[str] = OURS) -> list[str]:
    """Returns the lines of a traceback, except the frames in files whose path has one of these parts."""
    lines, left_out = [], False
    for line in trace.splitlines():
        if frame := FRAME.match(line):
            left_out = any(part in frame["file"] for part in files)
        elif not line.startswith("    "):
            left_out = False
        if not left_out:
            lines.append(line)
    return lines


def own_frames(trace: str) -> str:
    """Returns the traceback with the frames of the project only."""
    return "\n".join(without_frames(trace, LIBRARIES))
