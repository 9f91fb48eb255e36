"""What a worker would write of a kickoff, written by a test."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from api.serving import until
from windlass.kickoffs.events import HUMAN_INPUT_REQUESTED, stored_event, to_json
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import Outcome, TokenUsage
from windlass.kickoffs.questions import Question
from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.tasks import TaskRecords, Warning_
from windlass.store.ending import Interruption
from windlass.store.reporting import Batch, JournalEntry
from windlass_child.protocol.messages import TaskEnded, TasksKnown, TaskStarted, Tokens

if TYPE_CHECKING:
    from api.serving import Crew
    from windlass.store.claiming import Claimed
    from windlass.store.kickoffs import KickoffStore


@dataclass
class Run:
    """One attempt of a kickoff whose worker is the test."""

    claimed: Claimed
    store: KickoffStore
    records: TaskRecords

    async def start_task(self, position: int) -> None:
        task = self.records.by_position[position]
        self.records.start(TaskStarted(position, task.key, task.name, task.agent, time.time()))
        await self._write()

    async def end_task(self, position: int, output: str | None = "done", state: str = "completed") -> None:
        self.records.end(TaskEnded(position, state, time.time(), output, seconds=1.5))
        await self._write()

    async def find_tasks(self, *keys: str) -> None:
        """The crew that was built for this run has tasks with these keys."""
        self.records.know(TasksKnown([{"key": key, "name": None, "agent": "Somebody"} for key in keys]))
        await self._write()

    async def succeed(self, output: str = "It is done.", structured: Any = None) -> None:
        told = None if structured is None else to_json(structured)
        await self._settle(Outcome(State.SUCCESS, output=output, structured=told))

    async def fail(self, reason: Reason = Reason.ERROR, error: str = "the tool is broken") -> None:
        await self._settle(Outcome(State.FAILED, reason=reason, error=error))

    async def end(self, state: State, reason: Reason) -> None:
        await self._settle(Outcome(state, reason=reason, error="it was ended"))

    async def ask(self, position: int = 0, *, number: int = 1, **fields: Any) -> UUID:
        """Asks a person, and ends the run. Returns the id of the question."""
        question = Question(
            new_id(),
            self.claimed.deployment_id,
            number,
            f"question {number}",
            "Is it good?",
            **{"draft": "# A draft", "position": position, **fields},
        )
        self.records.ask(position, time.time())
        entry = JournalEntry(number, question.key, "sealed")
        event = stored_event(100 + number, HUMAN_INPUT_REQUESTED, time.time(), question.to_json(None))
        records = self.records.take_changed()
        batch = Batch([event], records, entries=[entry], questions=[question], usage=TokenUsage())
        assert await self.store.pause(self.claimed.id, self.claimed.attempt, batch)
        return question.id

    async def requeue(self) -> None:
        lost = Interruption("its process was lost", self.claimed.usage)
        assert await self.store.requeue(self.claimed.id, self.claimed.attempt, lost, max_losses=3)

    async def _settle(self, outcome: Outcome) -> None:
        usage = TokenUsage()
        usage.add(Tokens(prompt=100, completion=20, total=120, cached_prompt=5, reasoning=3))
        warnings: list[Warning_] = self.records.warnings
        assert await self.store.settle(self.claimed.id, self.claimed.attempt, outcome, usage, warnings)

    async def _write(self) -> None:
        changed = self.records.take_changed()
        assert await self.store.write_reports(self.claimed.id, self.claimed.attempt, Batch(records=changed))


async def begin(crew: Crew, kickoff: str) -> Run:
    """Claims it. Other kickoffs that wait are of tests that are over, and go."""
    server = crew.server
    others = "DELETE FROM kickoffs WHERE state = 'PENDING' AND id <> %(id)s::uuid"
    await server.database.execute(others, {"id": kickoff})
    (claimed,) = await server.kickoffs.claim(new_id(), 1, 60.0)
    assert claimed.id == UUID(kickoff)
    return Run(claimed, server.kickoffs, TaskRecords(claimed.manifest.tasks))


async def begin_the_only_one(crew: Crew) -> Run:
    """Begins the one kickoff of the crew, once there is one."""
    query = "SELECT id FROM kickoffs WHERE deployment_id = %(id)s"

    async def is_there() -> bool:
        return await crew.server.database.row(query, {"id": crew.deployment.id}) is not None

    await until(is_there, "there is a kickoff")
    row = await crew.server.database.row(query, {"id": crew.deployment.id})
    assert row is not None
    return await begin(crew, str(row["id"]))
