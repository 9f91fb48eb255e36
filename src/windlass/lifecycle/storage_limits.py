"""Counts the rows and bytes that one kickoff stores in the database, and ends its run at the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.kickoffs.limits import WHERE
from windlass.kickoffs.outcome import Termination
from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.tasks import Warning_
from windlass_child.process.budget import size_in_words
from windlass_child.process.messages import TaskEnded

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.kickoffs.limits import Limits
    from windlass.runner import Terminator
    from windlass_child.process.messages import JournalAppend

ROW = 100
"""Approximate bytes of a database row in addition to its value."""


class Stored:
    """Counts the events and bytes that all attempts of one kickoff have stored: events, task outputs, journal.

    At the `event_limit` the run continues: further events are dropped, and `warn` is called once. At the `stored_limit`
    the run is ended, because a task output or a journal entry can't be left out. Later reports of the run are dropped.
    """

    def __init__(self, limits: Limits, terminator: Terminator, warn: Callable[[Warning_], None]) -> None:
        self._limits = limits
        self._terminator = terminator
        self._warn = warn
        self._cut = False
        self.events = 0
        self.size = 0

    @property
    def full(self) -> bool:
        return self._limits.stored_limit is not None and self.size > self._limits.stored_limit

    def has_room_for_an_event(self) -> bool:
        limit = self._limits.event_limit
        if limit is None or self.events < limit:
            return not self.full
        if not self._cut:
            self._cut = True
            self._warn(
                Warning_(
                    "events_cut",
                    f"The kickoff has {limit} events, its event_limit; the server dropped all later ones. Print less, "
                    f"or raise event_limit {WHERE}.",
                )
            )
        return False

    def take(self, report: TaskEnded | JournalAppend) -> bool:
        """Counts the bytes that the report adds to the database. Returns False when the report must be dropped."""
        if self.full:
            return False
        self.add(len(report.output or "") if isinstance(report, TaskEnded) else len(report.record))
        return True

    def add_event(self, size: int) -> None:
        self.events += 1
        self.add(size)

    def add(self, size: int) -> None:
        """Counts a row with a value of `size` bytes."""
        self.size += size + ROW
        limit = self._limits.stored_limit
        if limit is not None and self.size > limit:
            error = (
                f"the kickoff stored {size_in_words(self.size)} of events, task outputs and journal in the database, "
                f"more than its stored_limit of {size_in_words(limit)}. Print and return less, or raise stored_limit "
                f"{WHERE}."
            )
            self._terminator.end(Termination(State.FAILED, Reason.LIMIT, error, at_once=True))
