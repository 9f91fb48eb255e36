from __future__ import annotations

import subprocess
import sys

import pytest

from windlass_child.process.huge_pages import HUGE, places

MAPS = """\
00200000-00800000 rw-p 00000000 00:00 0                                  [heap]
00900000-00c80000 rw-p 00000000 00:00 0 \n\
01000000-01400000 r--p 00000000 00:00 0 \n\
02000000-02400000 rw-p 00000000 fe:00 26933                      /usr/lib/libc.so.6
03000000-03400000 rw-s 00000000 00:01 0                          /dev/zero (deleted)
7f0000001000-7f0000400000 rw-p 00000000 00:00 0 \n"""

FILL = """\
import re, sys
from windlass_child.process.huge_pages import HugePages
filled = bytearray(b"x" * (16 << 20))
pages, steps = HugePages(), 0
while pages:
    pages.step()
    steps += 1
assert filled == b"x" * (16 << 20)
huge = re.search(r"AnonHugePages:\\s+(\\d+)", open("/proc/self/smaps_rollup").read())
print(steps, huge[1])
"""


COLLAPSE = """\
import ctypes, mmap, sys
memory = mmap.mmap(-1, 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(b"x" * (4 << 20))
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
madvise = ctypes.CDLL(None).madvise
madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
sys.exit(madvise(-(-start >> 21) << 21, 2 << 20, 25) != 0)
"""
"""Exits with 0 if the kernel puts the memory of a process into a huge page on request (MADV_COLLAPSE)."""


def test_a_huge_page_fits_only_into_memory_that_is_private_writable_and_of_no_file() -> None:
    assert places(MAPS) == [0x200000, 0x400000, 0x600000, 0xA00000, 0x7F0000200000]
    assert not any(place % HUGE for place in places(MAPS))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_in_use_moves_into_huge_pages_unchanged_where_the_kernel_can() -> None:
    if subprocess.run([sys.executable, "-c", COLLAPSE], check=False).returncode:
        pytest.skip("this kernel puts no memory into huge pages on request")
    done = subprocess.run([sys.executable, "-c", FILL], capture_output=True, text=True, check=True).stdout.split()
    steps, kilobytes = map(int, done)
    assert steps
    assert kilobytes >= 8 << 10
