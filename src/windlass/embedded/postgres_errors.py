"""
EmbeddedPostgresError    PostgreSQL can't be served from this home; what it said, and what to do
└── HomeInUse            another living server has this home
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


class HomeInUse(EmbeddedPostgresError):  # noqa: N818 - said of the home
    def __init__(self, home: Path, holder: str) -> None:
        super().__init__(
            f"The folder {home} is in use by another Windlass server ({holder}).",
            "Stop that one, or give this one a folder of its own with WINDLASS_HOME.",
        )


def failed(what: str, home: Path, why: str) -> EmbeddedPostgresError:
    """`why` is what PostgreSQL or the system said; the hint follows from it."""
    return EmbeddedPostgresError(f"{what} in {home}: {why.rstrip('.')}.", _hint(home, why))


def unusable(home: Path, error: OSError) -> EmbeddedPostgresError:
    where = f"{error.filename}: " if error.filename else ""
    why = f"{where}{error.strerror or error}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return EmbeddedPostgresError(
            f"The database in {home} can't be used by this user: {why}.",
            f"Start Windlass as the user that the folder belongs to, choose another one with WINDLASS_HOME, {OUTSIDE}.",
        )
    return failed("The database can't be used", home, why)


def _hint(home: Path, why: str) -> str:
    if any(word in why for word in ("No space left", "Disk quota")):
        return f"The disk is full: free some space where {home} lies, then start again."
    return f"See {home / 'postgres' / 'log'} for what PostgreSQL wrote, {OUTSIDE}."
