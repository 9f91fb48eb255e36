from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import WindlassError
from windlass.kickoffs.outcome import Ended, Outcome, decide, failure, lost, lost_too_often
from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.stopping import stopped
from windlass.kickoffs.tasks import TaskRecords, Warning_
from windlass.lifecycle.journal import Journal
from windlass.lifecycle.loops import until_the_database_answers
from windlass.lifecycle.reports import NoLongerOurs, Reports
from windlass.projects import Options
from windlass.runner import Ender, Output, Preparing, Runner, RunOrder, Tether
from windlass.runner.runner import timed_out
from windlass.store.kickoffs import Claimed, Interruption
from windlass_crewside.messages import (
    Event,
    Journaled,
    Message,
    ModelCalled,
    Project,
    Remember,
    TaskEnded,
    TasksKnown,
    TaskStarted,
    Tokens,
    Warned,
)

if TYPE_CHECKING:
    from windlass.kickoffs.limits import Limits
    from windlass.store.kickoffs import KickoffStore
    from windlass.vault.key_ring import KeyRing

Watcher = Callable[["Claimed", object], None]
"""Told of what happens in a run: None when it begins, its reports, and at last its Outcome. It must not raise."""

Environment = Callable[[Claimed], Awaitable[Mapping[str, str]]]
"""A kickoff that starts now -> the environment of its crew."""

logger = log.logger(__name__)


def unwatched(_: Claimed, __: object) -> None:
    """A Watcher that looks away."""


class Run:
    """One attempt of one kickoff in this worker: from claimed to settled. `limits` are the server's, `tether` holds it
    to the worker's lease, `key_ring` opens its journal.
    """

    def __init__(
        self,
        claimed: Claimed,
        store: KickoffStore,
        runner: Runner,
        tether: Tether,
        key_ring: KeyRing,
        *,
        max_losses: int,
        limits: Limits,
        watcher: Watcher,
    ) -> None:
        self.claimed = claimed
        self._watcher = watcher
        self.tether = tether
        self._options = Options.from_json(claimed.source.get("options", {}))
        self._limits = limits.replaced_by(self._options.limits).lowered_by(claimed.limits)
        self._ender = Ender()
        self._store = store
        self._runner = runner
        self._max_losses = max_losses
        self._records = TaskRecords(claimed.manifest.tasks)
        self._reports = Reports(store, claimed, self._records, tether)
        self._journal = Journal(store, key_ring, claimed.id)
        self._remembered: list[Remember] = []
        self._began = time.monotonic()
        self.over = False
        """The crew has come to its end, and only that is left to be written."""

    async def __call__(self, environment: Environment) -> None:
        """Returns when the outcome is committed, or counts for nothing."""
        self._watcher(self.claimed, None)
        try:
            outcome = await self._outcome(environment)
        except NoLongerOurs:
            logger.event("kickoff.taken", kickoff_id=self.claimed.id, attempt=self.claimed.attempt)
        else:
            await until_the_database_answers(lambda: self._settle(outcome))
            self._watcher(self.claimed, outcome)

    def stop(self) -> None:
        self._ender.end(stopped())

    async def lose(self, why: str) -> None:
        """For a run that came to no outcome: the kickoff is run again, unless that happened too often."""
        await until_the_database_answers(lambda: self._settle(lost(why)))

    async def _outcome(self, environment: Environment) -> Outcome:
        await until_the_database_answers(self._recall)
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

    async def _recall(self) -> None:
        """What earlier attempts have left."""
        if self.claimed.attempt > 1:
            await self._reports.open()
            self._records.remember(await self._store.earlier_records(self.claimed.id))

    async def _run(self, environment: Environment) -> Outcome:
        if self._seconds_left is not None and self._seconds_left <= 0:
            self._ender.end(timed_out(self._limits.timeout))
        if self._ender.asked:
            return decide(Ended(asked=self._ender.asked))
        try:
            order = self._order(await environment(self.claimed))
            if self.claimed.attempt > 1:
                await until_the_database_answers(self._recall_journal)
        except WindlassError as error:
            return failure(Reason.ERROR, str(error))
        order = replace(order, journal=self._remembered)
        return await self._runner.run(order, self._hear, self._ender, self.tether)

    async def _recall_journal(self) -> None:
        self._remembered = await self._journal.remembered()

    @property
    def _seconds_left(self) -> float | None:
        timeout = self._limits.timeout
        return None if timeout is None else timeout - self.claimed.ran_for - (time.monotonic() - self._began)

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
            limits=self._limits,
            seconds_left=self._seconds_left,
            preload_project=self._options.preload == "project",
            digest=self.claimed.digest,
            start=self._options.start,
            alone=self.claimed.alone,
            lease=self.tether.until,
            tokens_used=self.claimed.usage.total_tokens,
            model_calls_made=self.claimed.model_calls,
        )

    async def _hear(self, report: Message | Output | Preparing) -> None:
        self._watcher(self.claimed, report)
        match report:
            case Event():
                await self._reports.add(report.type, report.at, report.payload)
            case Output():
                await self._reports.add(f"output_{report.stream}", report.at, {"line": report.line})
            case TasksKnown() | TaskStarted() | TaskEnded():
                self._records.hear(report)
            case Tokens():
                self._reports.usage.add(report)
            case ModelCalled():
                self._reports.model_calls += 1
            case Journaled():
                self._reports.journal(await self._journal.entry(report))
            case Warned():
                self._reports.warn(Warning_(report.code, report.message, self._records.task_id(report.task)))
            case Preparing():
                self._reports.waiting_for = report.what
        self._reports.wake()

    async def _settle(self, outcome: Outcome) -> None:
        if outcome.reason is Reason.LOST:
            if await self._put_back(outcome.error or ""):
                return
            outcome = replace(outcome, error=f"{lost_too_often(self._max_losses)} The last time: {outcome.error}")
        elif await self._retry(outcome):
            return
        kickoff, attempt = self.claimed.id, self.claimed.attempt
        settled = await self._store.settle(kickoff, attempt, outcome, self._reports.usage, self._records.warnings)
        logger.event(
            "kickoff.ended" if settled else "kickoff.taken",
            kickoff_id=kickoff,
            attempt=attempt,
            state=outcome.state,
            reason=outcome.reason,
            trace=outcome.trace or None,
        )

    async def _retry(self, outcome: Outcome) -> bool:
        pause = self._options.retries.pause(outcome, self.claimed.retries)
        if pause is None or (self._seconds_left is not None and pause >= self._seconds_left):
            return False  # it would wait for nothing but its timeout
        kickoff, attempt, why = self.claimed.id, self.claimed.attempt, outcome.error or ""
        retried = await self._store.retry(kickoff, attempt, self._interruption(why), pause=pause)
        if retried:
            logger.event("kickoff.retried", kickoff_id=kickoff, attempt=attempt, why=why, pause=round(pause, 1))
        return retried

    async def _put_back(self, why: str) -> bool:
        kickoff, attempt = self.claimed.id, self.claimed.attempt
        alone = not self.tether.lapsed  # else it was not the crew that ended it
        state = await self._store.put_back(
            kickoff, attempt, self._interruption(why), max_losses=self._max_losses, alone=alone
        )
        if state is not None:
            logger.event("kickoff.lost", kickoff_id=kickoff, attempt=attempt, why=why, again=state is State.PENDING)
        return state is not None

    def _interruption(self, why: str) -> Interruption:
        return Interruption(why, self._reports.usage, self._records.warnings)
