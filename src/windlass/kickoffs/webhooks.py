"""Defines the webhooks of a kickoff: what they are called for, and what they send (docs/how-to/webhooks.md)."""

# See docs/decisions/webhooks.md#the-events-are-the-outbox

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.events import HIDDEN_FROM_USERS, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from windlass.kickoffs.states import State


class Hook(StrEnum):
    """Names the webhooks. The members of a request have names of their own."""

    STEP = "step"
    TASK = "task"
    HUMAN_INPUT = "human_input"
    EVENTS = "events"
    CREW = "crew"


CAUSES: dict[Hook, tuple[str, ...]] = {
    Hook.STEP: ("tool_usage_finished", "tool_usage_error", "agent_execution_completed"),
    Hook.TASK: ("task_completed",),
    Hook.HUMAN_INPUT: ("human_input_requested",),
}
"""The types of events that cause a delivery of a hook."""
EVERY = "*"
"""Stands for every type of event, as in the API of the original product."""
MOST_EVENTS = 100
MOST_BYTES = 512 * 1024
"""Of one batch of events. A single larger event is sent alone."""
LARGEST_BODY = 1024 * 1024
"""Bytes. The body of a larger result has a link to the status in its place."""
ASKED, THOUGHT = "agent_execution_started", "llm_call_completed"
"""The types of events that have the prompt and the thought of a step."""
PAUSED, BEGUN = "flow_paused", "method_execution_started"
"""The types of events that have the state of a flow: when it asks, and before each method."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """The webhooks of a kickoff at one endpoint. `events` are the types that the hook `events` sends, None for every
    type. With `realtime` each of them is sent alone.
    """

    endpoint: UUID
    hooks: frozenset[Hook]
    events: frozenset[str] | None = None
    realtime: bool = False

    @property
    def types(self) -> list[str] | None:
        """The types of events that cause a delivery, None for every type."""
        if Hook.EVENTS in self.hooks and self.events is None:
            return None
        own = self.events or frozenset() if Hook.EVENTS in self.hooks else frozenset()
        return sorted(own.union(*(CAUSES.get(hook, ()) for hook in self.hooks)))

    def to_json(self) -> dict[str, Any]:
        """Returns hook -> options, as the database has it."""
        return {str(hook): self._options() if hook is Hook.EVENTS else {} for hook in sorted(self.hooks)}

    def _options(self) -> dict[str, Any]:
        return {"events": sorted(self.events) if self.events is not None else None, "realtime": self.realtime}

    @classmethod
    def of_json(cls, endpoint: UUID, hooks: Mapping[str, Any]) -> Webhook:
        options = hooks.get(Hook.EVENTS) or {}
        events = options.get("events")
        return cls(
            endpoint,
            frozenset(Hook(name) for name in hooks),
            None if events is None else frozenset(events),
            bool(options.get("realtime")),
        )

    def wants(self, kind: str) -> bool:
        """Returns whether the hook `events` sends events of this type."""
        return Hook.EVENTS in self.hooks and is_sent(kind, self.events)


def is_sent(kind: str, types: frozenset[str] | None) -> bool:
    """Returns whether an event of the type `kind` is sent to a receiver of these types, None for all. Some types are
    for the organization only.
    """
    return kind not in HIDDEN_FROM_USERS and (types is None or kind in types)


def merged(webhooks: Iterable[Webhook]) -> list[Webhook]:
    """Returns one webhook for each endpoint, so that one endpoint gets all of a kickoff in order."""
    found: dict[UUID, Webhook] = {}
    for one in webhooks:
        other = found.get(one.endpoint)
        with_events = one if other is None or Hook.EVENTS in one.hooks else other
        hooks = one.hooks | (other.hooks if other else frozenset())
        found[one.endpoint] = Webhook(one.endpoint, hooks, with_events.events, with_events.realtime)
    return list(found.values())


def replaced(usual: Iterable[Webhook], own: Sequence[Webhook]) -> list[Webhook]:
    """Returns the webhooks of a kickoff with webhooks of its own, each of which replaces the usual one."""
    taken = frozenset[Hook]().union(*(one.hooks for one in own))
    left = (replace(one, hooks=one.hooks - taken) for one in usual if one.hooks - taken)
    return merged([*left, *own])


@dataclass(frozen=True, slots=True)
class Planned:
    """A delivery: the hook, and the numbers of its first and last event. The end of a kickoff has none."""

    hook: Hook
    first: int | None = None
    last: int | None = None


def planned(webhook: Webhook, events: Sequence[tuple[int, str, int]]) -> list[Planned]:
    """Returns the deliveries for these events (number, type, bytes) in the order in which they are sent."""
    plan: list[Planned] = []
    batch: list[int] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if batch:
            plan.append(Planned(Hook.EVENTS, batch[0], batch[-1]))
        batch.clear()
        size = 0

    for number, kind, length in events:
        if webhook.wants(kind):
            if size + length > MOST_BYTES or len(batch) >= MOST_EVENTS:
                flush()
            batch.append(number)
            size += length
            if webhook.realtime:
                flush()
        for hook, causes in CAUSES.items():
            if hook in webhook.hooks and kind in causes:
                flush()
                plan.append(Planned(hook, number, number))
    flush()
    return plan


@dataclass(frozen=True, slots=True)
class Event:
    """An event as a webhook sends it. `payload` is JSON text."""

    seq: int
    type: str
    at: datetime
    payload: str

    def data(self) -> dict[str, Any]:
        found = json.loads(self.payload)
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class End:
    """The end of a kickoff. `output`, `structured`, `token_usage` and `meta` are JSON text."""

    state: State
    reason: str | None
    error: str | None
    output: str | None
    structured: str | None
    token_usage: str | None
    meta: str | None


def body_of_end(kickoff: UUID, end: End, status_url: str) -> str:
    usage = json.loads(end.token_usage or "{}")
    members: dict[str, Any] = {
        "kickoff_id": str(kickoff),
        "result": _value(end.output) if end.state == "SUCCESS" else None,
        "result_json": _value(end.structured) if end.state == "SUCCESS" else None,
        "token_usage": {name: usage.get(name, 0) for name in ("total_tokens", "prompt_tokens", "completion_tokens")},
        "meta": _value(end.meta),
        "status": end.state.status_on_the_wire,
        "state": end.state.state_on_the_wire,
        "reason": end.reason,
        "error": end.error,
    }
    return bounded(members, ("result", "result_json", "meta"), status_url)


def bounded(members: dict[str, Any], large: Sequence[str], status_url: str) -> str:
    """Returns the body. Where it is too long, the members `large` are null, and `status_url` leads to them."""
    text = to_json(members)
    if len(text) <= LARGEST_BODY:
        return text
    return to_json({**members, **dict.fromkeys(large), "truncated": True, "status_url": status_url})


def body_of_task(kickoff: UUID, event: Event, whole: str | None, meta: str | None, status_url: str) -> str:
    """`whole` is the output as JSON text, where the event has only its beginning."""
    output = event.data().get("output")
    output = output if isinstance(output, dict) else {}
    members = {
        "description": output.get("description"),
        "name": output.get("name"),
        "expected_output": output.get("expected_output"),
        "summary": output.get("summary"),
        "agent": output.get("agent"),
        "output": output.get("raw") if whole is None else json.loads(whole),
        "output_json": output.get("json_dict"),
        "kickoff_id": str(kickoff),
        "meta": _value(meta),
    }
    return bounded(members, ("output", "output_json", "meta"), status_url)


def body_of_step(kickoff: UUID, event: Event, before: Sequence[Event], meta: str | None, status_url: str) -> str:
    """`before` are the newest events before this one, the newest first."""
    data = event.data()
    is_end = event.type == "agent_execution_completed"
    members = {
        "prompt": _found(before, ASKED, "task_prompt", data),
        "thought": thought_of(_found(before, THOUGHT, "response", data)),
        "tool": None if is_end else data.get("tool_name"),
        "tool_input": None if is_end else data.get("tool_args"),
        "result": data.get("error") if event.type == "tool_usage_error" else data.get("output"),
        "kickoff_id": str(kickoff),
        "meta": _value(meta),
    }
    return bounded(members, ("prompt", "tool_input", "result", "meta"), status_url)


def _found(before: Sequence[Event], kind: str, member: str, data: Mapping[str, Any]) -> Any:
    """Returns the member of the newest event of a type, if it is of the same agent."""
    role = data.get("agent_role")
    for event in before:
        if event.type == kind and (found := event.data()) and found.get("agent_role") in {None, role}:
            return found.get(member)
    return None


def thought_of(answer: Any) -> str | None:
    """Returns the thought in an answer of the form `Thought: ... Action: ...`, None for another form."""
    if not isinstance(answer, str) or "Thought:" not in answer:
        return None
    thought = answer.partition("Thought:")[2]
    for mark in ("\nAction:", "\nFinal Answer:"):
        thought = thought.partition(mark)[0]
    return thought.strip()


def body_of_events(kickoff: UUID, events: Iterable[Event]) -> str:
    return to_json(
        {
            "events": [
                {
                    "id": f"{kickoff}-{event.seq}",
                    "execution_id": str(kickoff),
                    "timestamp": event.at.isoformat(),
                    "type": event.type,
                    "data": json.loads(event.payload),
                }
                for event in events
            ]
        }
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What the body of a question of a flow has for the webhook of its deployment. `before` are the newest events
    before it, the newest first.
    """

    deployment: UUID
    name: str
    callback_url: str | None
    before: Sequence[Event]

    def members(self, kickoff: UUID, question: Mapping[str, Any], meta: str | None) -> dict[str, Any]:
        return {
            "event": "new_request",
            "request": {
                "id": question.get("task_id"),
                "flow_id": str(kickoff),
                "method_name": question.get("method"),
                "message": question.get("question"),
                "emit_options": question.get("response_schema", {}).get("enum", []),
                "state": _state(self.before, question.get("method")),
                "metadata": _value(meta) or {},
                "created_at": question.get("asked_at"),
            },
            "deployment": {"id": str(self.deployment), "name": self.name},
            "callback_url": self.callback_url,
        }


def _state(before: Sequence[Event], method: Any) -> dict[str, Any]:
    """Returns the state of a flow with which the method asks. Where that is not known, returns an older one. An event
    has the size of a large state in its place.
    """
    paused = [event.data() for event in before if event.type == PAUSED]
    asking = next((data for data in paused if data.get("method_name") == method), None)
    found = asking.get("state") if asking else _found(before, BEGUN, "state", {})
    return found if isinstance(found, dict) else {}


def body_of_question(
    kickoff: UUID, event: Event, meta: str | None, status_url: str, request: Request | None = None
) -> str:
    data = event.data()
    members = {
        "kickoff_id": str(kickoff),
        "execution_id": str(kickoff),
        "task_id": data.get("task_id"),
        "task_output": data.get("draft"),
        "meta": _value(meta),
        "human_input": data,
        **(request.members(kickoff, data, meta) if request else {}),
    }
    return bounded(members, ("task_output", "meta"), status_url)


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
