"""Puts the memory of a zygote into huge pages.

A fork copies one entry of the page table for each page. With huge pages of 2 MB the fork of a zygote takes a third of
the CPU time. A child still copies only the 4 KB that it writes to, so that the memory of children stays the same.
"""

# See docs/decisions/child.md#a-zygote-puts-its-memory-into-huge-pages

from __future__ import annotations

import ctypes
import errno
import re
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

MAPS = Path("/proc/self/maps")
WRITABLE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 ", re.MULTILINE)
"""Memory that belongs to this process alone and to no file."""
HUGE = 2 << 20
MADV_COLLAPSE = 25
TRIES = 4
"""A page that something else uses at the moment can't be moved."""
SLOW = 0.1
"""Seconds of CPU time. A step that takes so long has to make room first, which is not worth the time."""


class HugePages:
    """Puts the present memory of this process into huge pages, one at each `step`, which takes some 4 ms.

    It is false when nothing is left to do, which is at once where the kernel can't: Linux before 6.1, other systems,
    and machines with other sizes of pages.
    """

    def __init__(self) -> None:
        self._left: deque[tuple[int, int]] = deque()
        if sys.platform == "linux":
            with suppress(OSError):
                self._left.extend((place, 1) for place in places(MAPS.read_text()))
            self._advise = ctypes.CDLL(None, use_errno=True).madvise
            self._advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def __bool__(self) -> bool:
        return bool(self._left)

    def step(self) -> None:
        place, tries = self._left.popleft()
        began = time.thread_time()
        if self._advise(place, HUGE, MADV_COLLAPSE) and ctypes.get_errno() == errno.EAGAIN and tries < TRIES:
            self._left.append((place, tries + 1))
        elif time.thread_time() - began > SLOW:
            self._left.clear()


def places(maps: str) -> list[int]:
    """Returns the addresses where a huge page fits, from the content of /proc/<pid>/maps."""
    found: list[int] = []
    for mapping in WRITABLE.finditer(maps):
        start, end = (int(number, 16) for number in mapping.groups())
        found += range(-(-start // HUGE) * HUGE, end - HUGE + 1, HUGE)
    return found
