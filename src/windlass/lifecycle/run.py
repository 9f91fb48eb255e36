from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import ProjectError
from windlass.kickoffs.events import StoredEvent, stored_event
from windlass.kickoffs.outcome import Outcome, failure, lost, lost_too_often
from windlass.kickoffs.states import Reason
from windlass.kickoffs.tasks import TaskRecord, TaskRecords, Warning_
from windlass.kickoffs.usage import TokenUsage
from windlass.lifecycle.loops import until_the_database_answers
from windlass.runner import Output, Runner, RunOrder
from windlass.store.kickoffs import Claimed
from windlass_crewside.messages import Event, Message, Project, TaskEnded, TasksKnown, TaskStarted, Tokens, Warned

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.kickoffs import KickoffStore

Environment = Callable[[Claimed], Awaitable[Mapping[str, str]]]
"""A kickoff that starts now -> the environment of its crew."""

MOST_WAITING = 500
MOST_BYTES_WAITING = 16 * 1024 * 1024
"""Events of one run, and bytes of them, that wait to be written before its child is made to wait."""

logger = log.logger(__name__)


class NoLongerOurs(Exception):  # noqa: N818 - said of the kickoff
    """The kickoff went on without this run: its lease had ended, or it was stopped."""


class Run:
    """One attempt of one kickoff in this worker: from claimed to settled."""

    def __init__(self, claimed: Claimed, store: KickoffStore, runner: Runner, *, max_losses: int) -> None:
        self.claimed = claimed
        self._store = store
        self._runner = runner
        self._max_losses = max_losses
        self._records = TaskRecords(claimed.manifest.tasks)
        self._usage = TokenUsage()
        self._warnings: list[Warning_] = []
        self._reports = Reports(store, claimed, self._records)
        self.over = False
        """The crew has come to its end, and only that is left to be written."""

    async def __call__(self, environment: Environment) -> None:
        """Returns when the outcome is committed, or counts for nothing."""
        try:
            outcome = await self._outcome(environment)
        except NoLongerOurs:
            logger.event("kickoff.taken", kickoff_id=self.claimed.id, attempt=self.claimed.attempt)
        else:
            await until_the_database_answers(lambda: self._settle(outcome))

    async def lose(self, why: str) -> None:
        """For a run that came to no outcome: the kickoff is run again, unless that happened too often."""
        await until_the_database_answers(lambda: self._settle(lost(why)))

    async def _outcome(self, environment: Environment) -> Outcome:
        await until_the_database_answers(self._reports.open)
        try:
            async with asyncio.TaskGroup() as both:
                writing = both.create_task(self._reports.write())
                outcome = await self._run(environment)
                self.over = True
                self._reports.close()
                await writing
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the other one was ended for it
        return outcome

    async def _run(self, environment: Environment) -> Outcome:
        try:
            order = self._order(await environment(self.claimed))
        except ProjectError as error:
            return failure(Reason.ERROR, str(error))
        return await self._runner.run(order, self._hear)

    def _order(self, environment: Mapping[str, str]) -> RunOrder:
        source = self.claimed.source
        return RunOrder(
            kickoff_id=str(self.claimed.id),
            attempt=self.claimed.attempt,
            interpreter=Path(source["interpreter"]),
            preload=source["preload"],
            project=Project(source["kind"], source["root"], source["entrypoint"]),
            environment=environment,
            inputs=self.claimed.inputs,
        )

    async def _hear(self, report: Message | Output) -> None:
        match report:
            case Event():
                await self._reports.add(report.type, report.at, report.payload)
            case Output():
                await self._reports.add(f"output_{report.stream}", report.at, {"line": report.line})
            case TasksKnown():
                self._records.know(report)
            case TaskStarted():
                self._records.start(report)
            case TaskEnded():
                self._records.end(report)
            case Tokens():
                self._usage.add(report)
            case Warned():
                self._warnings.append(Warning_(report.code, report.message, self._records.task_id(report.task)))
        self._reports.wake()

    async def _settle(self, outcome: Outcome) -> None:
        if outcome.reason is Reason.LOST:
            if await self._put_back():
                why = outcome.error
                logger.event("kickoff.lost", kickoff_id=self.claimed.id, attempt=self.claimed.attempt, why=why)
                return
            outcome = replace(outcome, error=f"{lost_too_often(self._max_losses)} The last time: {outcome.error}")
        warnings = [*self._records.warnings, *self._warnings]
        settled = await self._store.settle(self.claimed.id, self.claimed.attempt, outcome, self._usage, warnings)
        logger.event(
            "kickoff.ended" if settled else "kickoff.taken",
            kickoff_id=self.claimed.id,
            attempt=self.claimed.attempt,
            state=outcome.state,
            reason=outcome.reason,
            trace=outcome.trace or None,
        )

    async def _put_back(self) -> bool:
        return await self._store.put_back(self.claimed.id, self.claimed.attempt, max_losses=self._max_losses)


class Reports:
    """What a run tells, on its way into the database: in order, in batches, each batch with the task records that
    changed.
    """

    def __init__(self, store: KickoffStore, claimed: Claimed, records: TaskRecords) -> None:
        self._store = store
        self._kickoff: UUID = claimed.id
        self._attempt = claimed.attempt
        self._records = records
        self._seq = 0
        self._waiting: list[StoredEvent] = []
        self._bytes = 0
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    async def open(self) -> None:
        if self._attempt > 1:
            self._seq = await self._store.last_event(self._kickoff)

    async def add(self, kind: str, at: float, payload: dict[str, object]) -> None:
        """Waits while too much is unwritten: the run is not read any further then, and its child waits too."""
        await self._room.wait()
        self._seq += 1
        event = stored_event(self._seq, kind, at, payload)
        self._waiting.append(event)
        self._bytes += len(event.payload)
        if len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES_WAITING:
            self._room.clear()

    def wake(self) -> None:
        self._something.set()

    def close(self) -> None:
        self._closed = True
        self._something.set()

    async def write(self) -> None:
        """Until closed and empty. Raises NoLongerOurs."""
        while True:
            await self._something.wait()
            self._something.clear()
            last = self._closed
            events, self._waiting, self._bytes = self._waiting, [], 0
            self._room.set()
            records = self._records.take_changed()
            if events or records:
                await until_the_database_answers(lambda: self._write(events, records))  # noqa: B023 - awaited here
            if last:
                return

    async def _write(self, events: list[StoredEvent], records: list[TaskRecord]) -> None:
        if not await self._store.write_reports(self._kickoff, self._attempt, events, records):
            raise NoLongerOurs
