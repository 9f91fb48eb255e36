"""Writes downloaded files into a folder. Their paths come from a crew, and none may lead out of the folder."""

# See docs/decisions/api.md#files-are-downloaded-in-ranges-of-1-mb

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING, Self

from windlass.client.errors import CrewError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from windlass.client.results import File

ON_WINDOWS = re.compile(r'[<>:"|?*]|(?i:^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$))|[. ]$')
"""Parts of paths that mean something else there: drives, streams, devices, names without their end."""


class Download:
    """Writes one file, under another name until it is complete. An error removes what was written."""

    def __init__(self, folder: Path, path: str, *, force: bool) -> None:
        self.path = folder / checked(path)
        if not self.path.parent.resolve().is_relative_to(folder.resolve()):
            raise CrewError(f"{path!r} leads out of {folder} through a link.", "Choose an empty folder.")
        if self.path.is_dir() or (os.path.lexists(self.path) and not force):
            raise CrewError(f"{self.path} exists.", "Choose another folder, or overwrite files: --force, force=True.")
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self._name = self.path.parent / f".windlass-{secrets.token_hex(8)}"
        self._file = self._name.open("xb")
        return self

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._file.close()
            if kind is None:
                self._name.replace(self.path)
        finally:
            self._name.unlink(missing_ok=True)


def chosen(files: Sequence[File], paths: Iterable[str] | None) -> list[File]:
    """Returns the files with these paths, or all. Raises CrewError for a path that no file has."""
    if paths is None:
        return list(files)
    known = {file.path: file for file in files}
    wanted = list(paths)
    if missing := [path for path in wanted if path not in known]:
        raise CrewError(f"The kickoff has no file {missing[0]!r}.", f"It has: {', '.join(known) or 'none'}.")
    return [known[path] for path in wanted]


def downloads(files: Sequence[File], folder: Path, *, force: bool) -> list[tuple[File, Download]]:
    """Checks the paths of all files. Raises CrewError for the first that can't be written."""
    return [(file, Download(folder, file.path, force=force)) for file in files]


def checked(path: str, *, windows: bool = os.name == "nt") -> str:
    """Returns the path. Raises CrewError for one that can lead out of a folder or to another file."""
    parts = path.split("/")
    harmful = any(ord(letter) < ord(" ") or letter == "\x7f" for letter in path)
    if harmful or "\\" in path or not {"", ".", ".."}.isdisjoint(parts):
        raise CrewError(f"The server names a file {path!r}, which could lead out of the folder.", "Do not trust it.")
    if windows and any(map(ON_WINDOWS.search, parts)):
        raise CrewError(f"The file {path!r} can't have this name on Windows.", "Get it on another system.")
    return path
