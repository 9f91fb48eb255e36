from __future__ import annotations

import contextlib
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
    """A server that was killed leaves a database behind, which removes its own files while it stops."""
    for left in reversed(range(100)):
        try:
            shutil.rmtree(folder)
        except OSError:
            if not left:
                raise
            if folder.exists():
                time.sleep(0.1)
                continue
        return
