"""Shortens the tracebacks of failed runs to what the author of a project can use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FRAME = re.compile(r'  File "(?P<file>.*)", line \d+')
OURS = ("/windlass_child/", "<frozen importlib.")
LIBRARIES = (*OURS, "/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ")
WORD = re.compile(r'[^\s"]+')
CHECKOUT = re.compile(r"/sources/[0-9a-f]{64}(?=/)")
"""The end of the path of a deployed version's folder. Its name is a digest, so its path helps nobody."""


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
    """Returns the traceback with the frames of the project only, and with paths from the project's folder on."""
    return WORD.sub(_from_project_on, "\n".join(without_frames(trace, LIBRARIES)))


def _from_project_on(word: re.Match[str]) -> str:
    """Returns a word without the path of the project's folder in it."""
    text = word[0]
    if "/sources/" not in text:
        return text
    begins = text.index("/")
    ends = [found.end() + 1 for found in CHECKOUT.finditer(text, begins + 1)]
    return text[:begins] + text[ends[-1] :] if ends else text
