"""The timeline of a kickoff: what ran, from when to when, by its events, as rows on one time axis."""

# See docs/decisions/dashboard.md#a-timeline-reads-the-ends-of-each-event

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from windlass.dashboard.output import parsed_or_none, text_of
from windlass.kickoffs.events import CONNECTION
from windlass.kickoffs.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from windlass.kickoffs.states import Attempt
    from windlass.store.executions import Execution, ExecutionStore, Mark, TaskRow

Kind = Literal["flow", "method", "crew", "task", "agent", "model", "tool", "start", "connection"]
Ending = Literal["done", "failed"]
STARTS: dict[str, tuple[Kind, str]] = {
    "flow_started": ("flow", "flow_name"),
    "method_execution_started": ("method", "method_name"),
    "crew_kickoff_started": ("crew", "crew_name"),
    "task_started": ("task", "task_name"),
    "agent_execution_started": ("agent", "agent_role"),
    "lite_agent_execution_started": ("agent", "agent_role"),
    "llm_call_started": ("model", "model"),
    "tool_usage_started": ("tool", "tool_name"),
}
"""The events with which a row begins: the kind of the row, and the member with its name."""
ENDS: dict[str, tuple[Kind, Ending]] = {
    "flow_finished": ("flow", "done"),
    "method_execution_finished": ("method", "done"),
    "method_execution_failed": ("method", "failed"),
    "crew_kickoff_completed": ("crew", "done"),
    "crew_kickoff_failed": ("crew", "failed"),
    "task_completed": ("task", "done"),
    "task_failed": ("task", "failed"),
    "agent_execution_completed": ("agent", "done"),
    "agent_execution_error": ("agent", "failed"),
    "lite_agent_execution_completed": ("agent", "done"),
    "lite_agent_execution_error": ("agent", "failed"),
    "llm_call_completed": ("model", "done"),
    "llm_call_failed": ("model", "failed"),
    "tool_usage_finished": ("tool", "done"),
    "tool_usage_error": ("tool", "failed"),
}
NAMING, RESTORED = "agent_logs_started", "journal_restored"
TYPES = (*STARTS, *ENDS, NAMING, RESTORED, CONNECTION)
DEEPEST = 5
LONGEST_NAME = 120
MOST_KEPT = 16
"""Timelines in memory. A page of a running kickoff reads only the events that are new."""
MOST_SPANS = 20_000
"""Rows that a timeline has. Later ones are left out."""
MOST_OPEN = 100
"""Rows without an end to which another can belong: a hostile run can begin rows without ending them."""
MARKS_AT_ONCE = 500
"""Events that are read before other requests have their turn."""
OWNER_KINDS = ("agent", "task", "method", "crew")


@dataclass(slots=True)
class Span:
    """A row. `start` and `end` are Unix times in seconds, `end` is None while it runs.

    `seq` is the number of the event with which it begins, `end_seq` that of its end. `restored` is the attempt from
    which the journal has it, None for a row that this attempt ran.
    """

    seq: int
    kind: Kind
    name: str
    attempt: int
    start: float
    event: str | None
    task: str | None
    call: str | None
    parent: Span | None = None
    end: float | None = None
    end_seq: int | None = None
    state: Literal["running", "done", "failed", "lost"] = "running"
    tokens: int | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    restored: int | None = None
    children: list[Span] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        return None if self.end is None else max(0.0, self.end - self.start)


@dataclass
class Timeline:
    """The rows of a kickoff so far. `roots` are those that belong to no other."""

    roots: list[Span] = field(default_factory=list)
    last: int = 0
    _open: list[Span] = field(default_factory=list)
    _by_event: dict[str, Span] = field(default_factory=dict)
    _attempt: int = 0
    _done: dict[str, Span] = field(default_factory=dict)
    _count: int = 0

    def add(self, mark: Mark) -> None:
        self.last = mark.seq
        if mark.attempt != self._attempt:
            self._attempt = mark.attempt
            self._open.clear()
        members = members_of(mark)
        if mark.type in STARTS:
            self._begin(mark, members)
        elif mark.type in ENDS:
            self._end(mark, members)
        elif mark.type == RESTORED:
            self._restore(mark, members)
        elif mark.type == NAMING:
            self._name(members)
        elif mark.type == CONNECTION:
            self._connect(mark, members)

    def spans(self) -> Iterable[Span]:
        stack = list(reversed(self.roots))
        while stack:
            span = stack.pop()
            yield span
            stack.extend(reversed(span.children))

    def _begin(self, mark: Mark, members: dict[str, Any]) -> None:
        if self._count >= MOST_SPANS:
            return
        self._count += 1
        kind, member = STARTS[mark.type]
        name = _line(members.get(member))
        event, task = _text(members.get("event_id")), _text(members.get("task_id"))
        span = Span(mark.seq, kind, name, mark.attempt, mark.at.timestamp(), event, task, _text(members.get("call_id")))
        if kind == "model":
            self._name(members)
        span.parent = self._parent(span, _text(members.get("parent_event_id")))
        (span.parent.children if span.parent else self.roots).append(span)
        self._open.append(span)
        del self._open[:-MOST_OPEN]
        if event:
            self._by_event[event] = span

    def _connect(self, mark: Mark, members: dict[str, Any]) -> None:
        """Adds a connection, which is reported at its end."""
        if self._count >= MOST_SPANS:
            return
        self._count += 1
        port, at = _number(members.get("port")), mark.at.timestamp()
        name = _line(members.get("host")) if port is None else f"{_line(members.get('host'))}:{port}"
        span = Span(mark.seq, "connection", name, mark.attempt, at, None, None, None)
        seconds = members.get("seconds")
        span.end = at + (seconds if isinstance(seconds, int | float) else 0.0)
        span.state = "failed" if members.get("error") else "done"
        span.parent = self._parent(span, None)
        (span.parent.children if span.parent else self.roots).append(span)

    def _parent(self, span: Span, event: str | None) -> Span | None:
        if event and (known := self._by_event.get(event)) is not None and known.attempt == span.attempt:
            return known
        owners = [one for one in reversed(self._open) if one.kind in OWNER_KINDS and one.kind != span.kind]
        if span.task and span.kind in {"model", "tool", "agent"}:
            of_task = next((one for one in owners if span.task in {one.task, one.parent and one.parent.task}), None)
            if of_task is not None:
                return of_task
        if span.kind in {"flow", "task"}:
            owners = [one for one in owners if one.kind in {"crew", "method"}]
        return owners[0] if owners else None

    def _end(self, mark: Mark, members: dict[str, Any]) -> None:
        kind, state = ENDS[mark.type]
        event, call = _text(members.get("started_event_id")), _text(members.get("call_id"))
        span = self._by_event.get(event) if event else None
        if span is None or span.kind != kind:
            span = self._open_of(kind, members, call)
        if span is None or span.end is not None:
            return
        span.end, span.end_seq, span.state = mark.at.timestamp(), mark.seq, state
        self._open = [one for one in self._open if one is not span]
        if state == "done" and kind in {"task", "method"}:
            self._done[span.name] = span
        usage = members.get("usage")
        if kind == "model" and isinstance(usage, dict):
            span.tokens = _number(usage.get("total_tokens"))
            span.prompt_tokens = _number(usage.get("prompt_tokens"))
            span.answer_tokens = _number(usage.get("completion_tokens"))

    def _open_of(self, kind: Kind, members: dict[str, Any], call: str | None) -> Span | None:
        same = [one for one in self._open if one.kind == kind]
        if call:
            return next((one for one in same if one.call == call), None)
        task, name = _text(members.get("task_id")), members.get("tool_name") or members.get("method_name")
        fits = [one for one in same if (not task or one.task == task) and (not name or one.name == _line(name))]
        found = fits or same
        return found[0 if kind == "tool" else -1] if found else None

    def _name(self, members: dict[str, Any]) -> None:
        """Gives the agent that runs its role: some releases do not have it in the event of its start."""
        task, role = _text(members.get("task_id")), _line(members.get("agent_role"))
        unnamed = [one for one in self._open if one.kind == "agent" and not one.name]
        fits = [one for one in unnamed if task and one.parent is not None and one.parent.task == task]
        for one in (fits or unnamed)[-1:]:
            one.name = role

    def _restore(self, mark: Mark, members: dict[str, Any]) -> None:
        names = [*_list(members.get("tasks")), *_list(members.get("methods"))]
        at = mark.at.timestamp()
        for name in map(_line, names[: MOST_SPANS - self._count]):
            origin = self._done.get(name)
            fresh = Span(
                mark.seq,
                "task",
                name,
                mark.attempt,
                at,
                None,
                None,
                None,
                end=at,
                state="done",
                restored=mark.attempt - 1,
            )
            if origin is not None:
                fresh = replace(origin, attempt=mark.attempt, restored=origin.restored or origin.attempt, children=[])
                fresh.parent = None
            self._done[name] = fresh
            self._count += 1
            self.roots.append(fresh)


def members_of(mark: Mark) -> dict[str, Any]:
    """Returns the members of a payload: of a large one, those before its first large member, and `usage`."""
    if mark.ending is None:
        found = parsed_or_none(mark.beginning)
        return found if isinstance(found, dict) else {}
    members = first_members(mark.beginning)
    if "cut" in members:  # the payload was too large to be stored whole: the beginning of it is in a text
        members = first_members(text_of(mark.beginning[mark.beginning.find('"beginning":') + 12 :]))
    if usage := last_usage(mark.ending):
        members["usage"] = usage
    return members


def first_members(text: str) -> dict[str, Any]:
    """Returns the members of a JSON object whose text may be cut, up to the first that is not whole."""
    found: dict[str, Any] = {}
    at = 1
    decoder = json.JSONDecoder()
    try:
        while text[at : at + 1] == '"':
            name, at = decoder.raw_decode(text, at)
            found[name], at = decoder.raw_decode(text, at + 1)
            at += 1
    except (ValueError, RecursionError):
        pass
    return found


def last_usage(ending: str) -> dict[str, Any] | None:
    """Returns the member `usage` of a JSON object from the end of its text, None if it is not there."""
    at = ending.rfind('"usage":{')
    if at < 0:
        return None
    members = first_members("{" + ending[at:])
    is_outermost = parsed_or_none("{" + ending[at:]) is not None
    usage = members.get("usage")
    return usage if is_outermost and isinstance(usage, dict) else None


class Timelines:
    """Reads timelines. Keeps the last ones, as events never change."""

    def __init__(self) -> None:
        self._kept: OrderedDict[UUID, Timeline] = OrderedDict()

    async def of(self, store: ExecutionStore, execution: Execution) -> Timeline:
        kept = self._kept.get(execution.id)
        if kept is None or kept.last > execution.last_event:
            kept = Timeline()
        if kept.last < execution.last_event:
            for place, mark in enumerate(await store.marks(execution.id, TYPES, after=kept.last)):
                if mark.seq > kept.last:  # two requests read at once
                    kept.add(mark)
                if place % MARKS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            kept.last = max(kept.last, execution.last_event)
        self._kept[execution.id] = kept
        self._kept.move_to_end(execution.id)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return kept


def failed_step(spans: Iterable[Span]) -> Span | None:
    """Returns the innermost step that failed last, of a failed kickoff, or else the last step without an end."""
    found = [
        span for span in spans if span.seq and span.kind not in {"flow", "crew", "connection"} and span.restored is None
    ]
    failed = [span for span in found if span.state == "failed"] or [span for span in found if span.end is None]
    last = max((span.attempt for span in found), default=0)
    failed = [span for span in failed if span.attempt == last]
    innermost = [span for span in failed if not any(child in failed for child in span.children)]
    return max(innermost, key=lambda span: span.seq, default=None)


def spans_of_tasks(tasks: Sequence[TaskRow], attempt: int) -> list[Span]:
    """Returns rows for the tasks of a project that reports no events of them."""
    states: dict[str, Literal["running", "done", "failed"]] = {
        TaskState.COMPLETED: "done",
        TaskState.FAILED: "failed",
    }
    return [
        Span(
            0,
            "task",
            _line(task.name or f"Task {task.position + 1}"),
            task.attempt or attempt,
            task.started_at.timestamp(),
            None,
            task.task_id,
            None,
            end=task.finished_at.timestamp() if task.finished_at else None,
            state=states.get(task.state, "running"),
        )
        for task in tasks
        if task.started_at is not None
    ]


def attempts_or_one(attempts: Sequence[Attempt], spans: Sequence[Span]) -> list[tuple[int, float, float | None]]:
    """Returns number, start and end of each attempt in Unix time. `spans` stand in for attempts that are not stored."""
    found: dict[int, tuple[float, float | None]] = {
        one.attempt: (one.started_at.timestamp(), one.ended_at.timestamp() if one.ended_at else None)
        for one in attempts
    }
    for span in spans:
        if span.attempt not in found:
            found[span.attempt] = (span.start, None)
    return [(number, *found[number]) for number in sorted(found)]


def now() -> float:
    return datetime.now(UTC).timestamp()


def _line(value: Any) -> str:
    text = " ".join(str(value or "").split())
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
