"""Timelines of runs that report far more than a page can show. One request for such a page must not stop the server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from windlass.dashboard.timeline import MOST_OPEN, MOST_SPANS, Timeline
from windlass.store.executions import Mark

pytestmark = pytest.mark.unit


AT = datetime(2026, 1, 1, tzinfo=UTC)


class Told:
    """A timeline of made-up events."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self._last = 0

    def tell(self, kind: str, **members: Any) -> None:
        self._last += 1
        self.timeline.add(Mark(self._last, 1, kind, AT, json.dumps(members), None))


def test_rows_that_never_end_are_not_searched_again_and_again() -> None:
    told = Told()
    for number in range(3 * MOST_OPEN):
        told.tell("tool_usage_started", tool_name=f"tool {number}", event_id=f"{number}")
    assert len(told.timeline._open) == MOST_OPEN
    told.tell("tool_usage_finished", started_event_id="0")
    first = next(iter(told.timeline.spans()))
    assert (first.name, first.state) == ("tool 0", "done"), "an end that names its start finds it all the same"


def test_what_the_journal_restored_is_found_without_a_look_at_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    told.tell("task_started", task_name="find facts", task_id="1")
    told.tell("task_completed", task_id="1")
    monkeypatch.delattr(Timeline, "spans")
    told.tell("journal_restored", tasks=["find facts"])
    assert [(one.name, one.restored) for one in told.timeline.roots] == [("find facts", None), ("find facts", 1)]


def test_a_timeline_has_a_bound() -> None:
    told = Told()
    told.tell("journal_restored", tasks=["a"] * (MOST_SPANS - 1))
    told.tell("task_started", task_name="the last")
    told.tell("task_started", task_name="one too many")
    told.tell("journal_restored", tasks=["b", "c"])
    assert len(told.timeline.roots) == MOST_SPANS
    assert told.timeline.roots[-1].name == "the last"


def test_a_connection_is_a_row_of_the_step_that_runs() -> None:
    told = Told()
    told.tell("task_started", task_name="find facts", task_id="1")
    told.tell("connection", host="api.example.com", port=443, allowed=True, sent=1, received=2, seconds=1.5)
    told.tell("connection", host="evil.example", port=None, allowed=False, seconds=0, error="not permitted")
    rows = [(one.name, one.state, one.seconds, one.parent and one.parent.name) for one in told.timeline.spans()]
    assert rows[1:] == [
        ("api.example.com:443", "done", 1.5, "find facts"),
        ("evil.example", "failed", 0.0, "find facts"),
    ]
