"""What is sent, in which order, and in which batches."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kickoffs.events import HIDDEN_FROM_USERS
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.kickoffs.webhooks import (
    CAUSES,
    LARGEST_BODY,
    MOST_BYTES,
    MOST_EVENTS,
    End,
    Event,
    Hook,
    Planned,
    Webhook,
    body_of_end,
    body_of_events,
    body_of_step,
    body_of_task,
    merged,
    planned,
    replaced,
    thought_of,
)

pytestmark = pytest.mark.unit

ENDPOINT, KICKOFF = new_id(), new_id()
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def hook(*hooks: Hook, **options: Any) -> Webhook:
    return Webhook(ENDPOINT, frozenset(hooks), **options)


def event(seq: int, kind: str, **data: Any) -> Event:
    return Event(seq, kind, AT, json.dumps(data))


@given(
    st.lists(st.tuples(st.sampled_from(["task_completed", "tool_usage_finished", "x"]), st.integers(1, MOST_BYTES))),
    st.booleans(),
    st.sets(st.sampled_from(list(Hook))),
    st.sampled_from([None, frozenset({"x"}), frozenset({"x", "task_completed"})]),
)
def test_each_event_is_sent_once_to_each_hook_in_order(
    kinds: list[tuple[str, int]], realtime: bool, hooks: set[Hook], wanted: frozenset[str] | None
) -> None:
    webhook = hook(*hooks, events=wanted, realtime=realtime)
    events = [(number, kind, size) for number, (kind, size) in enumerate(kinds, 1)]
    plan = planned(webhook, events)
    lasts = [one.last or 0 for one in plan]
    assert lasts == sorted(lasts)
    for one in Hook:
        causes = [n for n, kind, _ in events if one in hooks and kind in CAUSES.get(one, ())]
        if one is Hook.EVENTS:
            causes = [n for n, kind, _ in events if webhook.wants(kind)]
        sent = [
            n
            for delivery in plan
            if delivery.hook is one
            for n in range(delivery.first or 0, (delivery.last or 0) + 1)
            if one is not Hook.EVENTS or webhook.wants(events[n - 1][1])
        ]
        assert sent == causes


def test_batches_are_bounded() -> None:
    plan = planned(hook(Hook.EVENTS), [(n, "x", 1) for n in range(1, 2 * MOST_EVENTS + 2)])
    assert plan == [
        Planned(Hook.EVENTS, 1, 100),
        Planned(Hook.EVENTS, 101, 200),
        Planned(Hook.EVENTS, 201, 201),
    ]
    large = planned(hook(Hook.EVENTS), [(n, "x", MOST_BYTES // 2) for n in range(1, 6)])
    assert [(one.first, one.last) for one in large] == [(1, 2), (3, 4), (5, 5)]


def test_events_for_the_organization_only_are_not_sent() -> None:
    for kind in HIDDEN_FROM_USERS:
        assert planned(hook(Hook.EVENTS), [(1, kind, 1)]) == []
        assert planned(hook(Hook.EVENTS, events=frozenset({kind})), [(1, kind, 1)]) == []


def test_the_types_that_wake_a_webhook() -> None:
    assert hook(Hook.CREW).types == []
    assert hook(Hook.TASK, Hook.CREW).types == ["task_completed"]
    assert hook(Hook.TASK, Hook.EVENTS).types is None
    assert hook(Hook.TASK, Hook.EVENTS, events=frozenset({"x"})).types == ["task_completed", "x"]


def test_one_address_has_one_webhook() -> None:
    other = new_id()
    found = merged(
        [
            hook(Hook.CREW),
            hook(Hook.EVENTS, events=frozenset("a"), realtime=True),
            Webhook(other, frozenset({Hook.TASK})),
        ]
    )
    assert found == [
        hook(Hook.CREW, Hook.EVENTS, events=frozenset("a"), realtime=True),
        Webhook(other, frozenset({Hook.TASK})),
    ]
    assert [Webhook.of_json(one.endpoint, one.to_json()) for one in found] == found


def end(state: State = State.SUCCESS, **members: Any) -> End:
    values = {"reason": None, "error": None, "output": None, "structured": None, "token_usage": None, "meta": None}
    return End(state, **{**values, **members})


def test_the_body_of_an_end() -> None:
    usage = json.dumps({"total_tokens": 3, "prompt_tokens": 2, "completion_tokens": 1, "cached_prompt_tokens": 0})
    body = json.loads(
        body_of_end(KICKOFF, end(output='"out"', structured='{"a": 1}', token_usage=usage, meta='{"b": 2}'), "/s")
    )
    assert body == {
        "kickoff_id": str(KICKOFF),
        "result": "out",
        "result_json": {"a": 1},
        "token_usage": {"total_tokens": 3, "prompt_tokens": 2, "completion_tokens": 1},
        "meta": {"b": 2},
        "status": "completed",
        "state": "SUCCESS",
        "reason": None,
        "error": None,
    }


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT, State.CANCELLED])
def test_the_body_of_a_bad_end_has_no_result(state: State) -> None:
    body = json.loads(body_of_end(KICKOFF, end(state, reason="r", error="e", output='"half"'), "/s"))
    assert (body["result"], body["status"], body["state"], body["reason"], body["error"]) == (
        None,
        "error",
        "FAILED",
        "r",
        "e",
    )


def test_a_large_body_leads_to_the_status() -> None:
    body = body_of_end(KICKOFF, end(output=json.dumps("x" * LARGEST_BODY), meta='{"a": 1}'), "/crews/a/status/1")
    assert len(body) < LARGEST_BODY
    found = json.loads(body)
    assert (found["result"], found["truncated"], found["status_url"]) == (None, True, "/crews/a/status/1")


def test_the_body_of_a_task() -> None:
    output = {"description": "d", "name": "n", "expected_output": "e", "summary": "s", "agent": "a", "raw": "r"}
    body = json.loads(body_of_task(KICKOFF, event(1, "task_completed", output=output), None, None, "/s"))
    assert body == {
        "description": "d",
        "name": "n",
        "expected_output": "e",
        "summary": "s",
        "agent": "a",
        "output": "r",
        "output_json": None,
        "kickoff_id": str(KICKOFF),
        "meta": None,
    }
    whole = json.loads(body_of_task(KICKOFF, event(1, "task_completed", output=output), '"all"', None, "/s"))
    assert whole["output"] == "all"


@pytest.mark.parametrize("payload", ["[]", "1", "{}", '{"output": "text"}', '{"output": null}'])
def test_events_of_a_hostile_run_make_bodies_too(payload: str) -> None:
    odd = Event(1, "task_completed", AT, payload)
    assert json.loads(body_of_task(KICKOFF, odd, None, None, "/s"))["kickoff_id"] == str(KICKOFF)
    assert json.loads(body_of_step(KICKOFF, odd, [odd], None, "/s"))["kickoff_id"] == str(KICKOFF)
    assert json.loads(body_of_events(KICKOFF, [odd]))["events"][0]["data"] == json.loads(payload)


def test_the_body_of_a_step() -> None:
    before = [
        event(4, "llm_call_completed", response="Thought: I look.\nAction: look\nAction Input: {}", agent_role="A"),
        event(3, "agent_execution_started", task_prompt="other", agent_role="B"),
        event(2, "agent_execution_started", task_prompt="do it", agent_role="A"),
    ]
    tool = event(5, "tool_usage_finished", tool_name="look", tool_args={"q": 1}, output="leaf", agent_role="A")
    assert json.loads(body_of_step(KICKOFF, tool, before, '{"m": 1}', "/s")) == {
        "prompt": "do it",
        "thought": "I look.",
        "tool": "look",
        "tool_input": {"q": 1},
        "result": "leaf",
        "kickoff_id": str(KICKOFF),
        "meta": {"m": 1},
    }
    failed = event(5, "tool_usage_error", tool_name="look", tool_args={}, error="no")
    assert json.loads(body_of_step(KICKOFF, failed, [], None, "/s"))["result"] == "no"
    last = event(6, "agent_execution_completed", output="done", agent_role="A")
    body = json.loads(body_of_step(KICKOFF, last, before, None, "/s"))
    assert (body["tool"], body["tool_input"], body["result"]) == (None, None, "done")


@pytest.mark.parametrize(
    ("answer", "thought"),
    [
        ("Thought: a\nAction: b", "a"),
        ("x Thought: a\nFinal Answer: c", "a"),
        ("just an answer", None),
        (None, None),
        ({"a": 1}, None),
    ],
)
def test_thoughts(answer: Any, thought: str | None) -> None:
    assert thought_of(answer) == thought


def test_a_webhook_of_a_kickoff_replaces_the_usual_one_of_the_same_kind() -> None:
    other = new_id()
    usual = [Webhook(ENDPOINT, frozenset({Hook.CREW, Hook.TASK})), Webhook(other, frozenset({Hook.STEP}))]
    own = [Webhook(other, frozenset({Hook.CREW}))]
    assert {one.endpoint: one.hooks for one in replaced(usual, own)} == {
        ENDPOINT: {Hook.TASK},
        other: {Hook.STEP, Hook.CREW},
    }
    assert replaced(usual, []) == usual
