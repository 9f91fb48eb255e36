"""Limits the uploads that a server receives at once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass.api.errors import RETRY_AFTER, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE = 4
"""Uploads that a server receives at once. Each takes up to twice its size on the disk."""


class Uploads:
    """Limits the uploads that the server receives at once."""

    def __init__(self) -> None:
        self._free = AT_ONCE

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Raises Problem 503 while AT_ONCE others are received."""
        if not self._free:
            message = "The server receives as many uploads as it can. Send the request again."
            raise Problem(503, message, headers={"Retry-After": str(RETRY_AFTER)})
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1
