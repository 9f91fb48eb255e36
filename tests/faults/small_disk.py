from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def needed_small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """As `small_disk`, for a test that makes no sense without it."""
    with small_disk(folder, megabytes) as mounted:
        if not mounted:
            pytest.skip("mounting a small disk needs root and a system that allows it")
        yield


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Mounts one on the folder, in memory; False where we may not, and the folder is on the disk of all the rest."""
    folder.mkdir()
    folder.chmod(0o755)
    order = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "windlass-test", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(order, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
