"""What Linux tells of processes and memory. Of a process that is not dumpable only root is told."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

MB = 1 << 20
PRIVATE = re.compile(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", re.MULTILINE)
PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
RSS = re.compile(r"^Rss:\s+(\d+) kB", re.MULTILINE)
AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB", re.MULTILINE)


def private_memory(pid: int) -> int:
    """Clean and dirty, in bytes."""
    return in_bytes(PRIVATE, rollup(pid))


def proportional_memory(pid: int) -> int:
    return in_bytes(PSS, rollup(pid))


def resident_memory(pid: int) -> int:
    return in_bytes(RSS, rollup(pid))


def available_memory() -> int:
    return in_bytes(AVAILABLE, Path("/proc/meminfo").read_text())


def rollup(pid: int) -> str:
    return Path(f"/proc/{pid}/smaps_rollup").read_text()


def in_bytes(found: re.Pattern[str], text: str) -> int:
    return 1024 * sum(int(kilobytes) for kilobytes in found.findall(text))


def lives(pid: int) -> bool:
    """Not as a zombie, which holds nothing any more."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def below(pid: int) -> list[int]:
    """All processes below it, its children's children too."""
    children: dict[int | None, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        children.setdefault(parent_of(int(path.name)), []).append(int(path.name))
    found, waiting = [], [pid]
    while waiting:
        found += (these := children.get(waiting.pop(), []))
        waiting += these
    return found


ZYGOTE = b"windlass_child/__main__.py"


def zygotes_below(server: int) -> list[int]:
    """Crews run in processes below these."""
    ours = [pid for pid in below(server) if ZYGOTE in command_of(pid)]
    return [pid for pid in ours if parent_of(pid) not in ours]


def written_by(pids: list[int]) -> int:
    """Bytes, since they were started, of those that still run."""
    total = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            total += int(re.findall(r"^wchar: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)[0])
    return total


def command_of(pid: int) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def parent_of(pid: int) -> int | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return None


def descriptors(pid: int) -> list[str]:
    """What each is of: a path, `socket:[number]`, `pipe:[number]`..."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return found
