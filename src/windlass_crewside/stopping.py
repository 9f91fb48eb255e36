from __future__ import annotations

from windlass_crewside.faults import ProjectFault


class Stopping:
    """Whether the run was asked to end: told by the thread that listens, looked at by those that work."""

    def __init__(self) -> None:
        self.asked: str | None = None

    def ask(self, message: str) -> None:
        self.asked = message

    def check(self) -> None:
        """Raises ProjectFault once it was asked."""
        if self.asked is not None:
            raise ProjectFault(self.asked)
