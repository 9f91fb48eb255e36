from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import psutil

from patience import DEADLINE

PROGRAM = "windlass_child/__main__.py"
_of_others: dict[Path, set[int]] = {}


def alive(pid: int) -> bool:
    """Whether it runs: a process that has ended and waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def gone(*pids: int) -> None:
    """Waits until none of them runs."""
    async with asyncio.timeout(DEADLINE):
        while any(alive(pid) for pid in pids):  # noqa: ASYNC110 - nothing tells of the end of a process of others
            await asyncio.sleep(0.01)


def folders(scratch: Path) -> list[str]:
    return [path.name for path in scratch.iterdir() if path.is_dir()]


def kickoff_folders(scratch: Path) -> list[str]:
    """Folders of runs, within those of their zygotes and, with `reuse`, of their processes."""
    below = [scratch / path for path in paths_below(scratch, depth=4)]
    found = [path for path in below if path.name.startswith("k") and (path / "work").exists()]
    return [path.name for path in found if path.is_dir()]


def paths_below(folder: Path, depth: int = 100) -> list[str]:
    """Paths of all files and folders. `Path.rglob` raises an error for a folder that is removed meanwhile."""
    found = []
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        found += [(here / name).as_posix() for name in (*folders, *files)]
        if len(here.parts) >= depth - 1:
            folders.clear()
    return found


def zygotes(scratch: Path) -> list[psutil.Process]:
    """Those of the runner with this folder: other tests in this process have theirs."""
    others = _of_others.get(scratch, ())
    return [child for child in psutil.Process().children() if child.pid not in others and works_in(child, scratch)]


def note_others(scratch: Path) -> None:
    """Before a runner has this folder: whatever runs by now is not its own."""
    _of_others[scratch] = {child.pid for child in psutil.Process().children()}


def works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()).is_relative_to(folder)
    except psutil.AccessDenied:  # it is not dumpable, and we are not root: then all but the one that is kept for crews
        return PROGRAM in words_of(process) and process.cmdline()[-1] != "crewai"
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False


def words_of(process: psutil.Process) -> str:
    """What it was started with, and in: nothing of what is closed to us."""
    words: list[str] = []
    for read in (process.cmdline, process.environ, process.cwd):
        with suppress(psutil.Error, OSError):
            words.append(str(read()))
    return " ".join(words)
