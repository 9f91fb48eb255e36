"""
EmbeddedPostgresError    PostgreSQL can't run on this home; its message and what to do
└── HomeInUse            another running server uses this home
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from pathlib import Path

OUTSIDE = "or give Windlass another PostgreSQL with WINDLASS_DATABASE_URL"


class EmbeddedPostgresError(WindlassError):
    pass


class HomeInUse(EmbeddedPostgresError):  # noqa: N818 - it describes the home
    def __init__(self, home: Path, holder: str) -> None:
        super().__init__(
            f"The folder {home} is in use by another Windlass server ({holder}).",
            "Stop that server, or set WINDLASS_HOME to another folder for this one.",
        )


def failed(what: str, home: Path, why: str) -> EmbeddedPostgresError:
    """Returns an error whose hint is derived from `why`, the message of PostgreSQL or the system."""
    return EmbeddedPostgresError(f"{what} in {home}: {why.rstrip('.')}.", _hint(home, why))


def unusable(home: Path, error: OSError) -> EmbeddedPostgresError:
    where = f"{error.filename}: " if error.filename else ""
    why = f"{where}{error.strerror or error}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return EmbeddedPostgresError(
            f"The database in {home} can't be used by this user: {why}.",
            f"Start Windlass as the user that owns the folder, set WINDLASS_HOME to another folder, {OUTSIDE}.",
        )
    return failed("The database can't be used", home, why)


def _hint(home: Path, why: str) -> str:
    if any(word in why for word in ("No space left", "Disk quota")):
        return f"The disk of {home} is full: free some space, then start again."
    return f"See {home / 'postgres' / 'log'} for what PostgreSQL wrote, {OUTSIDE}."
