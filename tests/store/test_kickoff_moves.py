"""Whatever workers, clients and clocks do, and in whatever order: the rows are as the table of moves says."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from store.kickoff_model import MAX_LOSSES, Expected, Model
from store.kickoff_rows import DONE, FAILED, Rows
from store.kickoff_rules import LOOK, check
from store.shared_database import empty
from windlass.kickoffs.events import stored_event
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import Outcome, TokenUsage
from windlass.kickoffs.states import Reason, State, TaskState
from windlass.kickoffs.tasks import pending_records
from windlass.store.database import Database
from windlass.store.deployments import DeploymentStore
from windlass.store.ending import Interruption
from windlass.store.reporting import Batch, JournalEntry

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from uuid import UUID

    import pytest

    from windlass.store.claiming import Claimed

Answer = TypeVar("Answer")
WORKERS = [new_id(), new_id()]
TIMED_OUT = Outcome(State.TIMED_OUT, reason=Reason.TIMED_OUT, error="it took too long")
LOST = Interruption("it was lost", TokenUsage())
ONCE_MORE = Interruption("once more", TokenUsage())
CAP = 2
FEW = 8
"""Open kickoffs: the fewer there are, the more happens to each."""
ANY = 1000
"""More than any example runs at once."""

workers = st.sampled_from(WORKERS)
keys = st.sampled_from([None, "key", "key"])
priorities = st.sampled_from([0, 0, 5])
strategies = st.sampled_from([*["enqueue"] * 6, "reject", "cancel_running"])


class Lives(RuleBasedStateMachine):
    url = ""
    runs = Bundle[Any]("runs")

    @initialize()
    def begin(self) -> None:
        empty(self.url)
        self.loop = asyncio.Runner()
        self.database = Database(self.url, connections=2)
        self.wait(self.database.__aenter__())
        free = self.wait(Rows.make(self.database))
        capped = self.wait(free.beside("capped", concurrency=CAP))
        self.all_rows = [free, capped]
        self.store = free.store
        self.deployments = DeploymentStore(self.database)
        self.model = Model({free.deployment.id: ANY, capped.deployment.id: CAP})
        for of, key in itertools.product((0, 1), (None, "key", "key")):
            self.accept(of, 1, key, "enqueue", 0)

    def teardown(self) -> None:
        try:
            self.every_kickoff_comes_to_an_end()
        finally:
            self.wait(self.database.__aexit__())
            self.loop.close()

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run(work)

    def select(self, query: LiteralString) -> list[dict[str, Any]]:
        return self.wait(self.database.rows(query))

    @property
    def ready(self) -> set[UUID]:
        return {row["id"] for row in self.select("SELECT id FROM kickoffs WHERE state = 'PENDING' AND ready")}

    def later(self, kickoff: UUID) -> None:
        """Its time comes when the test says so, not the clock."""
        self.model[kickoff].later = self.model[kickoff].state is State.PENDING
        self.select("UPDATE kickoffs SET run_at = now() + interval '1 h' WHERE run_at IS NOT NULL RETURNING id")

    @rule(of=st.integers(0, 1), count=st.integers(1, 2), key=keys, strategy=strategies, priority=priorities)
    @precondition(lambda self: self.model.open < FEW)
    def accept(self, of: int, count: int, key: str | None, strategy: str, priority: int) -> None:
        rows = self.all_rows[of]
        for _ in range(count):
            new = rows.new(concurrency_key=key, concurrency_strategy=strategy, priority=priority)
            accepted = self.wait(self.store.accept([new]))
            expected = Expected(rows.deployment.id, key, priority)
            assert (new.id in accepted.ids) is self.model.accept(new.id, expected, strategy)

    @rule(target=runs, worker=workers, slots=st.integers(1, 4))
    def claim(self, worker: UUID, slots: int) -> Any:
        ready = self.ready
        claimed = self.wait(self.store.claim(worker, slots, 60.0))
        self.model.claim(claimed, slots, ready, worker)
        for one in claimed:
            self.wait(self.all_rows[0].begin(one))
        return multiple(*claimed)

    @rule(worker=workers)
    def renew(self, worker: UUID) -> None:
        mine = self.model.of(worker)
        kept = self.wait(self.store.renew(worker, list(self.model), 60.0))
        assert kept == {(kickoff, one.attempt): one.to_stop for kickoff, one in mine.items()}
        for one in mine.values():
            one.silent = False

    @rule(run=runs, outcome=st.sampled_from([DONE, FAILED, TIMED_OUT]))
    def settle(self, run: Claimed, outcome: Outcome) -> None:
        current = self.model.is_current(run)
        settled = self.wait(self.store.settle(run.id, run.attempt, outcome, TokenUsage(), []))
        if current:
            self.model[run.id].settle(outcome.state)
        assert settled == (self.model[run.id].state if current else None)

    @rule(run=runs)
    def requeue(self, run: Claimed) -> None:
        found = self.model[run.id]
        counts = self.model.is_current(run) and (found.losses < MAX_LOSSES or found.to_stop)
        answer = self.wait(self.store.requeue(run.id, run.attempt, LOST, max_losses=MAX_LOSSES))
        if counts:
            found.lose()
            self.later(run.id)
        assert answer is (found.state if counts else None)

    @rule(run=runs)
    def retry(self, run: Claimed) -> None:
        found = self.model[run.id]
        counts = self.model.is_current(run) and not found.to_stop
        assert self.wait(self.store.retry(run.id, run.attempt, ONCE_MORE, pause=60)) is counts
        if counts:
            found.retry()
            self.later(run.id)

    @rule()
    def time_passes(self) -> None:
        self.wait(self.all_rows[0].come_due())
        for found in self.model.values():
            found.later = False

    @rule(data=st.data())
    @precondition(lambda self: self.model)
    def stop(self, data: Any) -> None:
        kickoff = data.draw(st.sampled_from(sorted(self.model)))
        found = self.model[kickoff]
        if found.open:
            found.stop()
        assert self.wait(self.store.stop(kickoff)) is found.state

    @rule(of=st.integers(0, 1))
    def pause(self, of: int) -> None:
        deployment = self.all_rows[of].deployment
        self.wait(self.deployments.pause(deployment.slug))
        self.model.paused.add(deployment.id)

    @rule()
    @precondition(lambda self: self.model.paused)
    def resume_all(self) -> None:
        for rows in self.all_rows:
            self.wait(self.deployments.resume(rows.deployment.slug))
        self.model.paused.clear()

    @rule(run=runs, task=st.sampled_from([None, TaskState.RUNNING, TaskState.COMPLETED]))
    def write(self, run: Claimed, task: TaskState | None) -> None:
        """An event, and what became of the next task; one that is finished goes into the journal."""
        expected, seq = self.model[run.id], self.wait(self.store.stored_so_far(run.id)).last_event + 1
        left = pending_records(run.manifest.tasks)[len(expected.journal) :]
        records = [replace(record, state=task, started_at=1.0) for record in left[:1]] if task else []
        done = records if task is TaskState.COMPLETED else []
        batch = Batch(
            events=[stored_event(seq, "kind", 1.0, {})],
            records=records,
            entries=[JournalEntry(record.position + 1, "task", "sealed", record.position) for record in done],
        )
        written = self.wait(self.store.write_reports(run.id, run.attempt, batch))
        assert written is self.model.is_current(run)
        if written:
            expected.tell((seq, run.attempt), [record.position for record in records], task)

    @rule(worker=workers)
    def release(self, worker: UUID) -> None:
        mine = self.model.of(worker)
        released = self.wait(self.store.release(worker))
        for found in mine.values():
            found.release()
        assert set(released) == {(kickoff, found.attempt, found.state) for kickoff, found in mine.items()}

    @rule(worker=workers)
    def fall_silent(self, worker: UUID) -> None:
        mine = self.model.of(worker)
        self.end_leases(list(mine))
        for found in mine.values():
            found.silent = True

    def end_leases(self, kickoffs: list[UUID]) -> None:
        query = "UPDATE kickoffs SET lease_until = now() - interval '1 s' WHERE id = ANY (%(ids)s)"
        self.wait(self.database.execute(query, {"ids": kickoffs}))

    @rule()
    def reap(self) -> None:
        silent = {kickoff: found for kickoff, found in self.model.items() if found.silent}
        for found in silent.values():
            found.lose()
        reaped = self.wait(self.store.reap(max_losses=MAX_LOSSES))
        assert dict(reaped) == {kickoff: found.state for kickoff, found in silent.items()}

    @invariant()
    def all_is_as_expected(self) -> None:
        (rows,) = self.select(LOOK)
        check(rows, self.model)

    def every_kickoff_comes_to_an_end(self) -> None:
        """Once time passes and workers do their work: one of each key in a turn, and all others."""
        self.resume_all()
        self.end_leases(list(self.model))
        self.wait(self.store.reap(max_losses=ANY))
        for _ in range(len(self.model) + 1):
            self.wait(self.all_rows[0].come_due())
            runs = self.wait(self.store.claim(WORKERS[0], ANY, 60.0))
            for run in runs:
                self.wait(self.store.settle(run.id, run.attempt, DONE, TokenUsage(), []))
            if not runs:
                break
        (left,) = self.select("SELECT count(*) AS open FROM kickoffs WHERE state IN ('PENDING', 'STARTED')")
        assert left["open"] == 0


def test_no_order_of_events_leads_astray(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lives, "url", shared_url)
    case = Lives.TestCase
    case.settings = settings(
        max_examples=15,
        stateful_step_count=50,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.reuse, Phase.generate],  # to make a long example short takes longer than a test may
        print_blob=True,
    )
    case("runTest").runTest()
