"""Settles a run: decides between its final state and another attempt, and writes it with the last reports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from windlass import log, metrics
from windlass.errors import Unstorable
from windlass.kickoffs.outcome import (
    LONGEST_WORDS,
    STOPPED,
    cancelled_outcome,
    failure,
    lost_too_often,
    never_started,
)
from windlass.kickoffs.states import Reason, State
from windlass.lifecycle.background_tasks import LARGE, until_stored, until_the_database_answers
from windlass.store.claiming import host
from windlass.store.ending import Interruption
from windlass.store.reporting import Batch
from windlass_child.protocol.sizes import size_in_words
from windlass_child.protocol.truncation import beginning

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.kickoffs.events import StoredEvent
    from windlass.kickoffs.files import FileChanges
    from windlass.kickoffs.outcome import Outcome
    from windlass.kickoffs.questions import Question
    from windlass.kickoffs.retries import Retries
    from windlass.kickoffs.tasks import TaskRecords
    from windlass.lifecycle.run_files import RunFiles
    from windlass.lifecycle.run_recorder import RunRecorder
    from windlass.runner import LeaseHandle
    from windlass.store.claiming import Claimed
    from windlass.store.kickoffs import KickoffStore
    from windlass.store.reporting import JournalEntry

logger = log.logger(__name__)


class RunEnding:
    """Settles the kickoff of one attempt, or requeues it for another one.

    `seconds_left` returns the rest of the kickoff's timeout, None for no timeout.
    """

    def __init__(
        self,
        claimed: Claimed,
        store: KickoffStore,
        reports: RunRecorder,
        records: TaskRecords,
        files: RunFiles,
        *,
        lease_handle: LeaseHandle,
        retries: Retries,
        max_losses: int,
        seconds_left: Callable[[], float | None],
    ) -> None:
        self._claimed = claimed
        self._store = store
        self._reports = reports
        self._records = records
        self._files = files
        self._lease_handle = lease_handle
        self._retries = retries
        self._max_losses = max_losses
        self._seconds_left = seconds_left
        self._file_changes: FileChanges | None = None
        self._files_skipped = False
        self._pauses: dict[tuple[Reason | None, bool], float | None] = {}

    def keeps_files(self, outcome: Outcome) -> bool:
        """Returns whether the files of the run are to be stored, because no other attempt follows."""
        self._files_skipped = outcome.reason is not Reason.LOST and self._pause(outcome) is not None
        return outcome.reason is not Reason.LOST and not self._files_skipped

    async def store_files(self) -> FileChanges | None:
        """Stores the content of the changed files, and returns the changes. They are committed with the outcome."""
        self._file_changes = await self._files.at_end()
        return self._file_changes

    async def settle_for_sure(self, outcome: Outcome) -> Outcome:
        """Settles the kickoff and returns the settled outcome: a failure if the whole result can't be stored.

        Writes the last reports of the run too. Raises NoLongerOurs.
        """
        settled = await self._settled_with_last_reports(outcome)
        return settled or await self._settled_alone(await self._write_last_reports(outcome))

    async def pause(self, outcome: Outcome, question: Question, entry: JournalEntry, event: StoredEvent) -> Outcome:
        """Pauses the kickoff until a person answers, with the last reports of the run. Returns the settled outcome: a
        failure if the draft can't be stored.
        """
        usage, warnings = self._reports.usage, self._records.warnings
        last = self._reports.last or Batch(model_calls=self._reports.model_calls)
        events = [*last.events, event]
        batch = replace(last, events=events, usage=usage, warnings=warnings, entries=[entry], questions=[question])
        kickoff, attempt = self._claimed.id, self._claimed.attempt
        try:
            state = await until_stored(
                lambda: self._store.pause(kickoff, attempt, batch, self._file_changes), self._store.answers, batch.size
            )
        except Unstorable as error:
            message = f"the draft for a person is {size_in_words(len(question.draft))}, and {error}"
            failed = failure(Reason.LIMIT, beginning(message, LONGEST_WORDS), final=True)
            return await self._settle_reduced(await self._write_last_reports(failed))
        if state is State.CANCELLED:
            outcome = cancelled_outcome(outcome, STOPPED)
            metrics.ENDED.labels(outcome.state).inc()
        names = {State.PENDING_HUMAN_INPUT: "kickoff.paused", State.CANCELLED: "kickoff.ended", None: "kickoff.taken"}
        logger.event(names[state], kickoff_id=kickoff, attempt=attempt, state=outcome.state)
        return outcome

    async def _settled_with_last_reports(self, outcome: Outcome) -> Outcome | None:
        """Writes the last reports and the outcome in one statement, when the kickoff ends and both are small.

        Returns the settled outcome, or None when nothing is written.
        """
        size = len(outcome.output or "") + len(outcome.structured or "")
        special = self._files_skipped or self._file_changes is not None or outcome.output_of is not None
        goes_on = outcome.reason is Reason.LOST or self._pause(outcome) is not None
        if self._reports.last is None or special or goes_on or size > LARGE:
            return None
        try:
            return await until_the_database_answers(lambda: self._end(outcome, self._reports.last))
        except Unstorable:  # each is tried on its own
            return None

    async def _write_last_reports(self, outcome: Outcome) -> Outcome:
        try:
            await self._reports.write_last()
        except Unstorable as error:
            return failure(Reason.LIMIT, str(error), final=True)
        return outcome

    async def _settled_alone(self, outcome: Outcome) -> Outcome:
        size = len(outcome.output or "") + len(outcome.structured or "")
        try:
            return await until_stored(lambda: self.settle(outcome), self._store.answers, size)
        except Unstorable as error:
            message = f"the result is {size_in_words(size)}, and {error}"
            reduced = failure(Reason.LIMIT, beginning(message, LONGEST_WORDS), final=True)
            self._records.warnings.clear()
            return await self._settle_reduced(reduced)

    async def _settle_reduced(self, outcome: Outcome) -> Outcome:
        """Settles the kickoff with the changes of its files, or without them if they can't be stored either."""
        if self._file_changes is not None:
            try:
                return await until_stored(lambda: self.settle(outcome), self._store.answers, LARGE + 1)
            except Unstorable as error:
                await self._files.give_up(error.message, self._file_changes)
                self._file_changes = None
        return await until_the_database_answers(lambda: self.settle(outcome))

    async def settle(self, outcome: Outcome) -> Outcome:
        if outcome.reason is Reason.LOST:
            if await self._requeue(outcome.error or ""):
                return outcome
            ended = lost_too_often if self._reports.process_started else never_started
            last = f"The last time, on the machine {host()}: {outcome.error}"
            outcome = replace(outcome, error=f"{ended(self._max_losses)} {last}")
        elif await self._retry(outcome):
            return outcome
        if self._files_skipped:
            self._files_skipped = False
            await self._files.give_up("another attempt was to follow, but none does.")
        return await self._end(outcome)

    async def _end(self, outcome: Outcome, last: Batch | None = None) -> Outcome:
        kickoff, attempt = self._claimed.id, self._claimed.attempt
        usage, warnings = self._reports.usage, self._records.warnings
        settled = await self._store.settle(
            kickoff, attempt, outcome, usage, warnings, changes=self._file_changes, last=last
        )
        if settled is State.CANCELLED:
            outcome = cancelled_outcome(outcome, STOPPED)
        if settled:
            metrics.ENDED.labels(outcome.state).inc()
        logger.event(
            "kickoff.ended" if settled else "kickoff.taken",
            kickoff_id=kickoff,
            attempt=attempt,
            state=outcome.state,
            reason=outcome.reason,
            trace=outcome.trace or None,
        )
        return outcome

    async def _retry(self, outcome: Outcome) -> bool:
        pause = self._pause(outcome)
        if pause is None:
            return False
        kickoff, attempt, why = self._claimed.id, self._claimed.attempt, outcome.error or ""
        retried = await self._store.retry(kickoff, attempt, self._interruption(why), pause=pause)
        if retried:
            logger.event("kickoff.retried", kickoff_id=kickoff, attempt=attempt, why=why, pause=round(pause, 1))
        return retried

    def _pause(self, outcome: Outcome) -> float | None:
        """Returns the seconds until the next attempt that the project requests, or None for no further attempt. The
        answer, which is partly random, stays the same.
        """
        kind = outcome.reason, outcome.final
        if kind not in self._pauses:
            self._pauses[kind] = self._new_pause(outcome)
        return self._pauses[kind]

    def _new_pause(self, outcome: Outcome) -> float | None:
        pause = self._retries.pause(outcome, self._claimed.retries)
        left = self._seconds_left()
        late = pause is not None and left is not None and pause >= left
        return None if late else pause  # the kickoff would reach its timeout before the next attempt

    async def _requeue(self, why: str) -> bool:
        kickoff, attempt = self._claimed.id, self._claimed.attempt
        isolated = not self._lease_handle.lapsed  # after the end of the lease, the crew did not cause the loss
        state = await self._store.requeue(
            kickoff,
            attempt,
            self._interruption(why),
            max_losses=self._max_losses,
            isolated=isolated,
            process_started=self._reports.process_started,
        )
        if state is not None:
            logger.event("kickoff.lost", kickoff_id=kickoff, attempt=attempt, why=why, again=state is State.PENDING)
        return state is not None

    def _interruption(self, why: str) -> Interruption:
        return Interruption(why, self._reports.usage, self._records.warnings)
