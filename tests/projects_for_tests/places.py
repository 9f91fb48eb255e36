from __future__ import annotations

import contextlib
import shutil
import tempfile
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
        shutil.rmtree(folder)
