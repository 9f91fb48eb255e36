from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def folder_for_all(within: Path | None = None) -> Iterator[Path]:
    """One that every user can pass through, as PostgreSQL's and crews' must: pytest's temporary folders are closed."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-", dir=within))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Removes the folder. A server that was killed leaves a database behind, which removes its own files while it
    stops.
    """
    for left in reversed(range(100)):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if not left:
                raise
            if isinstance(error, PermissionError):
                open_all(folder)
            if folder.exists():
                time.sleep(0.1)
                continue
        return


def open_all(folder: Path) -> None:
    """Opens checkouts, whose folders nobody but root can change."""
    for place in (Path(name) for name, _, _ in os.walk(folder)):
        if place.stat().st_uid == os.geteuid():
            place.chmod(0o700)
