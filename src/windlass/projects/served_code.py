"""The code from which runs of a project start: its own folder, or a copy while the files there can't be loaded."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from windlass.projects.digest import Files, digest

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

LARGEST_FILE, LARGEST_COPY = 1 << 20, 64 << 20
"""Bytes. A larger file, and what exceeds the second number, is linked, not copied."""
MOST_FILES = 20_000


class ServedCode:
    """Maps the folder of each project to the folder of its code."""

    def __init__(self) -> None:
        self._held: dict[Path, Path] = {}

    def place(self, root: Path) -> Path:
        return self._held.get(root, root)

    def hold(self, root: Path, copy: Path) -> None:
        """From now on, runs of the project start from this copy."""
        self._held[root] = copy

    def release(self, root: Path) -> None:
        """From now on, runs of the project start from its own folder."""
        self._held.pop(root, None)


def copied(root: Path, target: Path, ignore: Collection[str], state: str) -> bool:
    """Copies the files of a project that count for its digest, and links everything else in its folder.

    Returns False when the project has too many files, or when its digest is not `state` by now.
    """
    counted = sorted(Files(root, ignore))
    if len(counted) > MOST_FILES:
        return False
    room = LARGEST_COPY
    for name, path in counted:
        new = target / name
        new.parent.mkdir(parents=True, exist_ok=True)
        room -= copy_or_link(path, new, min(room, LARGEST_FILE))
    link_the_rest(root, target)
    return digest(target, ignore) == state


def copy_or_link(path: str, new: Path, most: int) -> int:
    """Returns the number of bytes that were copied."""
    if not os.path.exists(path):  # a broken link  # noqa: PTH110 - as in windlass.projects.digest
        new.symlink_to(os.readlink(path))  # noqa: PTH115
        return 0
    size = os.path.getsize(path)  # noqa: PTH202
    if not os.path.isfile(path) or size > most:  # noqa: PTH113
        new.symlink_to(path)
        return 0
    shutil.copy2(path, new)
    new.chmod(new.stat().st_mode | 0o444)
    return size


def link_the_rest(root: Path, target: Path) -> None:
    for folder, folders, _ in os.walk(target):
        here = target / folder
        original = root / here.relative_to(target)
        for entry in os.scandir(original):
            if (entry.is_file() or entry.is_dir()) and not os.path.lexists(here / entry.name):
                (here / entry.name).symlink_to(original / entry.name)
        folders[:] = [name for name in folders if not (here / name).is_symlink()]
