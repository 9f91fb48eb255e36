from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
