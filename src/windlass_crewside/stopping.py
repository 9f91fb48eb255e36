from __future__ import annotations

from windlass_crewside.faults import ProjectFault


class Stopping:
    """What the worker has told of the end of a run: told to the thread that listens, looked at by those that work.

    `lease` is the second of CLOCK_BOOTTIME until which the run may go on, None for one without such an end.
    """

    def __init__(self) -> None:
        self.asked: str | None = None
        self.lease: float | None = None

    def ask(self, message: str) -> None:
        self.asked = message

    def check(self) -> None:
        """Raises ProjectFault once it was asked."""
        if self.asked is not None:
            raise ProjectFault(self.asked)
