"""The working folder of a run, as the server reads it: which files the run wrote, and their content.

Crew code fills the folder, and may change it while it is read. Each folder and file is opened by descriptor and never
through a link. Where crews run as another user, all of this happens with the rights of that user.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from windlass.accounts import with_rights_of
from windlass.kickoffs.files import CHUNK, DEEPEST, LeftOut, Spellings, refusal, too_large
from windlass_child.protocol.working_folder import KNOWLEDGE, WORK, is_not_stored, is_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from hashlib import _Hash
    from pathlib import Path

    from windlass.accounts import Account
    from windlass.kickoffs.files import FileLimits

T = TypeVar("T")

MOST_EXAMINED = 10_000
"""Files and folders that one scan looks at. A run may make millions of them."""
SECONDS = 20.0
"""The time limit of one scan, and of one read."""
RECENT = 100_000_000
"""Nanoseconds. Of changes that are closer together, the later one may leave the modification time as it was."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Stamp(NamedTuple):
    """Identifies a state of a file: two equal stamps mean an unchanged file, unless it was changed recently."""

    size: int
    modified: int
    changed: int
    inode: int


@dataclass(slots=True)
class Scan:
    """The files that a run wrote, within the limits. `began` is the time of the scan in nanoseconds. `seen` are all
    files that the run wrote, also those over the limits. `whole` is false if some files may not have been seen.
    """

    began: int
    files: dict[str, Stamp] = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=LeftOut)
    seen: set[str] = field(default_factory=set)
    whole: bool = True

    def is_settled(self, stamp: Stamp) -> bool:
        """Returns whether a later change of the file certainly changes its stamp."""
        return max(stamp.modified, stamp.changed) < self.began - RECENT


class RunFolder:
    """`folder` is the folder of the run, which has the working folder in it. `project` is the folder of the project:
    files that were copied from it unchanged are not files of the run.
    """

    def __init__(self, folder: Path, account: Account | None, project: Path) -> None:
        self._descriptor = os.open(folder / WORK, FOLDER)
        self._account = account
        self._project = str(project)
        self._copied: dict[str, Stamp] = {}
        self._began = time.time_ns() - RECENT

    def close(self) -> None:
        os.close(self._descriptor)

    async def scan(self, limits: FileLimits, known: Collection[str] = ()) -> Scan:
        """Finds the files that the run wrote. `known` are paths that count as written by the run in any case.

        Raises OSError, and TimeoutError when a file system does not answer.
        """
        walk = _Walk(self._project, self._began, frozenset(known), self._copied)

        return await self._in_thread(lambda top: walk.scan(top, limits))

    async def read(self, path: str, stamp: Stamp, at: int, digest: _Hash) -> bytes:
        """Returns the next chunk of a scanned file, b"" at the end of its scanned size, and adds it to the digest.

        Raises OSError when it is another file by now, and TimeoutError when a file system does not answer.
        """
        return await self._in_thread(lambda top: _read(top, path, stamp, at, digest))

    async def digest(self, path: str, stamp: Stamp) -> bytes:
        """Returns the SHA-256 of a scanned file. Raises what `read` raises."""
        return await self._in_thread(lambda top: _digest(top, path, stamp))

    async def write(self, path: str, at: int, chunk: bytes) -> None:
        """Writes a chunk of a file of an earlier attempt. The first one makes the file and its folders."""
        await self._in_thread(lambda top: _write(top, path, at, chunk))

    async def remove(self, path: str) -> None:
        """Removes a file that was not written completely."""
        await self._in_thread(lambda top: _remove(top, path))

    async def _in_thread(self, work: Callable[[int], T]) -> T:
        top = os.dup(self._descriptor)  # a thread that a file system blocks may outlive the run
        try:
            working = with_rights_of(self._account, lambda: work(top))
        except BaseException:
            os.close(top)
            raise
        working.add_done_callback(lambda _: os.close(top))
        async with asyncio.timeout(SECONDS):
            return await asyncio.wrap_future(working)


class _Walk:
    """`copied` are the files that were found to be copies of the project's, for the next scan."""

    def __init__(self, project: str, began: int, known: frozenset[str], copied: dict[str, Stamp]) -> None:
        self._project = project
        self._began = began
        self._known = known
        self._copied = copied

    def scan(self, top: int, limits: FileLimits) -> Scan:
        """Files that are stored already keep their places: a limit leaves out only others, or later content."""
        scan = Scan(time.time_ns())
        found = sorted(self._found(top, scan), key=self._place)
        scan.seen = {path for path, _ in found}
        spellings, count, total = Spellings(), len(self._known & scan.seen if scan.whole else self._known), 0
        for path, stamp in found:
            total += stamp.size if stamp.size <= limits.size else 0
            if why := refusal(path):
                scan.left_out.add(path, why)
            elif same := spellings.take(path):
                scan.left_out.add(path, f"only upper and lower case distinguish it from {same}")
            elif stamp.size > limits.size:
                scan.left_out.add(path, too_large(stamp.size, limits))
            elif total > limits.total:
                scan.left_out.add(path, "all files together exceed WINDLASS_STORED_FILES_SIZE")
                total -= stamp.size
            elif path not in self._known and count >= limits.count:
                scan.left_out.add(path, f"the run wrote more than {limits.count} files, its WINDLASS_STORED_FILES")
            else:
                scan.files[path] = stamp
                count += path not in self._known
        return scan

    def _place(self, file: tuple[str, Stamp]) -> tuple[bool, int, str]:
        path = file[0]
        return path not in self._known, path.count("/"), path

    def _found(self, top: int, scan: Scan) -> Iterator[tuple[str, Stamp]]:
        """Yields the regular files that the run wrote, of at most MOST_EXAMINED entries."""
        device, folders, examined = os.fstat(top).st_dev, deque([""]), 0
        while folders:
            above = folders.popleft()
            for name, found in _entries(top, above, scan):
                examined += 1
                if examined > MOST_EXAMINED:
                    scan.whole = False
                    scan.left_out.add("others", f"the folder has more than {MOST_EXAMINED} files and folders")
                    return
                path = f"{above}{name}"
                if found.st_dev != device or is_not_stored(name):
                    continue
                if stat.S_ISDIR(found.st_mode):
                    if path.count("/") < DEEPEST:
                        folders.append(f"{path}/")
                    else:
                        scan.left_out.add(f"{path}/", f"it has more than {DEEPEST} folders above it")
                elif stat.S_ISREG(found.st_mode) and self._copied.get(path) != (stamp := _stamp(found)):
                    if self._was_there(path, found):
                        self._copied[path] = stamp
                    else:
                        yield path, stamp

    def _was_there(self, path: str, found: os.stat_result) -> bool:
        """Returns whether the file was copied into the folder before the run, with its modification time."""
        if path in self._known:
            return False
        if found.st_mtime_ns < self._began:
            return path.startswith(f"{KNOWLEDGE}/") or self._may_be_copied(path, found.st_size)
        return is_unchanged(self._project, path, found)

    def _may_be_copied(self, path: str, size: int) -> bool:
        """Returns whether the project has a file of this size. The size of one that was changed later is not known."""
        try:
            original = os.lstat(f"{self._project}/{path}")
        except OSError:
            return False
        return original.st_size == size or original.st_mtime_ns >= self._began or not stat.S_ISREG(original.st_mode)


def _entries(top: int, folder: str, scan: Scan) -> Iterator[tuple[str, os.stat_result]]:
    """Yields the entries of a folder below `top`. A folder that can't be opened has none."""
    try:
        descriptor = _opened(top, folder.rstrip("/"), FOLDER)
    except FileNotFoundError:  # it was removed meanwhile
        return
    except OSError as error:
        scan.whole = False
        scan.left_out.add(folder or "the working folder", f"it can't be opened: {error.strerror}")
        return
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # it was removed meanwhile
                    continue
                except OSError as error:
                    scan.whole = False
                    scan.left_out.add(f"{folder}{entry.name}", f"its folder can't be read: {error.strerror}")
                    return
                yield entry.name, found
    finally:
        os.close(descriptor)


def _opened(top: int, path: str, flags: int, *, make: bool = False) -> int:
    """Opens a path below `top`, each of its folders in turn and none through a link."""
    *folders, name = path.split("/") if path else ["."]
    here = os.dup(top)
    try:
        for folder in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700, dir_fd=here)
            above, here = here, os.open(folder, FOLDER, dir_fd=here)
            os.close(above)
        return os.open(name, flags, 0o600, dir_fd=here)
    finally:
        os.close(here)


def _read(top: int, path: str, stamp: Stamp, at: int, digest: _Hash) -> bytes:
    descriptor = _opened(top, path, os.O_RDONLY | FILE)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_ino != stamp.inode:
            raise OSError(errno.ESTALE, "it was replaced while it was read")
        chunk, wanted = bytearray(), min(CHUNK, stamp.size - at)
        while len(chunk) < wanted and (part := os.pread(descriptor, wanted - len(chunk), at + len(chunk))):
            chunk += part
    finally:
        os.close(descriptor)
    if len(chunk) < wanted:
        raise OSError(errno.ESTALE, "it changed while it was read")
    digest.update(chunk)
    return bytes(chunk)


def _digest(top: int, path: str, stamp: Stamp) -> bytes:
    digest, at = hashlib.sha256(), 0
    while chunk := _read(top, path, stamp, at, digest):
        at += len(chunk)
    return digest.digest()


def _remove(top: int, path: str) -> None:
    folder, _, name = path.rpartition("/")
    descriptor = _opened(top, folder, FOLDER)
    try:
        os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _write(top: int, path: str, at: int, chunk: bytes) -> None:
    new = os.O_CREAT | os.O_EXCL if at == 0 else 0
    descriptor = _opened(top, path, os.O_WRONLY | FILE | new, make=at == 0)
    try:
        done = 0
        while done < len(chunk):
            done += os.pwrite(descriptor, chunk[done:], at + done)
    finally:
        os.close(descriptor)


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
