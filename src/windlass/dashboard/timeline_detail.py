"""The panel beside a timeline: prompt, answer, tokens and times of one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.dashboard.output import indented, parsed_or_none

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.dashboard.timeline_rows import Row
    from windlass.store.executions import ExecutionStore, LoggedEvent

LONGEST = 20_000
"""Characters of one text."""
MOST_MESSAGES = 40
WORDS = {
    "flow": "Flow",
    "crew": "Crew",
    "method": "Flow method",
    "task": "Task",
    "agent": "Agent",
    "model": "Model call",
    "tool": "Tool call",
    "connection": "Connection",
}


@dataclass(frozen=True, slots=True)
class Text:
    """A titled text of the panel. `omitted` is the number of characters after its end that are left out."""

    title: str
    text: str
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class Detail:
    """`word` is the kind of the row. `before` is the number of earlier messages of a prompt that are left out."""

    row: Row
    word: str
    agent: str | None
    error: str | None
    texts: list[Text]
    before: int = 0


async def detail_of(store: ExecutionStore, kickoff: UUID, row: Row) -> Detail:
    span = row.span
    seqs = [seq for seq in (span.seq, span.end_seq) if seq]
    found = {event.seq: _payload(event) for event in await store.events(kickoff, seqs)}
    start, end = found.get(span.seq, {}), found.get(span.end_seq or 0, {})
    both = {**start, **end}
    error = both.get("error") or both.get("failure")
    role = both.get("agent_role")
    agent = " ".join(str(role).split()) if role and span.kind != "agent" else None
    messages = _messages(both) if span.kind == "model" else []
    texts = [*reversed(_texts(span.kind, start, end)), *messages[-MOST_MESSAGES:]]
    hidden = max(0, len(messages) - MOST_MESSAGES)
    return Detail(row, WORDS[span.kind], agent, _string(error) if error else None, texts, hidden)


def _texts(kind: str, start: dict[str, Any], end: dict[str, Any]) -> list[Text]:
    output = end.get("output")
    match kind:
        case "model":
            found = [("Answer", end.get("response"))]
        case "tool":
            found = [("Arguments", start.get("tool_args") or end.get("tool_args")), ("Result", output)]
        case "task":
            raw = output.get("raw") if isinstance(output, dict) else output
            found = [("Context", start.get("context")), ("Output", raw)]
        case "connection":
            moved = f"{start.get('sent', 0):,} bytes sent, {start.get('received', 0):,} received"
            found = [("Address", start.get("address")), ("Data", moved)]
        case "agent":
            found = [("Prompt", start.get("task_prompt")), ("Output", output)]
        case _:
            found = [("Inputs", start.get("inputs") or start.get("params")), ("Result", end.get("result") or output)]
    if "beginning" in start or "beginning" in end:
        found.append(("Beginning of a large event", end.get("beginning") or start.get("beginning")))
    return [_shown(title, value) for title, value in found if value not in (None, "", {}, [])]


def _messages(members: dict[str, Any]) -> list[Text]:
    given = members.get("messages")
    messages = given if isinstance(given, list) else [{"role": "prompt", "content": given}] if given else []
    found = []
    for message in messages:
        parts = message if isinstance(message, dict) else {"content": message}
        content = parts.get("content") or parts.get("tool_calls")
        if content:
            found.append(_shown(f"Prompt: {str(parts.get('role') or 'message')[:40]}", content))
    return found


def _shown(title: str, value: Any) -> Text:
    text = _string(value).strip()
    return Text(title, text[:LONGEST], max(0, len(text) - LONGEST))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else indented(value)


def _payload(event: LoggedEvent) -> dict[str, Any]:
    found = parsed_or_none(event.payload)
    return found if isinstance(found, dict) else {}
