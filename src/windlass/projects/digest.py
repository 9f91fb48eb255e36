from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

IGNORED_FOLDERS = {
    "__pycache__", "build", "dist", "env", "htmlcov", "node_modules", "venv",
}  # fmt: skip
"""And all whose names begin with a dot."""

IGNORED_ENDINGS = (".pyc", ".pyo", ".log", ".egg-info", "~")

WHOLE = 8 * 1024 * 1024
"""Bytes; of a larger file only size and time of change count."""


def digest(project: Path) -> str:
    """SHA-256 of what the project's code is made of, as hex: another one means that the project has changed.

    Names and contents of its files count, not what tools and runs leave behind; nor does .env, which is no code.
    """
    found = hashlib.sha256()
    for path in sorted(files(project)):
        relative = path.relative_to(project).as_posix()
        found.update(f"{relative}\0".encode("utf-8", "surrogateescape"))
        found.update(identity(path))
    return found.hexdigest()


def glance(project: Path) -> str:
    """Changes whenever `digest` does, and takes far less: of the files only size and time of change are looked at."""
    found = hashlib.sha256()
    for path in sorted(files(project)):
        facts = path.lstat()
        found.update(f"{path}\0{facts.st_size} {facts.st_mtime_ns} {facts.st_ino}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()


def files(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.endswith(IGNORED_ENDINGS):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in IGNORED_FOLDERS:
                    yield from files(Path(entry.path))
            elif entry.is_symlink() or entry.is_file():
                yield Path(entry.path)


def identity(path: Path) -> bytes:
    """32 bytes for the contents of a file; for a link, of where it leads."""
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(path.readlink())).digest()
    facts = path.stat()
    if facts.st_size > WHOLE:
        return hashlib.sha256(f"{facts.st_size} {facts.st_mtime_ns}".encode()).digest()
    return hashlib.sha256(path.read_bytes()).digest()
