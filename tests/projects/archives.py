"""Zips as clients and attackers send them."""

from __future__ import annotations

import stat
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LINK = stat.S_IFLNK | 0o777
CREW = {"pyproject.toml": "[tool.windlass]\nentrypoint = 'work:run'\n", "work.py": "def run():\n    return 1\n"}


def zipped(
    to: Path, files: Mapping[str, str | bytes], *, modes: Mapping[str, int] | None = None, comment: bytes = b""
) -> Path:
    """A zip with these files. `modes` are their types and permissions, LINK for one whose content is its target."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = comment
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return to


def names(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as opened:
        return opened.namelist()
