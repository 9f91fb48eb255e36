"""Whatever two workers do, and in whatever order: the rows are as the table of moves says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from store.kickoff_rows import DONE, FAILED, Rows
from store.shared_database import empty
from windlass.kickoffs.events import stored_event
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import MOVES, State
from windlass.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from uuid import UUID

    import pytest

    from windlass.store.kickoffs import Claimed

Answer = TypeVar("Answer")
MAX_LOSSES = 1
WORKERS = [new_id(), new_id()]
workers = st.sampled_from(WORKERS)


@dataclass
class Expected:
    """What a kickoff's row should be."""

    state: State = State.PENDING
    attempt: int = 0
    losses: int = 0
    worker: UUID | None = None
    silent: bool = False
    later: bool = False
    to_stop: bool = False
    events: list[tuple[int, int]] = field(default_factory=list)

    def lose(self) -> None:
        self.state = State.PENDING if self.losses < MAX_LOSSES else State.FAILED
        self.losses += 1
        self.give_up()

    def give_up(self) -> None:
        self.worker, self.silent = None, False
        if self.to_stop:
            self.state = State.CANCELLED


class Lives(RuleBasedStateMachine):
    url = ""
    runs = Bundle[Any]("runs")

    @initialize()
    def begin(self) -> None:
        empty(self.url)
        self.loop = asyncio.Runner()
        self.database = Database(self.url, connections=2)
        self.wait(self.database.__aenter__())
        self.rows = self.wait(Rows.make(self.database))
        self.expected: dict[UUID, Expected] = {}
        self.seen: dict[UUID, State] = {}

    def teardown(self) -> None:
        self.wait(self.database.__aexit__())
        self.loop.close()

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run(work)

    def is_current(self, run: Claimed) -> bool:
        found = self.expected[run.id]
        return found.state is State.STARTED and found.attempt == run.attempt

    @rule(count=st.integers(1, 3))
    def accept(self, count: int) -> None:
        for kickoff in self.wait(self.rows.accept(count)):
            self.expected[kickoff] = Expected()

    @rule(target=runs, worker=workers, slots=st.integers(1, 3))
    def claim(self, worker: UUID, slots: int) -> Any:
        waiting = sorted(
            kickoff for kickoff, found in self.expected.items() if found.state is State.PENDING and not found.later
        )
        claimed = self.wait(self.rows.claim(slots, worker))
        assert sorted(one.id for one in claimed) == waiting[:slots]
        for one in claimed:
            found = self.expected[one.id]
            found.state, found.worker, found.attempt = State.STARTED, worker, found.attempt + 1
            assert one.attempt == found.attempt
        return multiple(*claimed)

    @rule(worker=workers)
    def renew(self, worker: UUID) -> None:
        mine = {kickoff for kickoff, found in self.expected.items() if found.worker == worker}
        kept = self.wait(self.rows.store.renew(worker, list(self.expected), 60.0))
        assert kept == {(kickoff, self.expected[kickoff].attempt): self.expected[kickoff].to_stop for kickoff in mine}
        for kickoff in mine:
            self.expected[kickoff].silent = False

    @rule(run=runs, outcome=st.sampled_from([DONE, FAILED]))
    def settle(self, run: Claimed, outcome: Any) -> None:
        current = self.is_current(run)
        assert self.wait(self.rows.settle(run, outcome)) is current
        if current:
            found = self.expected[run.id]
            found.state, found.worker, found.silent = outcome.state, None, False

    @rule(run=runs)
    def put_back(self, run: Claimed) -> None:
        found = self.expected[run.id]
        counts = self.is_current(run) and (found.losses < MAX_LOSSES or found.to_stop)
        if counts:
            found.lose()
            found.later = found.state is State.PENDING
        assert self.wait(self.rows.put_back(run, MAX_LOSSES)) is (found.state if counts else None)

    @rule()
    def time_passes(self) -> None:
        self.wait(self.rows.come_due())
        for found in self.expected.values():
            found.later = False

    @rule(data=st.data())
    def stop(self, data: Any) -> None:
        if not self.expected:
            return
        kickoff = data.draw(st.sampled_from(sorted(self.expected)))
        found = self.expected[kickoff]
        if found.state is State.PENDING:
            found.state, found.later = State.CANCELLED, False
        found.to_stop = found.to_stop or found.state is State.STARTED
        assert self.wait(self.rows.store.stop(kickoff)) is found.state

    @rule(run=runs)
    def write(self, run: Claimed) -> None:
        seq = self.wait(self.rows.store.last_event(run.id)) + 1
        event = stored_event(seq, "kind", 1.0, {})
        written = self.wait(self.rows.store.write_reports(run.id, run.attempt, [event], []))
        assert written is self.is_current(run)
        if written:
            self.expected[run.id].events.append((seq, run.attempt))

    @rule(worker=workers)
    def release(self, worker: UUID) -> None:
        mine = {kickoff: found for kickoff, found in self.expected.items() if found.worker == worker}
        released = self.wait(self.rows.store.release(worker))
        for found in mine.values():
            found.state = State.PENDING
            found.give_up()
        assert set(released) == {(kickoff, found.attempt, found.state) for kickoff, found in mine.items()}

    @rule()
    def fall_silent(self) -> None:
        self.wait(self.rows.end_leases())
        for found in self.expected.values():
            found.silent = found.state is State.STARTED

    @rule()
    def reap(self) -> None:
        silent = {kickoff: found for kickoff, found in self.expected.items() if found.silent}
        for found in silent.values():
            found.lose()
        reaped = self.wait(self.rows.store.reap(max_losses=MAX_LOSSES))
        assert dict(reaped) == {kickoff: found.state for kickoff, found in silent.items()}

    @invariant()
    def the_rows_are_as_expected(self) -> None:
        found = self.wait(self.database.rows("SELECT id, state, attempt, losses, worker_id, lease_until FROM kickoffs"))
        assert {row["id"]: (row["state"], row["attempt"], row["losses"], row["worker_id"]) for row in found} == {
            kickoff: (one.state, one.attempt, one.losses, one.worker) for kickoff, one in self.expected.items()
        }
        assert all((row["lease_until"] is None) is (row["worker_id"] is None) for row in found)

    @invariant()
    def each_step_was_a_move(self) -> None:
        for kickoff, expected in self.expected.items():
            before = self.seen.get(kickoff, State.PENDING)
            assert expected.state is before or expected.state in MOVES[before]
            self.seen[kickoff] = expected.state

    @invariant()
    def events_are_numbered_without_a_gap(self) -> None:
        found = self.wait(self.database.rows("SELECT kickoff_id, seq, attempt FROM events ORDER BY seq"))
        for kickoff, expected in self.expected.items():
            stored = [(row["seq"], row["attempt"]) for row in found if row["kickoff_id"] == kickoff]
            assert stored == expected.events
            assert [seq for seq, _ in stored] == list(range(1, len(stored) + 1))

    @invariant()
    def what_cannot_be_claimed_is_not_ready(self) -> None:
        later = self.wait(self.database.rows("SELECT id FROM kickoffs WHERE state = 'PENDING' AND NOT ready"))
        assert {row["id"] for row in later} == {kickoff for kickoff, one in self.expected.items() if one.later}

    @invariant()
    def what_ended_has_no_open_record(self) -> None:
        query = """
            SELECT kickoffs.id FROM kickoffs JOIN task_records ON kickoff_id = kickoffs.id
             WHERE kickoffs.state IN ('SUCCESS', 'FAILED', 'CANCELLED')
               AND task_records.state IN ('pending_run', 'running')
        """
        assert self.wait(self.database.rows(query)) == []


def test_no_order_of_events_leads_astray(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lives, "url", shared_url)
    case = Lives.TestCase
    case.settings = settings(
        max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case("runTest").runTest()
