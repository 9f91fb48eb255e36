"""Where each thread of a child stands, also of one that is blocked in C code: its interpreter writes it on a signal."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from windlass_crewside.messages import DUMP_SIGNAL

if TYPE_CHECKING:
    from windlass.runner.zygote import Zygote

SECONDS = 2.0
LARGEST = 64 * 1024
NONE_CAME = "(the process did not write them)"


async def stacks_of(zygote: Zygote, name: str, file: int | None) -> str:
    """`file` is the descriptor of what the child writes them to, where it has given one."""
    if file is None:
        return NONE_CAME
    before = os.fstat(file).st_size
    zygote.signal(name, DUMP_SIGNAL)
    deadline, seen = time.monotonic() + SECONDS, before
    while time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        now = os.fstat(file).st_size
        if now > before and now == seen:  # it has come to its end
            return os.pread(file, LARGEST, before).decode("utf-8", "replace").strip()
        seen = now
    return NONE_CAME
