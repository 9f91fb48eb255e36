"""Leases: the times until which runs may go on, on a clock that all processes of a machine share."""

# See docs/decisions/processes.md#child-zygote-and-worker-each-end-a-run-whose-lease-is-over

from __future__ import annotations

import time

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that also counts while the machine is suspended, if the system has one."""

LAPSED = 72
"""The exit status of a child whose lease has ended. A renewal that reached its zygote may not have reached it."""

LOOK_AGAIN_SECONDS = 1.0
"""The interval at which a wait for the end of a lease checks the clock: a wait does not count suspended time."""


def boottime() -> float:
    """Returns the time of CLOCK in seconds."""
    return time.clock_gettime(CLOCK)


def wait_for(until: float | None) -> float | None:
    """Returns the seconds until the next check of a lease; None for a run without a lease."""
    return None if until is None else min(max(until - boottime(), 0.0), LOOK_AGAIN_SECONDS)


def has_lapsed(until: float | None) -> bool:
    return until is not None and boottime() >= until


class Leases:
    """The leases of a zygote's children, by the children's names."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._lapsed: set[str] = set()

    def keep(self, name: str, until: float) -> None:
        self._until[name] = until

    def wait(self) -> float | None:
        return wait_for(min(self._until.values(), default=None))

    def take_lapsed(self) -> set[str]:
        """Returns the children whose lease has ended, each of them once."""
        taken = {name for name, until in self._until.items() if has_lapsed(until)}
        self._lapsed |= taken
        for name in taken:
            del self._until[name]
        return taken

    def drop(self, name: str) -> bool:
        """Removes a child that has ended. Returns whether its lease had ended before."""
        lapsed = name in self._lapsed or has_lapsed(self._until.get(name))
        self._lapsed.discard(name)
        self._until.pop(name, None)
        return lapsed
