"""System users: those that processes of ours run as."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ROOT = 0


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int
    name: str
    is_ours: bool

    @property
    def switch(self) -> tuple[int, int] | tuple[None, None]:
        """What subprocess takes as `user` and `group`."""
        return (None, None) if self.is_ours else (self.uid, self.gid)

    @property
    def groups(self) -> list[int] | None:
        return None if self.is_ours else []

    def give(self, path: Path) -> None:
        if not self.is_ours:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def may_enter(self, folder: os.stat_result) -> bool:
        if self.uid == folder.st_uid:
            return bool(folder.st_mode & stat.S_IXUSR)
        return bool(folder.st_mode & (stat.S_IXGRP if self.gid == folder.st_gid else stat.S_IXOTH))

    def first_closed(self, folder: Path) -> Path | None:
        """The topmost folder on the way to this one that the account can't pass."""
        if self.is_ours:
            return None
        whole = folder.resolve()
        way = [*reversed(whole.parents), whole]
        return next((place for place in way if not self.may_enter(place.stat())), None)
