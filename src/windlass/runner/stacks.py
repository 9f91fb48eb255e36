"""Where each thread of a child stands, also of one that is blocked in C code: its interpreter writes it on a signal."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from windlass_crewside.messages import DUMP_SIGNAL, STACKS

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.runner.zygote import Zygote

SECONDS = 2.0
LARGEST = 64 * 1024
NONE_CAME = "(the process did not write them)"


async def stacks_of(zygote: Zygote, name: str, folder: Path) -> str:
    file = folder / STACKS
    before = size(file)
    zygote.signal(name, DUMP_SIGNAL)
    deadline, seen = time.monotonic() + SECONDS, before
    while time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        now = size(file)
        if now > before and now == seen:  # it has come to its end
            return await asyncio.to_thread(read, file, before)
        seen = now
    return NONE_CAME


def size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def read(file: Path, offset: int) -> str:
    with file.open("rb") as opened:
        opened.seek(offset)
        return opened.read(LARGEST).decode("utf-8", "replace").strip()
