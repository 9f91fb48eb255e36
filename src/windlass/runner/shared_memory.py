"""Attributes shared memory to runs, counts it, and removes it when the run has ended.

The kernel frees the memory of a memfd with the last process that holds it. Files in /dev/shm and System V segments stay
until somebody removes them. Their pages count as memory of a process only while that process has mapped them.
"""

# See docs/decisions/runner.md#shared-memory-belongs-to-the-runs-that-used-it

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import stat
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windlass import log, removal
from windlass.kickoffs.declared_settings import MOST
from windlass.kickoffs.limits import Limits
from windlass.runner.processes import Families, Process, all_processes, users_of
from windlass.runner.scratch import DiskUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from windlass.runner.cgroups import Cgroup

FOLDER = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is
SEGMENTS = Path("/proc/sysvipc/shm")
DELETED = " (deleted)"
BLOCK = 512
MOST_DESCRIPTORS = 4096
"""Descriptors of one process that are examined. Of a process with more, this many are chosen at random, and their sum
is scaled.
"""
SECONDS_FOR_FOLDERS = 0.05
"""How long one look may measure folders in /dev/shm. A run may make thousands of them."""
CLOCK_STEP = 0.05
"""Seconds that the time of a file may be behind the clock."""
NAMED = 6
"""Fields of a line of smaps for a mapping that has a name."""
IPC_RMID = 0

logger = log.logger(__name__)


class File(NamedTuple):
    device: int
    inode: int


class Segment(NamedTuple):
    number: int
    created: int


class Found(NamedTuple):
    """A file in /dev/shm or a segment. `path` is None for a segment, `creator` is 0 for a file."""

    thing: File | Segment
    user: int
    size: int
    changed: float
    path: Path | None = None
    creator: int = 0


@dataclass(eq=False, slots=True)
class Share:
    """The shared memory of one run.

    `user` is the user of the run's processes. `held` maps each file without a name (memfd) that processes of the run
    hold to its size in bytes. `disk` gets the size of the deleted files that they hold.
    """

    user: int
    began: float = field(default_factory=lambda: time.time() - CLOCK_STEP)
    held: dict[File, int] = field(default_factory=dict)
    disk: DiskUse | None = None
    cgroup: Cgroup | None = None
    ended: bool = False


@dataclass(slots=True)
class Belonging:
    """A thing and the runs that it belongs to. `seen` is true once a process of a run was found to use it. Until then
    `runs` are the runs that were in progress when it appeared.
    """

    found: Found
    runs: set[Share]
    seen: bool = False


class SharedMemory:
    """The files in /dev/shm and the System V segments of one runner's runs. Both are called things here.

    A thing that appears during runs belongs to the run that has it open, or to the run whose process made the segment.
    A thing that no process has open belongs to all runs of its user that were in progress then. It counts for a run
    only if there was one such run. It is removed after the end of the last run that it belongs to. Where the user
    runs other programs too, a thing that no run was seen to use may belong to another program and is left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[Share] = set()
        self._known: set[File | Segment] = set()
        self._things: dict[File | Segment, Belonging] = {}

    def begin(self, share: Share) -> None:
        self._runs.add(share)

    def end(self, share: Share) -> None:
        """Removes the shared memory of the run, and its cgroup. Call it when none of its processes is in the run."""
        if share.cgroup is not None:
            share.cgroup.remove()
        try:
            with self._lock:
                self._look()
                share.ended = True
                self._runs.discard(share)
                self._remove_what_is_over()
        finally:
            if share.disk is not None:
                share.disk.close()

    def measure(self, families: Iterable[tuple[Share, list[Process]]]) -> None:
        """Updates which things belong to which runs. `families` are the processes of each run."""
        with self._lock:
            self._look()
            for share, family in families:
                self._attribute(share, family)

    def size_of(self, share: Share) -> dict[File, int]:
        """Returns the files that count for this run with their sizes in bytes, mapped by its processes or not. The size
        of a file that several runs use is divided among them.
        """
        with self._lock:
            own = {
                file_of(one.found.thing): one.found.size // len(one.runs)
                for one in self._things.values()
                if share in one.runs and (one.seen or (len(one.runs) == 1 and share.user != os.geteuid()))
            }
        return {**share.held, **own}

    def _look(self) -> None:
        found = {one.thing: one for one in (*files(), *segments())}
        for thing, one in found.items():
            if thing in self._things:
                self._things[thing].found = one
            elif thing not in self._known:
                runs = {run for run in tuple(self._runs) if run.user == one.user and may_be_of(run, one)}
                if runs:
                    self._things[thing] = Belonging(one, runs)
        self._known = set(found)
        self._things = {thing: one for thing, one in self._things.items() if thing in found}

    def _attribute(self, share: Share, family: list[Process]) -> None:
        pids = {one.pid for one in family}
        for one in self._things.values():
            if one.found.creator in pids:
                _give(one, share)
        unclaimed = any(not one.seen for one in self._things.values())
        held: dict[File, int] = {}
        deleted: dict[File, int] = {}
        for pid in pids:
            used = held_files(pid)
            for file, (size, links) in used.items():
                if file.device == MEMORY:
                    held[file] = size
                elif links == 0 and share.disk is not None and file.device == share.disk.device:
                    deleted[file] = size
            for file in (*used, *(mapped_files(pid, "maps") if unclaimed else ())):
                if file in self._things:
                    _give(self._things[file], share)
        share.held = held
        if share.disk is not None:
            share.disk.deleted = sum(deleted.values())

    def _remove_what_is_over(self) -> None:
        over = [one for one in self._things.values() if all(run.ended for run in one.runs)]
        if not over:
            return
        processes = all_processes()
        in_use = {file for one in processes for file in (*held_files(one.pid), *mapped_files(one.pid, "maps"))}
        for one in over:
            if one.found.thing in in_use:  # the end of the next run examines it again
                continue
            if not (one.seen or only_crews(one.runs, processes)) or not remove(one.found):
                logger.event("shared_memory.left", what=name_of(one.found), size=one.found.size)
            self._things.pop(one.found.thing)


def may_be_of(run: Share, one: Found) -> bool:
    """Returns whether the thing was changed since the run began. The time of a segment is known to a second."""
    return one.changed >= run.began


def _give(one: Belonging, share: Share) -> None:
    if not one.seen:
        one.seen, one.runs = True, {share}
    one.runs.add(share)


def only_crews(runs: set[Share], processes: list[Process]) -> bool:
    """Returns whether these runs and this server are the only programs of the runs' users."""
    users = {run.user for run in runs}
    ours = {one.pid for one in Families(processes).of(os.getpid())} | {1}
    return all(one.pid in ours or not users_of(one.pid) & users for one in processes)


def files() -> Iterator[Found]:
    """Yields the files and folders in /dev/shm. The size of a folder includes its content while there is time to
    measure it.
    """
    deadline = time.monotonic() + SECONDS_FOR_FOLDERS
    with contextlib.suppress(OSError), os.scandir(FOLDER) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                size = found.st_blocks * BLOCK
                if stat.S_ISDIR(found.st_mode) and time.monotonic() < deadline:
                    size += size_below(entry.path)
                thing = File(found.st_dev, found.st_ino)
                yield Found(thing, found.st_uid, size, found.st_ctime, FOLDER / entry.name)


def size_below(folder: str) -> int:
    """Returns the size of the folder's content in bytes, as far as a bounded measurement gets."""
    use = DiskUse.of(Path(folder), Limits(disk_limit=MOST))
    if use is None:
        return 0
    try:
        use.over_a_limit()
        return use.used
    finally:
        use.close()


def segments() -> Iterator[Found]:
    with contextlib.suppress(OSError):
        titles, *rows = SEGMENTS.read_text().splitlines()
        for row in rows:
            values = dict(zip(titles.split(), row.split(), strict=False))
            thing = Segment(int(values["shmid"]), int(values["ctime"]))
            size = int(values["rss"]) + int(values["swap"])
            yield Found(thing, int(values["cuid"]), size, thing.created + 1, creator=int(values["cpid"]))


def held_files(pid: int) -> dict[File, tuple[int, int]]:
    """Returns the files in memory and the deleted files that a process holds open, with their bytes and their number
    of names. Returns no files where /proc can't be read.
    """
    found: dict[File, tuple[int, int]] = {}
    with contextlib.suppress(OSError):
        folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = os.listdir(folder)  # noqa: PTH208 - pathlib has no descriptors
            scale = max(len(names) / MOST_DESCRIPTORS, 1)
            for name in names if scale == 1 else random.sample(names, MOST_DESCRIPTORS):
                with contextlib.suppress(OSError):
                    target = os.readlink(name, dir_fd=folder)
                    if target.startswith(f"{FOLDER}/") or target.endswith(DELETED):
                        status = os.stat(name, dir_fd=folder)
                        if stat.S_ISREG(status.st_mode):
                            size = int(status.st_blocks * BLOCK * scale)
                            found[File(status.st_dev, status.st_ino)] = (size, status.st_nlink)
        finally:
            os.close(folder)
    return found


def mapped_files(pid: int, source: str = "smaps") -> dict[File, int]:
    """Returns the files in memory that a process has mapped, with its share of their pages in bytes (PSS).

    With the source "maps", which is quicker, each share is 0. Returns no files where /proc can't be read.
    """
    found: dict[File, int] = {}
    file = None
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/{source}").open("rb") as lines:
        for line in lines:
            words = line.split(None, 5)
            if words[0] == b"Pss:" and file:
                found[file] += int(words[1]) * 1024
            elif not words[0].endswith(b":"):
                file = None
                if len(words) == NAMED and (words[5].startswith(b"/dev/shm/") or words[5].endswith(b"(deleted)\n")):
                    major, minor = (int(part, 16) for part in words[3].split(b":"))
                    file = File(os.makedev(major, minor), int(words[4]))
                    found.setdefault(file, 0)
    return found


def remove(found: Found) -> bool:
    with contextlib.suppress(OSError):
        if found.path is None:
            assert isinstance(found.thing, Segment)  # noqa: S101 - a thing without a path is a segment
            return remove_segment(found.thing)
        now = found.path.stat(follow_symlinks=False)
        if File(now.st_dev, now.st_ino) != found.thing:
            return False
        if stat.S_ISDIR(now.st_mode):
            removal.remove(found.path)
        else:
            found.path.unlink()
        return True
    return False


def remove_segment(segment: Segment) -> bool:
    """Removes the segment. The kernel keeps the pages of an attached segment until the last process detaches it."""
    return bool(ctypes.CDLL(None).shmctl(segment.number, IPC_RMID, None) == 0)


def memory_device() -> int | None:
    """Returns the device number of files in memory without a name. System V segments have the same one."""
    with contextlib.suppress(OSError, AttributeError):  # only Linux has memfds
        descriptor = os.memfd_create("device")
        try:
            return os.fstat(descriptor).st_dev
        finally:
            os.close(descriptor)
    return None


MEMORY = memory_device()


def file_of(thing: File | Segment) -> File:
    """Returns the file as smaps names it."""
    return thing if isinstance(thing, File) else File(MEMORY or 0, thing.number)


def name_of(found: Found) -> str:
    return str(found.path) if found.path else f"System V segment {found.thing[0]}"
