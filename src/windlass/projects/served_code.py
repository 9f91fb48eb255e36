"""The code from which runs of a project start: its own folder, or a copy while the files there can't be loaded."""

# See docs/decisions/deployments.md#dev-runs-from-a-copy-while-the-files-are-broken

from __future__ import annotations

import os
import shutil
import stat
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.projects.digest import VARIABLES, Files, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

LARGEST_FILE, LARGEST_COPY = 1 << 20, 64 << 20
"""Files over LARGEST_FILE, and all files after LARGEST_COPY bytes, are linked."""
MOST_FILES = 20_000


class ServedCode:
    """Maps the folder of each project to the folder of its code."""

    def __init__(self) -> None:
        self._held: dict[Path, Path] = {}
        self._used: set[Path] = set()
        """The copies from which a run was started. Such a run may still read its files."""

    def place(self, root: Path) -> Path:
        """Returns the folder from which a run of the project starts now."""
        if copy := self._held.get(root):
            self._used.add(copy)
        return self._held.get(root, root)

    def may_remove(self, copy: Path) -> bool:
        return copy not in self._used and copy not in self._held.values()

    def hold(self, root: Path, copy: Path) -> None:
        """From now on, runs of the project start from this copy."""
        self._held[root] = copy

    def release(self, root: Path) -> None:
        """From now on, runs of the project start from its own folder."""
        self._held.pop(root, None)


def copied(
    root: Path,
    target: Path,
    ignore: Collection[str],
    state: str,
    *,
    for_another_user: bool = False,
    open_all: bool = False,
) -> bool:
    """Copies the files of a project that count for its digest, and links everything else in its folder.

    `for_another_user` is whether crews run as another user than the owner of the copy. Files that not all users can
    read are linked then: crews can't read them in the copy if they can't read them in the project.
    With `open_all` all users can read each copied file. Otherwise a copy has the rights of its file.

    Returns False when the project has too many files, or when its digest is not `state` by now.
    """
    can_enter = cache(partial(is_open_folder, Path(os.path.realpath(root))))
    counted = sorted(Files(root, ignore))
    if len(counted) > MOST_FILES:
        return False
    room = LARGEST_COPY
    for name, path in counted:
        if for_another_user and not is_open(path, can_enter):
            continue  # `link_the_rest` links the file, or its folder
        new = target / name
        new.parent.mkdir(parents=True, exist_ok=True)
        room -= copy_or_link(path, new, min(room, LARGEST_FILE))
        if open_all and not new.is_symlink():
            new.chmod(new.stat().st_mode | 0o444)
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
    return size


def is_open(path: str, can_enter: Callable[[Path], bool]) -> bool:
    """Returns whether all users can read the file, or the target of a link. True for a broken link."""
    place = Path(os.path.realpath(path))
    try:
        return bool(place.stat().st_mode & stat.S_IROTH) and can_enter(place.parent)
    except OSError:
        return True


def is_open_folder(root: Path, folder: Path) -> bool:
    """Returns whether all users can reach the folder, from the project's folder on if it is in there."""
    way = (folder, *folder.parents)
    below = way[: way.index(root)] if root in way else way
    return all(one.stat().st_mode & stat.S_IXOTH for one in below)


def link_the_rest(root: Path, target: Path) -> None:
    for folder, folders, _ in os.walk(target):
        here = target / folder
        original = root / here.relative_to(target)
        for entry in os.scandir(original):
            if entry.name == VARIABLES:  # the server reads it in the project's own folder
                continue
            if (entry.is_file() or entry.is_dir()) and not os.path.lexists(here / entry.name):
                (here / entry.name).symlink_to(original / entry.name)
        folders[:] = [name for name in folders if not (here / name).is_symlink()]
