"""The files of a kickoff, which its run wrote into its working folder: their limits, names and media types."""

from __future__ import annotations

import mimetypes
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

CHUNK = 256 * 1024
"""Bytes of each stored part of a file, except the last part."""
LONGEST_PATH = 1024
"""Bytes of a path."""
DEEPEST = 20
"""Levels of folders in a path."""
MOST_NAMED = 5
"""Files that a warning names."""
LONGEST_NAME = 100
"""Characters of a path in a warning."""

HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\\\\"  # control characters; the separator of Windows
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line separators, and marks that reverse what a person sees
    "\ud800-\udfff]"  # bytes that are not UTF-8, as Python decodes them
)
MEDIA_TYPES = {
    ".avif": "image/avif",
    ".csv": "text/csv",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".ipynb": "application/x-ipynb+json",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".rst": "text/x-rst",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
"""Media types that the standard library does not know in all versions."""
COMPRESSED = {
    ".bz2": "application/x-bzip2",
    ".gz": "application/gzip",
    ".tgz": "application/gzip",
    ".xz": "application/x-xz",
}
UNKNOWN = "application/octet-stream"
_known = mimetypes.MimeTypes().types_map[True] | MEDIA_TYPES | COMPRESSED
"""The table of the standard library, without the files of the machine, which differ."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of the files of one kickoff: their number, the bytes of each file, and the bytes of all."""

    count: int = 1000
    size: int = 20 << 20
    total: int = 100 << 20


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file whose content is stored. `path` is relative to the working folder. `content` identifies its parts."""

    path: str
    size: int
    sha256: bytes
    media_type: str
    content: UUID


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The changes of a kickoff's files since they were stored last. `count` is the number of files after them.

    `unused` are contents that no file has any more.
    """

    count: int
    put: Sequence[StoredFile] = ()
    gone: Sequence[str] = ()
    unused: Sequence[UUID] = ()


def refusal(path: str) -> str | None:
    """Returns why a file with this path is not stored, or None."""
    if HARMFUL.search(path):
        return "its name has control characters, a backslash, or bytes that are not UTF-8"
    if len(path.encode()) > LONGEST_PATH:
        return f"its path has more than {LONGEST_PATH} bytes"
    return None


class Spellings:
    """Finds paths that a file system without upper and lower case takes for one: of these only the first is stored."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def take(self, path: str) -> str | None:
        """Returns the earlier path that is the same but for case, or None."""
        parts = path.split("/")
        paths = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
        for one in paths:
            if (earlier := self._known.get(_folded(one), one)) != one:
                return earlier
        self._known |= {_folded(one): one for one in paths}
        return None


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def media_type_of(path: str) -> str:
    """Returns the media type for the ending of the path. The content is not examined."""
    return _known.get(PurePosixPath(path).suffix.lower(), UNKNOWN)


@dataclass(slots=True)
class LeftOut:
    """Files of a run that are not stored, with the reasons. Keeps the first MOST_NAMED of them, and counts all."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, path: str, why: str) -> None:
        self.count += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(f"{shown(path)} ({why})")

    def words(self) -> str:
        others = [f"{self.count - len(self.named)} more"] if self.count > len(self.named) else []
        files = "1 file" if self.count == 1 else f"{self.count} files"
        return f"{files} of the run {'is' if self.count == 1 else 'are'} not stored: {', '.join(self.named + others)}."


def shown(path: str) -> str:
    """Returns the path for a message: with escapes if it has characters that a terminal or a person misreads."""
    words = ascii(path)[1:-1] if HARMFUL.search(path) else path
    return words if len(words) <= LONGEST_NAME else f"{words[:LONGEST_NAME]}..."


def listed(files: Iterable[StoredFile]) -> list[dict[str, object]]:
    """Returns the files as the API lists them."""
    return [
        {"path": file.path, "size": file.size, "sha256": file.sha256.hex(), "media_type": file.media_type}
        for file in files
    ]


def too_large(size: int, limits: FileLimits) -> str:
    return f"it has {size_in_words(size)}, more than WINDLASS_STORED_FILE_SIZE of {size_in_words(limits.size)}"
