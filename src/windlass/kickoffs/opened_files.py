"""Files of the server's machine that a crew may use beside its own: `/data/models:ro`, `/data/out:rw`."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from windlass.kickoffs.declared_settings import BadSetting, Kind
from windlass_child.process.places import READ, WRITE

RIGHTS = {"ro": READ, "rw": WRITE}
MOST = 100
LONGEST = 4096

Files = tuple[tuple[str, str], ...]
"""Paths with what may be done there, READ or WRITE."""


def checked(given: Any) -> Any:
    """Returns the list. Raises BadSetting for a path that can't be opened, and returns None for what is no list."""
    if not isinstance(given, list) or len(given) > MOST or not all(isinstance(one, str) for one in given):
        return None
    for one in given:
        path, _, rights = one.rpartition(":")
        parts = PurePosixPath(path).parts
        if rights not in RIGHTS or len(one) > LONGEST or not one.isprintable():
            raise BadSetting(
                f"{one[:100]!r} must be a path with :ro (read) or :rw (write too), such as /data/models:ro"
            )
        if not path.startswith("/") or ".." in parts or len(parts) < 2:  # noqa: PLR2004 - the root and a name
            raise BadSetting(f"{one[:100]!r} must be an absolute path without .., and not /")
    return given


def opened(listed: list[str]) -> Files:
    """Returns the paths of a list that is checked."""
    split = (one.rpartition(":") for one in listed)
    return tuple((path, RIGHTS[rights]) for path, _, rights in split)


FILES = Kind(
    "lines", 'a list of paths such as ["/data/models:ro", "/data/out:rw"]', checked, list[str], {"max_length": MOST}
)
