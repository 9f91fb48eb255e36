from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def remove(folder: Path) -> None:
    """With all that is in it, whatever crew code has made of it. What can't be removed even so stays."""
    with suppress(OSError, RecursionError):  # folders without rights, or nested more deeply than Python can follow
        shutil.rmtree(folder)
    if folder.exists():
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run(  # noqa: S603 - a folder of ours
                [*command, "--", folder], stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
