"""Counts the rows and bytes that one kickoff stores in the database, and ends its run at the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.kickoffs.events import MILESTONES, is_chunk
from windlass.kickoffs.limits import WHERE
from windlass.kickoffs.outcome import Termination
from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.tasks import Warning_
from windlass_child.protocol.messages import TaskEnded
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.kickoffs.limits import Limits
    from windlass.runner import Terminator
    from windlass_child.protocol.messages import Asked, JournalAppend

ROW = 100
"""Approximate bytes of a database row in addition to its value."""
MOST_MILESTONES = 10_000
"""Events of tasks, methods and the end of a kickoff that are stored beyond the `event_limit`."""
EVENTS_CUT = (
    "The kickoff has {limit} events, its event_limit; the server dropped later ones, except those of tasks and of the "
    "end. Print less, or raise event_limit"
)
CHUNKS_CUT = (
    "The streamed answers of models have {limit} chunks, the event_limit of the kickoff; the server dropped all later "
    "ones. The whole answers are in other events. Stream less, or raise event_limit"
)


class Stored:
    """Counts the events and bytes that all attempts of one kickoff have stored: events, task outputs, journal.

    At the `event_limit` the run continues: further events are dropped, and `warn` is called once. Chunks of streamed
    answers count apart, up to the same limit. The MILESTONES of a run have MOST_MILESTONES more. At the `stored_limit`
    the run is ended, because a task output or a journal entry can't be left out. Later reports of the run are dropped.
    """

    def __init__(self, limits: Limits, terminator: Terminator, warn: Callable[[Warning_], None]) -> None:
        self._limits = limits
        self._terminator = terminator
        self._warn = warn
        self._warned: set[str] = set()
        self.events = 0
        """Events that are no chunks."""
        self.chunks = 0
        self.size = 0

    @property
    def full(self) -> bool:
        return self._limits.stored_limit is not None and self.size > self._limits.stored_limit

    def has_room_for(self, kind: str) -> bool:
        """Returns whether one more event of this type may be stored."""
        limit = self._limits.event_limit
        if limit is None:
            return not self.full
        if is_chunk(kind):
            return self._fits(self.chunks < limit, "chunks_cut", CHUNKS_CUT.format(limit=limit))
        most = limit + MOST_MILESTONES if kind in MILESTONES else limit
        return self._fits(self.events < most, "events_cut", EVENTS_CUT.format(limit=limit))

    def _fits(self, fits: bool, code: str, message: str) -> bool:
        if not fits and code not in self._warned:
            self._warned.add(code)
            self._warn(Warning_(code, f"{message} {WHERE}."))
        return fits and not self.full

    def take(self, report: TaskEnded | JournalAppend | Asked) -> bool:
        """Counts the bytes that the report adds to the database. Returns False when the report must be dropped."""
        if self.full:
            return False
        size = len(report.output or "") if isinstance(report, TaskEnded) else len(report.record)
        self.add(size + len(getattr(report, "draft", "")))
        return True

    def add_event(self, kind: str, size: int) -> None:
        if is_chunk(kind):
            self.chunks += 1
        else:
            self.events += 1
        self.add(size)

    def add(self, size: int, rows: int = 1) -> None:
        """Counts rows with values of `size` bytes."""
        self.size += size + ROW * rows
        limit = self._limits.stored_limit
        if limit is not None and self.size > limit:
            error = (
                f"the kickoff stored {size_in_words(self.size)} of events, task outputs and journal in the database, "
                f"more than its stored_limit of {size_in_words(limit)}. Print and return less, or raise stored_limit "
                f"{WHERE}."
            )
            self._terminator.end(Termination(State.FAILED, Reason.LIMIT, error, at_once=True))
