"""Reads files in folders that other users than the server's may write to, such as a project's .env."""

# See docs/decisions/security.md#files-of-a-run-are-opened-again-for-each-read

from __future__ import annotations

import errno
import os
import shlex
import stat
from functools import partial
from typing import TYPE_CHECKING

from windlass.accounts import ROOT, owner_of, take_rights_of, with_rights_of
from windlass.errors import ProjectError

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 10.0
"""The longest time that a read may take. A file system that the project's owner has mounted may never answer."""

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def read_file(folder: Path, name: str, largest: int) -> bytes | None:
    """Returns the content of a regular file of at most `largest` bytes, or None when there is no such file.

    No symbolic link is followed: not the file, and no folder on the absolute path to the file. A server that is root
    reads with the rights of the folder's owner. Raises ProjectError in all other cases, after SECONDS at the latest.
    """
    file = folder / name
    try:
        return with_rights_of(None, partial(_read, folder, name, largest)).result(SECONDS)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except TimeoutError:
        raise ProjectError(
            f"{file} could not be read within {SECONDS:.0f} s.", "Move the project to a file system that answers."
        ) from None
    except OSError as error:
        raise ProjectError(f"{file} can't be read: {error.strerror}.", _remedy(error, file)) from None


def _read(folder: Path, name: str, largest: int) -> bytes:
    """Reads the file, in a thread of `with_rights_of`, which takes the rights of the owner."""
    place = _opened(folder)
    try:
        if os.geteuid() == ROOT:
            _take_rights_of_owner(folder, name, place)
        descriptor = os.open(name, FILE, dir_fd=place)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ProjectError(
                f"{folder / name} is a symbolic link, which is not followed.", "Replace it with the file."
            ) from None
        raise
    finally:
        os.close(place)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ProjectError(f"{folder / name} is no regular file.", "Replace it with a text file, or remove it.")
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ProjectError(f"{folder / name} is larger than {largest >> 10} KB.", "Keep only variables in it.")
    return content


def _opened(folder: Path) -> int:
    """Opens each folder of the path in turn, so that no link is followed, not even a link that was created just now."""
    if not hasattr(os, "O_PATH"):  # macOS: crews run as the server's user
        return os.open(folder, os.O_RDONLY | FOLDER)
    here = os.open("/", os.O_PATH | FOLDER)
    for part in folder.absolute().parts[1:]:
        above = here
        try:
            here = os.open(part, os.O_PATH | FOLDER, dir_fd=above)
        except NotADirectoryError:
            if stat.S_ISLNK(os.stat(part, dir_fd=above, follow_symlinks=False).st_mode):
                raise ProjectError(
                    f"{folder} can't be entered: {part} is a link by now.", "Restart the server."
                ) from None
            raise
        finally:
            os.close(above)
    return here


def _take_rights_of_owner(folder: Path, name: str, place: int) -> None:
    found = os.fstat(place)
    if found.st_uid != ROOT:
        take_rights_of(owner_of(found.st_uid))
        return
    os.stat(name, dir_fd=place, follow_symlinks=False)  # a missing file needs no check: FileNotFoundError
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid != ROOT):
        raise ProjectError(
            f"{folder / name} is not read: {folder} belongs to root, and other users may write to it.",
            f"Run: chmod go-w {shlex.quote(str(folder))}, or give the folder to the user who writes to it.",
        )


def _remedy(error: OSError, file: Path) -> str:
    if error.errno == errno.ENXIO:
        return "It must be a text file."
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"The owner of {file.parent} must be able to read it."
    return "It must be UTF-8 text."
