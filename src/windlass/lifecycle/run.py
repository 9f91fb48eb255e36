"""Runs one attempt of a kickoff: resolves its environment, follows its reports, and hands its end to run_ending.py."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from windlass import log
from windlass.aio import cancelled, offload, shielded
from windlass.errors import DatabaseUnavailable, ProjectError, Unstorable, WindlassError
from windlass.kickoffs.events import HUMAN_INPUT_REQUESTED, SECRETS_RESOLVED, TRACEBACK
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.opened_files import opened
from windlass.kickoffs.outcome import LONGEST_WORDS, Ended, Outcome, decide, failure, lost, stopped
from windlass.kickoffs.questions import Question, key_of
from windlass.kickoffs.states import Reason
from windlass.kickoffs.tasks import MOST_RECORDS, TaskRecords, TooManyRecords, Warning_
from windlass.lifecycle.background_tasks import until_the_database_answers
from windlass.lifecycle.journal import EncryptedJournal
from windlass.lifecycle.live_questions import LiveQuestions
from windlass.lifecycle.run_ending import RunEnding
from windlass.lifecycle.run_files import RunFiles
from windlass.lifecycle.run_recorder import NoLongerOurs, RunRecorder
from windlass.lifecycle.worker_config import Code, UnreadableSecrets
from windlass.projects import Options
from windlass.runner import LeaseHandle, Output, Preparing, ResultSent, Runner, RunSpec, Terminator
from windlass.runner.run_context import at_the_latest, timed_out, unless_ended
from windlass.runner.run_spec import no_journal
from windlass_child.masking.secret_values import SecretValues
from windlass_child.masking.server_paths import ServerPaths
from windlass_child.process.budget import hint
from windlass_child.protocol.messages import (
    Asked,
    Event,
    JournalAppend,
    Loaded,
    Message,
    ModelCalled,
    Project,
    TaskEnded,
    TasksKnown,
    TaskStarted,
    Tokens,
    Warned,
)
from windlass_child.protocol.truncation import beginning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from windlass.kickoffs.opened_files import Files
    from windlass.lifecycle.notices import Notices
    from windlass.lifecycle.slots import Slots
    from windlass.lifecycle.worker_config import CrewEnvironment, Environment, Observer, WorkerConfig
    from windlass.runner.run_folder import RunFolder
    from windlass.secrets.key_ring import KeyRing
    from windlass.store.claiming import Claimed
    from windlass.store.kickoffs import KickoffStore

SHOWN_AFTER = 0.5
"""Seconds after which a run that waits for its code, for its secrets or for the import of its project reports so."""
LONGEST_TYPE = 200
"""Characters of an event's type and of a warning's code."""
MOST_CALLS_AT_ONCE = 100
"""Model calls that a run may have begun in its own threads before it noticed that its token_limit was reached."""
TOO_MANY = (
    f"the run reported more than {MOST_RECORDS:,} tasks, which is the most that a kickoff can have. Do more in each "
    "task or step, or start several kickoffs."
)

logger = log.logger(__name__)


class OverLimit(Exception):  # noqa: N818 - describes the run
    """Reports that the run exceeds a limit. The message is for the person who started the kickoff."""


class Run:
    """Runs one attempt of one kickoff in this worker, from claimed to settled.

    `lease_handle` connects the run to the worker's lease. `key_ring` decrypts the journal. The run takes one of the
    `slots`. `answers` notifies of the answers of people.
    """

    def __init__(
        self,
        claimed: Claimed,
        store: KickoffStore,
        runner: Runner,
        lease_handle: LeaseHandle,
        key_ring: KeyRing,
        config: WorkerConfig,
        *,
        observers: Sequence[Observer],
        slots: Slots,
        answers: Notices,
    ) -> None:
        self.claimed = claimed
        self._config = config
        self._observers = observers
        self.lease_handle = lease_handle
        self._options = Options.of_kickoff(claimed.source, claimed.settings)
        self._limits = config.limits.replaced_by(self._options.limits).lowered_by(claimed.limits)
        self._terminator = Terminator()
        self._store = store
        self._runner = runner
        self._records = TaskRecords(claimed.manifest.tasks)
        self._reports = RunRecorder(store, claimed, self._records, lease_handle, self._limits, self._terminator)
        self._journal = EncryptedJournal(store, key_ring, claimed)
        self._questions = LiveQuestions(store, answers, claimed, lease_handle, self._terminator, self._go_on)
        self.files = RunFiles(store, claimed, config.files, self._reports.warn)
        self._ending = RunEnding(
            claimed,
            store,
            self._reports,
            self._records,
            self.files,
            lease_handle=lease_handle,
            retries=self._options.retries,
            max_losses=config.max_losses,
            seconds_left=lambda: self._seconds_left,
        )
        self._import_notice: asyncio.TimerHandle | None = None
        self._calls_past_limit = 0
        self._began = time.monotonic()
        self.over = False
        """True after the crew has ended. Only the outcome and the last reports are still to be written."""
        self._final_outcome: Outcome | None = None
        self._settleable: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """The outcome, when the run has no process any more. It is not set if another attempt follows."""
        self.slot = slots.of_run()  # last: a constructor that fails must take none

    async def __call__(self, environment: Environment) -> None:
        """Runs the attempt. Returns when its outcome is committed, or when the kickoff went on without this run, and
        when nothing of the run is left on this machine.
        """
        self._show(None)
        await until_the_database_answers(self._recall)
        running = asyncio.create_task(self._run_within_limits(environment))
        try:
            self._show(await self._settled(await self._outcome(running)))
        except NoLongerOurs:
            logger.event("kickoff.taken", kickoff_id=self.claimed.id, attempt=self.claimed.attempt)
        finally:
            await self._questions.stop()
            await self._until_removed(running)

    async def _settled(self, outcome: Outcome) -> Outcome:
        if outcome.asked is None:
            return await self._ending.settle_for_sure(outcome)
        entry, question = await self._journal.entry(outcome.asked), await self._question(outcome.asked)
        event = self._reports.last_event(HUMAN_INPUT_REQUESTED, time.time(), await self._described(question))
        return await self._ending.pause(outcome, question, entry, event)

    async def _described(self, question: Question) -> dict[str, object]:
        task = self._records.name(question.position)
        return await offload(len(question.draft), lambda: question.to_json(task))

    def _show(self, message: object) -> None:
        for observe in self._observers:
            observe(self.claimed, message)

    def stop(self) -> None:
        self._terminator.end(stopped())

    async def begin(self, folder: RunFolder) -> None:
        await self.files.begin(folder)

    async def end(self, outcome: Outcome) -> None:
        """Stores the files of the run, unless another attempt follows: that one goes on from the last finished step."""
        if not self._ending.keeps_files(outcome):
            return
        self.over = True
        changes = await self._ending.store_files()
        if changes is not None:
            self._show(changes)
        self._final_outcome = outcome

    async def wait_for_slot(self) -> None:
        await self.slot.acquire()

    def process_started(self) -> None:
        self._reports.begin()
        self._imported()
        self._import_notice = asyncio.get_running_loop().call_later(SHOWN_AFTER, self._report_import)

    def _report_import(self) -> None:
        self._wait_for("import")
        self._show(Preparing("import"))

    def _imported(self) -> None:
        """Ends the wait for the import of the project, if there is one."""
        if self._import_notice is not None:
            self._import_notice.cancel()
        if self._reports.waiting_for == "import":
            self._wait_for(None)

    def process_released(self) -> None:
        """Lets the kickoff be settled while the folder of the run is removed, unless another attempt follows."""
        self.slot.release()
        if self._final_outcome is not None:
            self._settleable.set_result(self._final_outcome)

    async def lose(self, why: str) -> None:
        """Settles a run without an outcome as a loss. The kickoff is run again, unless it was lost too often."""
        await until_the_database_answers(lambda: self._ending.settle(lost(why)))

    async def _outcome(self, running: asyncio.Task[Outcome]) -> Outcome:
        """Returns the outcome of the run. All its reports are written by then, except for the last ones."""
        try:
            async with asyncio.TaskGroup() as both:
                writing = both.create_task(self._reports.write())
                try:
                    await asyncio.wait([running, self._settleable], return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    running.cancel()  # now, because `writing` may take seconds to end while the database is slow
                    raise
                outcome = self._settleable.result() if self._settleable.done() else running.result()
                self.over = True
                if outcome.asked:
                    self._records.ask(outcome.asked.position, time.time())
                if outcome.trace:
                    await self._reports.add(TRACEBACK, time.time(), {"text": outcome.trace})
                self._reports.close()
                await writing
        except ExceptionGroup as errors:
            first = errors.exceptions[0]  # the other task was cancelled because of this error
            if not isinstance(first, Unstorable):
                raise first from None
            await cancelled(running)
            outcome = failure(Reason.LIMIT, str(first), final=True)
        return outcome

    async def _until_removed(self, running: asyncio.Task[Outcome]) -> None:
        """Ends the run if it has not ended, and waits until its folder is removed."""
        try:
            if self.over:
                await asyncio.wait([running])
        finally:
            await shielded(cancelled(running))  # the kickoff may run elsewhere only after its process has ended
        if self._settleable.done() and not running.cancelled() and (error := running.exception()):
            logger.event("run.not_removed", kickoff_id=self.claimed.id, attempt=self.claimed.attempt, exc=error)

    async def _recall(self) -> None:
        """Reads the counts and task records of earlier attempts."""
        if self.claimed.attempt > 1:
            await self._reports.open()
            self._records.remember(await self._store.earlier_records(self.claimed.id))

    async def _run_within_limits(self, environment: Environment) -> Outcome:
        try:
            return await self._run(environment)
        except OverLimit as over:
            return failure(Reason.LIMIT, str(over), final=True)
        except TooManyRecords:
            return failure(Reason.LIMIT, TOO_MANY, final=True)

    async def _run(self, environment: Environment) -> Outcome:
        if self._seconds_left is not None and self._seconds_left <= 0:
            self._terminator.end(timed_out(self._limits.timeout))
        if self._terminator.asked:
            return decide(Ended(asked=self._terminator.asked))
        try:
            too_late = timed_out(self._limits.timeout)
            with at_the_latest(self._terminator, self._seconds_left, too_late, self.lease_handle):
                code = await self._code()
                resolved = await unless_ended(self._terminator, lambda: self._resolved(environment))
            if code is None or resolved is None:
                return decide(Ended(asked=self._terminator.asked))
            spec = self._spec(code, resolved)
        except DatabaseUnavailable:
            raise
        except UnreadableSecrets as error:
            await self._report_secrets(error.resolution)
            logger.event("secrets.not_read", kickoff_id=self.claimed.id, deployment=self.claimed.slug, why=error)
            return failure(Reason.SECRETS, beginning(str(error), LONGEST_WORDS))
        except WindlassError as error:
            return failure(Reason.ERROR, str(error))
        try:
            outcome = await self._runner.run(spec, self._handle, self._terminator, self.lease_handle)
        finally:
            self._imported()
        paths = ServerPaths(spec.project.root, str(spec.interpreter))  # errors of the server's own, and of a preload
        return replace(outcome, error=outcome.error and paths.out_of(outcome.error))

    async def _code(self) -> Code | None:
        """Returns None when the end of the run was requested meanwhile. Raises WindlassError when the code can't be
        used on this machine.
        """
        source = self.claimed.source
        if source.get("snapshot"):
            return await unless_ended(self._terminator, self._deployed_code)
        declares = self._options.python is not None
        return await unless_ended(self._terminator, lambda: self._config.code_of(source["root"], declares=declares))

    async def _deployed_code(self) -> Code:
        if self._config.deployed is None:
            raise ProjectError("this worker runs no deployed crews.", "Run kickoffs of the crew with windlass serve.")
        with self._shown_as("environment"):
            return await self._config.deployed(self.claimed, self._options)

    async def _resolved(self, environment: Environment) -> CrewEnvironment:
        """Returns the variables of the crew. Waits while the database is away. Raises WindlassError."""
        with self._shown_as("secrets"):
            resolved = await until_the_database_answers(lambda: environment(self.claimed))
        if resolved.resolution is not None:
            await self._report_secrets(resolved.resolution)
        for warning in resolved.warnings:
            self._reports.warn(warning)
        secret = {name: resolved.variables[name] for name in resolved.secrets & resolved.variables.keys()}
        self.files.hide(SecretValues(secret))
        return resolved

    async def _report_secrets(self, resolution: Mapping[str, object]) -> None:
        await self._reports.add(SECRETS_RESOLVED, time.time(), dict(resolution))
        self._reports.wake()

    @contextmanager
    def _shown_as(self, what: str) -> Iterator[None]:
        """Reports that the run waits for this, if the block takes long."""
        notice = asyncio.get_running_loop().call_later(SHOWN_AFTER, self._wait_for, what)
        try:
            yield
        finally:
            notice.cancel()
            self._wait_for(None)

    def _wait_for(self, what: str | None) -> None:
        if what != self._reports.waiting_for:
            self._reports.waiting_for = what
            self._reports.wake()

    @property
    def _seconds_left(self) -> float | None:
        timeout = self._limits.timeout
        if timeout is None:
            return None
        return timeout - self.claimed.ran_for - (time.monotonic() - self._began) + self.lease_handle.waited_for_person

    def _spec(self, code: Code, environment: CrewEnvironment) -> RunSpec:
        source, egress = self.claimed.source, self._runner.egress_of(self._options.egress)
        return RunSpec(
            kickoff_id=str(self.claimed.id),
            attempt=self.claimed.attempt,
            interpreter=code.interpreter,
            preload=source["preload"],
            project=Project(source["kind"], str(code.root), source["entrypoint"]),
            environment=environment.variables,
            secrets=environment.secrets,
            secret_in_prompt=self._options.secret_in_prompt,
            inputs=self.claimed.inputs,
            limits=self._limits,
            seconds_left=self._seconds_left,
            preload_project=self._options.preload == "project",
            digest=self.claimed.digest,
            start=self._options.start,
            reuse=self._options.reuse,
            version=f"{self.claimed.deployment_id} {self.claimed.digest}",
            isolated=self.claimed.isolated,
            boundary=replace(code.boundary, egress=egress.also(environment.reachable), files=self._files()),
            lease=self.lease_handle.until,
            journal=self._journal.replay if self.claimed.attempt > 1 else no_journal,
            tokens_used=self.claimed.usage.total_tokens,
            model_calls_made=self.claimed.model_calls,
            hooks=self,
        )

    def _files(self) -> Files | None:
        """Returns the files that the settings open, None for those of the server. Warns of one that is not there."""
        if self._options.files is None:
            return None
        found = opened(self._options.files)
        for path, _ in found:
            if not os.path.exists(path):  # noqa: PTH110 - a plain system call for each run
                self._reports.warn(Warning_("file_not_opened", f"The setting files names {path}, which is not there."))
        return found

    async def _handle(self, report: Message | Output | Preparing | ResultSent) -> None:
        self._show(report)
        if not isinstance(report, TaskEnded | JournalAppend | Asked):
            await self._take(report)
        elif self._reports.stored.take(report):
            await self._keep(report)
        self._reports.wake()

    async def _keep(self, report: TaskEnded | JournalAppend | Asked) -> None:
        """Keeps what a later attempt needs."""
        match report:
            case TaskEnded():
                await self._reports.task(report)
            case JournalAppend():
                files = await self.files.at_step(found=report.files)
                await self._reports.journal(replace(await self._journal.entry(report), files=files))
            case Asked():
                await self._ask(report)

    async def _take(self, report: Message | Output | Preparing | ResultSent) -> None:
        match report:
            case Event():
                if report.type != HUMAN_INPUT_REQUESTED:  # that one is written with the question
                    await self._reports.add(report.type[:LONGEST_TYPE], report.at, report.payload)
            case Output():
                await self._reports.add(f"output_{report.stream}", report.at, {"line": report.line})
            case TasksKnown() | TaskStarted():
                await self._reports.task(report)
            case Tokens():
                self._reports.usage.add(report)
                self._check_budget()
            case ModelCalled():
                self._reports.model_calls += 1
                self._check_budget()
            case Warned():
                self._reports.warn(
                    Warning_(report.code[:LONGEST_TYPE], report.message, self._records.task_id(report.task))
                )
            case Preparing() | Loaded() | ResultSent():
                self._take_stage(report)

    def _take_stage(self, report: Preparing | Loaded | ResultSent) -> None:
        match report:
            case Preparing():
                self._wait_for(report.what or "import")  # after its zygote, a run imports its project
            case Loaded():
                self._imported()
            case ResultSent():
                self._end_soon(report)

    async def _ask(self, asked: Asked) -> None:
        """Records a question for whose answer the process waits alive."""
        files = await self.files.at_step(found=asked.files)
        entry = replace(await self._journal.entry(asked), files=files)
        question = await self._question(asked)
        self._records.ask(asked.position)
        await self._reports.add(HUMAN_INPUT_REQUESTED, time.time(), await self._described(question))
        await self._reports.ask(question, entry)
        self._questions.ask(question)

    def _go_on(self, question: Question) -> None:
        self._records.answer(question.position)
        if not self._questions.any_open:
            self._wait_for(None)
        self._reports.wake()

    async def _question(self, asked: Asked) -> Question:
        key = await offload(len(asked.draft), lambda: key_of(asked.key, asked.question, asked.draft))
        earlier = None
        if self.claimed.asked:
            earlier = await until_the_database_answers(lambda: self._store.asked_before(self.claimed.id, key))
        question, asked_at = earlier or (new_id(), None)
        return Question(
            id=question,
            asked_at=asked_at,
            deployment_id=self.claimed.deployment_id,
            number=asked.number,
            key=key,
            text=asked.question,
            draft=asked.draft,
            position=asked.position,
            method=asked.method,
            choices=asked.choices,
            waits=asked.waits,
            seconds=self._options.approval_timeout,
            on_timeout=self._options.approval_on_timeout,
            remind_every=self._options.approval_reminder,
        )

    def _end_soon(self, answered: ResultSent) -> None:
        self._reports.hold()
        if answered.idle_soon:
            self.slot.offer()

    def _check_budget(self) -> None:
        """Raises OverLimit when the process continues past its limits. A process that follows the protocol ends itself
        before that.
        """
        calls, tokens = self._limits.model_call_limit, self._limits.token_limit
        if calls is not None and self._reports.model_calls > calls:
            raise OverLimit(f"made more model calls than its limit of {calls}. {hint('model_call_limit')}")
        if tokens is not None and self._reports.usage.total_tokens >= tokens:
            self._calls_past_limit += 1
            if self._calls_past_limit > MOST_CALLS_AT_ONCE:
                raise OverLimit(f"used more tokens than its limit of {tokens}. {hint('token_limit')}")
