"""How long it takes from the request to stop a run until no process of it is left."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Figure, spread
from bench.machine import lives
from bench.served import PROJECTS, Served, served, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 2
SETTLED = 0.5
"""Seconds that a run works before it is stopped."""


@dataclass(slots=True)
class Stops:
    """Runs of the stoppable crew; each tells its processes in a file of `folder`."""

    server: Served
    folder: Path
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    def begin(self, tool: str) -> tuple[str, list[int]]:
        """A kickoff that works, and its processes."""
        place = self.folder / f"run-{next(self.numbers)}"
        kickoff_id = self.server.kickoff({"tool": tool, "place": str(place)})
        wait_until(place.exists, what=f"the crew to call its tool {tool}", every=0.005)
        time.sleep(SETTLED)
        return kickoff_id, [int(pid) for pid in place.read_text().split()]

    def to_none_left(self, tool: str) -> float:
        """Seconds."""
        kickoff_id, pids = self.begin(tool)
        if not all(map(lives, pids)):
            raise RuntimeError(f"the run of {kickoff_id} ended before it was stopped: {self.server.status(kickoff_id)}")
        begun = time.perf_counter()
        self.server.stop(kickoff_id)
        wait_until(lambda: not any(map(lives, pids)), what="the processes to be gone", every=0.005)
        took = time.perf_counter() - begun
        self._check(kickoff_id)
        return took

    def of_one_that_waits(self) -> float:
        """Seconds until it is recorded as stopped, while all slots are taken."""
        kickoff_id = self.server.kickoff({})
        begun = time.perf_counter()
        self.server.stop(kickoff_id)
        took = time.perf_counter() - begun
        self._check(kickoff_id, started=False)
        return took

    def _check(self, kickoff_id: str, *, started: bool = True) -> None:
        status = self.server.ended(kickoff_id, within=30)
        if status["reason"] != "cancelled" or bool(status["started_at"]) is not started:
            raise RuntimeError(f"a stopped kickoff has the status {status}")


def stops(*, rounds: int) -> list[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder,
        served(PROJECTS / "stoppable", {"WINDLASS_SLOTS": str(SLOTS), "WINDLASS_CREW_FILES": f"{folder}:rw"}) as server,
    ):
        Path(folder).chmod(0o777)  # crews may run as another user
        runs = Stops(server, Path(folder))
        blocked = [runs.to_none_left("block_in_c") for _ in range(rounds)]
        cooperative = [runs.to_none_left("be_short") for _ in range(rounds)]
        for _ in range(SLOTS):
            runs.begin("be_short")
        queued = [1000 * runs.of_one_that_waits() for _ in range(rounds)]
    return [
        Figure("stop to no process left, tool blocked in C code, s", spread(blocked, "", 2), "under 6"),
        Figure("stop to no process left, short tool calls, s", spread(cooperative, "", 2), "under 1"),
        Figure("stop of one that waits, ms", spread(queued, "", 1)),
    ]
