"""The folder of a run, with its share of the shared memory, and their removal."""

from __future__ import annotations

import asyncio
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import with_rights_of
from windlass.removal import remove_here

if TYPE_CHECKING:
    from windlass.runner.shared_memory import Share, SharedMemory


@dataclass(slots=True)
class Place:
    """The folder of a run, and its share of the shared memory.

    `around` is the folder that holds it and no other one, if its child takes further runs. It stays for these, because
    the rules for the files of a process stay with the folders that it was started with.
    """

    folder: Path
    share: Share
    around: Path | None = None

    def surround(self) -> Path:
        """Moves the folder into a new one of its own, and returns that one. Raises OSError."""
        around = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix="u"))
        around.chmod(stat.S_IMODE(self.folder.parent.stat().st_mode))
        self.folder = self.folder.rename(around / "k")
        self.around = around
        return around

    def move(self, to: Path) -> bool:
        """Moves the folder to another path. Returns whether that was possible."""
        try:
            self.folder = self.folder.rename(to)
        except OSError:
            return False
        return True


async def clear(place: Place, shared_memory: SharedMemory) -> None:
    """Removes the shared memory, the cgroup and the folder of a run, whose processes must all have ended."""

    def clear_all() -> None:
        try:
            shared_memory.end(place.share)
        finally:
            remove_here(place.folder)

    await asyncio.wrap_future(with_rights_of(None, clear_all))
