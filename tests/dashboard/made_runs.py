"""Runs with the events that crewai reports, written by the test in place of a worker."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from api.runs import Run, begin
from windlass.kickoffs.events import stored_event
from windlass.store.reporting import Batch

if TYPE_CHECKING:
    from api.serving import Crew
    from windlass.kickoffs.events import StoredEvent

ROLE = "Researcher on tides\n"
BRIEF = """# Tides

Most coasts see **two high and two low tides** in a day of about 24 hours and 50 minutes.

| tide | moon | range |
|---|---|---|
| spring | new, full | largest |
| neap | half | smallest |

- [The almanac](https://almanac.test/tides) has each one.
"""


@dataclass
class Writer:
    """Writes the events of one attempt. Each step begins where the one before ended, `at` in Unix time."""

    run: Run
    at: float
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _events: list[StoredEvent] = field(default_factory=list)

    def event(self, kind: str, **payload: Any) -> int:
        """The number of the event, which `write` stores."""
        number = next(self._numbers)
        self._events.append(stored_event(number, kind, self.at, payload))
        return number

    async def write(self) -> None:
        events, self._events = self._events, []
        assert await self.run.store.write_reports(self.run.claimed.id, self.run.claimed.attempt, Batch(events=events))

    def model(self, task: str, seconds: float, answer: str = "It is so.", *, ends: bool = True, **more: Any) -> int:
        """A model call. Returns the number of its first event."""
        call = f"call-{next(self._numbers)}"
        known = {
            "task_id": task,
            "agent_role": ROLE,
            "event_id": call,
            "model": "gpt-4.1-mini",
            "call_id": call,
            **more,
        }
        prompt = {"role": "user", "content": "What do the notes hold?"}
        messages = [{"role": "system", "content": f"You are {ROLE}"}, prompt]
        first = self.event("llm_call_started", **known, messages=messages)
        self.at += seconds
        if ends:
            usage = {"prompt_tokens": 240, "completion_tokens": 42, "total_tokens": 282}
            done = {**known, "event_id": f"{call}-end", "started_event_id": call, "messages": messages}
            self.event("llm_call_completed", **done, response=answer, usage=usage)
        return first

    def tool(self, task: str, seconds: float) -> None:
        known = {"task_id": task, "tool_name": "look_up_notes", "tool_args": {"about": "tides"}}
        self.event("tool_usage_started", **known, event_id=f"tool-{self.at}")
        self.at += seconds
        self.event("tool_usage_finished", **known, started_event_id=f"tool-{self.at - seconds}", output="Two a day.")

    def begin_task(self, name: str) -> None:
        self.event("task_started", task_id=name, task_name=name, event_id=f"task-{name}", context="")
        known = {"event_id": f"agent-{name}", "parent_event_id": f"task-{name}"}
        self.event("agent_execution_started", **known, task_prompt="Look it up.")

    def end_task(self, name: str, output: str = "Two a day.") -> None:
        self.event("agent_execution_completed", started_event_id=f"agent-{name}", output=output)
        self.event("task_completed", task_id=name, started_event_id=f"task-{name}", output={"raw": output})

    def task(self, name: str, *models: float, tool: float = 0.0) -> None:
        self.begin_task(name)
        for seconds in models:
            self.model(name, seconds)
            if tool:
                self.tool(name, tool)
        self.end_task(name)


async def started(crew: Crew, kickoff: str | None = None, *, ago: float = 0.0, **inputs: Any) -> Writer:
    """A kickoff that its worker, the test, has just started; `ago` moves its times into the past."""
    kickoff = kickoff or await crew.kickoff(inputs or None)
    run = await begin(crew, kickoff)
    last = await crew.server.database.row(
        "SELECT coalesce(max(seq), 0) AS last FROM events WHERE kickoff_id = %(id)s::uuid", {"id": kickoff}
    )
    assert last is not None
    if ago:
        values = {"id": kickoff, "ago": ago}
        await crew.server.database.execute(
            "UPDATE kickoffs SET created_at = created_at - %(ago)s * interval '1 s', "
            "started_at = started_at - %(ago)s * interval '1 s' WHERE id = %(id)s::uuid",
            values,
        )
        await crew.server.database.execute(
            "UPDATE attempts SET started_at = started_at - %(ago)s * interval '1 s' "
            "WHERE kickoff_id = %(id)s::uuid AND ended_at IS NULL",
            values,
        )
    return Writer(run, time.time() - ago, itertools.count(int(last["last"]) + 1))
