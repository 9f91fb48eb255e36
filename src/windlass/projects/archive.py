"""Checks and reads the files of a source: those in a zip of a client, which is hostile input, or in a folder.

A source consists of regular files and of relative links that stay inside of it. A zip is read only as far as the bounds
of this module allow.
"""

from __future__ import annotations

import io
import itertools
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

from windlass.errors import ProjectError
from windlass.projects.source_files import why_left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

MB = 1 << 20
LARGEST, LARGEST_UNPACKED = 100 * MB, 400 * MB
"""The most bytes of a source, as a zip and unpacked."""
MOST_FILES, MOST_FOLDERS, MOST_LINKS, MOST_MEMBERS = 20_000, 20_000, 1000, 60_000
"""MOST_MEMBERS bounds all members of a zip: files, folders, and what is left out."""
HIGHEST_RATIO, RATIO_COUNTS_FROM = 200, 20 * MB
"""A zip that unpacks to so many times its size is refused, if it unpacks to more than RATIO_COUNTS_FROM bytes."""
LARGEST_DIRECTORY = 16 * MB
LONGEST_NAME, LONGEST_PATH, DEEPEST = 255, 1000, 40
LONGEST_TARGET, MOST_STEPS = 255, 300
"""MOST_STEPS bounds the folders and links that a link leads through."""
CHUNK = 256 * 1024

MARK = b"windlass source 1"
"""The comment of the zips that Windlass makes. Their only folder is not taken for the root of the project."""
ENCRYPTED = 0x1 | 0x40 | 0x2000
UTF8 = 0x800
MEMBER = b"PK\x01\x02"
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE | re.DOTALL)
"""Names of devices on Windows."""
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
BAD_ZIP = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, OverflowError, RuntimeError,
    ValueError, OSError,
)  # fmt: skip
"""What zipfile raises for damaged and for hostile zips. OSError is for offsets that no file has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a source. `target` is set for a link. `size` is the declared one."""

    path: str
    size: int
    executable: bool
    open: Callable[[], IO[bytes]]
    target: str | None = None

    def chunks(self) -> Iterator[bytes]:
        """Yields the content. Raises ProjectError when it can't be read."""
        try:
            with self.open() as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except BAD_ZIP as error:
            raise _unreadable(f"{shown(self.path)} can't be read", error) from None


def shown(path: str) -> str:
    return ascii(path if len(path) <= LONGEST_NAME else f"{path[:LONGEST_NAME]}...")


def fault(path: str, why: str, hint: str) -> ProjectError:
    return ProjectError(f"The file {shown(path)} can't be deployed: {why}.", hint)


def checked(entries: Iterable[Entry]) -> tuple[list[Entry], list[str]]:
    """Returns the entries in the order of their paths, and the paths of links that lead to nothing in the source.

    Raises ProjectError for a name or a link that no source may have, and for too many or too large files.
    """
    kept = sorted(entries, key=lambda entry: entry.path.encode("utf-8", "surrogatepass"))
    check_amount(kept)
    for entry in kept:
        check_name(entry.path)
    folders = _folders_of(kept)
    links = {entry.path: entry.target for entry in kept if entry.target is not None}
    places = {entry.path for entry in kept if entry.target is None} | folders
    broken = {path for path in links if resolved(path, links) not in places}
    return [entry for entry in kept if entry.path not in broken], sorted(broken)


def check_amount(entries: list[Entry]) -> None:
    if not entries:
        raise ProjectError("The source has no files.", "Check the folder, and its .gitignore.")
    if len(entries) > MOST_FILES:
        raise too_many(f"more than {MOST_FILES:,} files")
    if sum(entry.target is not None for entry in entries) > MOST_LINKS:
        raise too_many(f"more than {MOST_LINKS:,} symbolic links")
    if (size := sum(entry.size for entry in entries)) > LARGEST_UNPACKED:
        raise too_large(entries, f"{size // MB} MB unpacked, and {LARGEST_UNPACKED // MB} MB are allowed")


def too_many(what: str) -> ProjectError:
    return ProjectError(f"The source has {what}.", "Leave files out with a .gitignore.")


def too_large(entries: list[Entry], how: str) -> ProjectError:
    largest = sorted(entries, key=lambda entry: -entry.size)[:3]
    names = ", ".join(f"{shown(entry.path)} ({entry.size // 1024:,} KB)" for entry in largest)
    return ProjectError(
        f"The source is too large: {how}. Its largest files are {names}.",
        "Leave them out with a .gitignore, and have the crew fetch its data.",
    )


def check_name(path: str) -> None:
    names = path.split("/")
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        raise fault(path, "its path is absolute", "Make the archive from within the project's folder.")
    if "\\" in path:
        raise fault(path, "its name has a backslash", "Use / between folders.")
    if UNPRINTABLE.search(path):
        raise fault(path, "its name has control characters, or is no UTF-8", "Rename it.")
    if any(name in {"", ".", ".."} for name in names):
        raise fault(path, "its path has an empty part, . or ..", "Make the archive from within the project's folder.")
    if len(names) > DEEPEST or len(path.encode()) > LONGEST_PATH or any(len(n.encode()) > LONGEST_NAME for n in names):
        raise fault(
            path,
            f"a path may have {DEEPEST} parts and {LONGEST_PATH} bytes, and a name {LONGEST_NAME} bytes",
            "Shorten it.",
        )
    if any(map(RESERVED.fullmatch, names)):
        raise fault(path, "Windows reserves the name for a device", "Rename it.")


def _folders_of(entries: list[Entry]) -> set[str]:
    """Returns the folders of the entries.

    Raises ProjectError for two names that differ only in case or in Unicode form, and for a file that is also a folder.
    """
    files, folders, spelled = {entry.path for entry in entries}, set[str](), dict[str, str]()
    if len(files) != len(entries):
        twice = next(one.path for one, other in itertools.pairwise(entries) if one.path == other.path)
        raise fault(twice, "the archive has it twice", "Make the archive again.")
    for entry in entries:
        names = entry.path.split("/")
        for end in range(len(names), 0, -1):
            place = "/".join(names[:end])
            if end < len(names) and place in folders:
                break
            other = spelled.setdefault(_key(place), place)
            if other != place:
                raise fault(place, f"its name differs from {shown(other)} only in case or Unicode form", "Rename one.")
            if end < len(names):
                folders.add(place)
        if len(folders) > MOST_FOLDERS:
            raise too_many(f"more than {MOST_FOLDERS:,} folders")
    if both := sorted(files & folders):
        raise fault(both[0], "it is also a folder", "Make the archive again.")
    return folders


def _key(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def resolved(link: str, links: dict[str, str]) -> str:
    """Returns the path that the link leads to. Raises ProjectError when it leads out of the source or into a circle."""
    here, ahead = link.split("/")[:-1], deque(links[link].split("/"))
    steps, hint = 0, "Replace it with the file, or leave it out with a .gitignore."
    if links[link].startswith("/"):
        raise fault(link, "it is a link with an absolute target", hint)
    while ahead:
        name = ahead.popleft()
        steps += 1
        if steps > MOST_STEPS:
            raise fault(link, "it is a link into a circle of links", hint)
        if name == ".." and not here:
            raise fault(link, "it is a link that leads out of the project", hint)
        if name == "..":
            here.pop()
        elif name not in {"", "."}:
            here.append(name)
            if (target := links.get("/".join(here))) is not None:
                if target.startswith("/"):
                    raise fault(link, "it is a link that leads out of the project", hint)
                here.pop()
                ahead.extendleft(reversed(target.split("/")))
    found = "/".join(here)
    if f"{link}/".startswith(f"{found}/" if found else ""):
        raise fault(link, "it is a link to a folder that it is in", hint)
    return found


class _Upload(io.FileIO):
    """A zip file whose directory, which zipfile reads in one call, is bounded."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LARGEST_DIRECTORY:
            raise too_many(f"a list of files of more than {LARGEST_DIRECTORY // MB} MB")
        data = super().read(size) or b""
        if data.count(MEMBER) > MOST_MEMBERS:
            raise too_many(f"more than {MOST_MEMBERS:,} files and folders")
        return data


@contextmanager
def opened(file: Path, *, has_own_root: bool = False) -> Iterator[tuple[list[Entry], list[str]]]:
    """Yields the entries of a zip, not yet checked, and the paths of secret files that are left out.

    The only top-level folder of a zip, as GitHub makes it, is taken as the root, except with `has_own_root` and in zips
    of Windlass. Raises ProjectError.
    """
    with _Upload(file) as raw:
        try:
            archive = zipfile.ZipFile(raw)
        except BAD_ZIP as error:
            raise _unreadable("The upload is no zip file, or is incomplete", error) from None
        with archive:
            entries, left_out = [], []
            for path, info in _below_root(list(_members(archive)), has_own_root or archive.comment == MARK):
                if why_left_out(path):
                    left_out.append(path)
                else:
                    entries.append(_entry(archive, path, info))
            yield entries, left_out


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yields all files but those that tools make, with their paths."""
    for info in archive.infolist():
        path = _path_of(info)
        if why_left_out(path) == "generated":
            continue
        check_name(path.rstrip("/"))
        if info.is_dir():
            continue
        mode = stat.S_IFMT(info.external_attr >> 16)
        if mode not in {0, stat.S_IFREG, stat.S_IFLNK}:
            raise fault(path, "it is a special file, such as a pipe or a device", "Leave it out.")
        if info.flag_bits & ENCRYPTED:
            raise fault(path, "it is encrypted", "Make the archive without a password.")
        if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise fault(path, "it is compressed by another method than deflate", "Make the archive with `zip -r`.")
        yield path, info


def _path_of(info: zipfile.ZipInfo) -> str:
    """Returns the path of a member. Several programs write UTF-8 without the flag for it."""
    path = info.orig_filename
    if not info.flag_bits & UTF8:
        with suppress(UnicodeError):
            path = path.encode("cp437").decode("utf-8")
    return path.removeprefix("./")


def _below_root(
    members: list[tuple[str, zipfile.ZipInfo]], has_own_root: bool
) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    tops = {path.partition("/")[0] if "/" in path else None for path, _ in members}
    is_wrapped = not has_own_root and len(tops) == 1 and None not in tops
    for path, info in members:
        yield (path.partition("/")[2] if is_wrapped else path), info


def _entry(archive: zipfile.ZipFile, path: str, info: zipfile.ZipInfo) -> Entry:
    mode = info.external_attr >> 16
    entry = Entry(path, info.file_size, bool(mode & stat.S_IXUSR), lambda: archive.open(info))
    if not stat.S_ISLNK(mode):
        return entry
    if info.file_size > LONGEST_TARGET:
        raise fault(path, f"it is a link to a path of more than {LONGEST_TARGET} bytes", "Replace it with the file.")
    return replace(entry, executable=False, target=link_target(path, b"".join(entry.chunks())))


def link_target(path: str, target: bytes) -> str:
    text = target.decode("utf-8", "surrogateescape")
    if not text or UNPRINTABLE.search(text) or "\\" in text or len(target) > LONGEST_TARGET:
        raise fault(path, "it is a link to a path that is no valid name", "Replace it with the file.")
    return text


def check_ratio(entries: list[Entry], packed: int) -> None:
    size = sum(entry.size for entry in entries)
    if size > RATIO_COUNTS_FROM and size > packed * HIGHEST_RATIO:
        raise too_large(entries, f"it unpacks to {size // MB} MB, more than {HIGHEST_RATIO} times its size")


def _unreadable(what: str, error: BaseException) -> ProjectError:
    reason = " ".join(str(error).split())[:200]
    return ProjectError(
        f"{what}: {ascii(reason)[1:-1] or type(error).__name__}.", "Make the archive, or send it, again."
    )
