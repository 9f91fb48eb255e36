"""Snapshots of a project's files: they are packed by a client, accepted by a server, and unpacked by a worker.

A snapshot is a zip with its files in the order of their paths, without times and owners. It is identified by its
digest, which covers paths, contents, executable bits and targets of links, but not the bytes of the zip.
"""

# See docs/decisions/deployments.md#a-checkout-is-read-only-and-compared-once

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING

from windlass.errors import ProjectError
from windlass.projects.archive import (
    CHUNK,
    LARGEST,
    LARGEST_UNPACKED,
    MARK,
    MB,
    Entry,
    check_ratio,
    checked,
    link_target,
    opened,
    too_large,
)
from windlass.projects.source_files import files_of, why_left_out

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

TIME = (1980, 1, 1, 0, 0, 0)
"""The time of each file in a zip: the earliest that the format knows."""
FILE, PROGRAM, FOLDER = 0o444, 0o555, 0o555
"""The permissions of unpacked files and folders. All users can read them, and only root can write."""
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
HEAD = "{kind} {path}\0"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A zip of a project's files. `size` is its size in bytes, `files` the number of files and links in it.

    `left_out` are the paths of files that it does not contain because they may hold secrets, and of broken links.
    """

    file: Path
    digest: str
    size: int
    files: int
    left_out: tuple[str, ...] = ()


def pack(root: Path, to: Path, ignore: Collection[str] = ()) -> Snapshot:
    """Writes the snapshot of a folder to the file `to`.

    It has the files that git does not ignore, without those that may hold secrets. `ignore` are patterns of further
    paths to leave out, as in the option of that name. Raises ProjectError.
    """
    names, left_out = files_of(root, ignore)
    entries = [entry for name in names if (entry := _entry(root, name)) is not None]
    return _written(entries, to, left_out)


def accept(upload: Path, to: Path, *, has_own_root: bool = False) -> Snapshot:
    """Writes the snapshot of an uploaded zip to the file `to`. Runs for seconds: call it in a thread.

    The upload may be any zip of a client. The only folder at its top is taken for the project's root, unless
    `has_own_root` is set. Raises ProjectError for a zip that can't be a source.
    """
    if upload.stat().st_size > LARGEST:
        raise ProjectError(f"The archive is larger than {LARGEST // MB} MB.", "Leave files out with a .gitignore.")
    with opened(upload, has_own_root=has_own_root) as (entries, left_out):
        check_ratio(entries, upload.stat().st_size)
        return _written(entries, to, left_out)


def unpack(archive: Path, folder: Path) -> str:
    """Makes the folder with the files of a snapshot, and returns their digest. Runs for seconds: call it in a thread.

    Only the server's user may have the right to write to the folder's parent. Nothing in the folder can be written
    afterwards. Raises ProjectError for an archive that is no snapshot, and for a full disk.
    """
    with opened(archive) as (entries, _), explaining_full_disk(folder):
        checked(entries)
        folder.mkdir(mode=0o700)
        made, digests = {folder}, []
        for entry in (one for one in entries if one.target is None):
            _make_folders(folder / entry.path, made)
            digests.append(_unpacked(entry, folder / entry.path))
        for entry in entries:  # last, so that no file is written through one
            if entry.target is not None:
                _make_folders(folder / entry.path, made)
                (folder / entry.path).symlink_to(entry.target)
                digests.append(_link(entry.path, entry.target))
        for one in made:
            one.chmod(FOLDER)
    return _digest(digests)


def content_of(archive: Path, path: str) -> bytes | None:
    """Returns the beginning of a file of a snapshot that was written here, None when it has no such file."""
    with zipfile.ZipFile(archive) as opened_archive:
        try:
            with opened_archive.open(path) as file:
                return file.read(CHUNK)
        except KeyError:
            return None


def digest_of(folder: Path) -> str:
    """Returns the digest of an unpacked snapshot. Raises OSError for a file that can't be read."""
    digests = []
    for here, folders, files in os.walk(folder, onerror=_raise):
        prefix = os.path.relpath(here, folder) + "/" if here != str(folder) else ""
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]  # noqa: PTH114, PTH118
        folders[:] = [name for name in folders if name not in links and not why_left_out(name)]
        for path in (prefix + name for name in (*files, *links) if not why_left_out(name)):
            entry = _entry(folder, path)
            if entry is not None and entry.target is not None:
                digests.append(_link(path, entry.target))
            elif entry is not None:
                found = hashlib.sha256()
                for chunk in entry.chunks():
                    found.update(chunk)
                digests.append(_file(entry, found.digest()))
    return _digest(digests)


def _entry(root: Path, name: str) -> Entry | None:
    """Returns a file of a folder, None for what is no file and no link, and for a file that was removed meanwhile."""
    path = root / name
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            target = link_target(name, os.fsencode(path.readlink()))
            return Entry(name, len(target), executable=False, open=partial(_opened, path), target=target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Entry(name, found.st_size, bool(found.st_mode & stat.S_IXUSR), partial(_opened, path))


def _opened(path: Path) -> IO[bytes]:
    descriptor = os.open(path, READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file any more")
    return os.fdopen(descriptor, "rb")


def _written(entries: list[Entry], to: Path, left_out: Iterable[str]) -> Snapshot:
    kept, broken = checked(entries)
    try:
        with explaining_full_disk(to), os.fdopen(os.open(to, WRITE | os.O_TRUNC, 0o600), "wb") as file:
            digest = _pack(kept, file)
            size = file.seek(0, os.SEEK_END)
    except BaseException:
        to.unlink(missing_ok=True)
        raise
    return Snapshot(to, digest, size, len(kept), tuple(sorted({*left_out, *broken})))


def _pack(entries: list[Entry], file: IO[bytes]) -> str:
    digests, room = [], LARGEST_UNPACKED
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = MARK
        for entry in entries:
            info = zipfile.ZipInfo(entry.path, TIME)
            info.create_system = 3  # Unix, also where the client is another system
            info.compress_type = zipfile.ZIP_DEFLATED
            if entry.target is not None:
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
                archive.writestr(info, entry.target)
                digests.append(_link(entry.path, entry.target))
                continue
            info.external_attr = (stat.S_IFREG | (0o755 if entry.executable else 0o644)) << 16
            found = hashlib.sha256()
            with archive.open(info, "w") as member:
                for chunk in entry.chunks():
                    found.update(chunk)
                    member.write(chunk)
                    room -= len(chunk)
                    _check_room(entries, room, file)
            digests.append(_file(entry, found.digest()))
    _check_room(entries, room, file)
    return _digest(digests)


def _check_room(entries: list[Entry], room: int, file: IO[bytes]) -> None:
    """Raises ProjectError. The declared sizes were checked before, and may be wrong."""
    if room < 0:
        raise too_large(entries, f"more than {LARGEST_UNPACKED // MB} MB unpacked")
    if file.seek(0, os.SEEK_CUR) > LARGEST:
        raise too_large(entries, f"more than {LARGEST // MB} MB packed")


def _make_folders(path: Path, made: set[Path]) -> None:
    missing = []
    while path.parent not in made:
        path = path.parent
        missing.append(path)
    for folder in reversed(missing):
        folder.mkdir(mode=0o700)
        made.add(folder)


def _unpacked(entry: Entry, place: Path) -> bytes:
    found = hashlib.sha256()
    with os.fdopen(os.open(place, WRITE | os.O_EXCL, 0o600), "wb") as file:
        for chunk in entry.chunks():
            found.update(chunk)
            file.write(chunk)
        file.flush()
        os.fchmod(file.fileno(), PROGRAM if entry.executable else FILE)
    return _file(entry, found.digest())


def _file(entry: Entry, content: bytes) -> bytes:
    return HEAD.format(kind="program" if entry.executable else "file", path=entry.path).encode() + content


def _link(path: str, target: str) -> bytes:
    return HEAD.format(kind="link", path=path).encode() + hashlib.sha256(target.encode()).digest()


def _digest(digests: list[bytes]) -> str:
    """Returns the SHA-256 of the lines, in the order of their paths, as hex."""
    found = hashlib.sha256()
    for line in sorted(digests, key=lambda line: line.partition(b" ")[2]):
        found.update(line)
    return found.hexdigest()


@contextmanager
def explaining_full_disk(place: Path) -> Iterator[None]:
    """Raises ProjectError in place of the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise ProjectError(
            f"{place} can't be written: {error.strerror}.", f"Free space on the disk of {place}."
        ) from None


def _raise(error: OSError) -> None:
    raise error
