"""The log of a kickoff: the lines that it printed, warnings of libraries, and the tokens of models as they come."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.dashboard.output import parsed_or_none
from windlass.dashboard.timeline import first_members

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from windlass.store.executions import ExecutionStore, LoggedEvent

MOST_LINES = 1000
LONGEST_LINE = 4000
LONGEST_JOINED = 16 * 1024
"""The characters from which on the chunks of a model begin a new line."""
MOST_CHARACTERS = 256 * 1024
"""Characters of the lines on a page. A live page loads them again at each change."""
CHUNK = "llm_stream_chunk"
TYPES = (
    "output_stdout",
    "output_stderr",
    "library_log",
    "journal_restored",
    "stalled",
    "secrets_resolved",
    "traceback",
    CHUNK,
)
TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>])")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(slots=True)
class Line:
    """A line of the log. `kind` is printed, error, library, model or note."""

    seq: int
    attempt: int
    at: datetime
    kind: str
    source: str
    text: str


async def log_of(store: ExecutionStore, kickoff: UUID, before: int) -> tuple[list[Line], int | None]:
    """Returns the newest lines before an event, oldest first, and the `before` of earlier lines, if there are any."""
    found = await store.latest(kickoff, TYPES, before=before, limit=MOST_LINES, most=LONGEST_LINE)
    lines: list[Line] = []
    for event in reversed(found):
        _add(lines, event, kickoff)
    kept = _newest(lines)
    has_more = len(found) == MOST_LINES or len(kept) < len(lines)
    return kept, kept[0].seq if has_more and kept else None


def _newest(lines: list[Line]) -> list[Line]:
    """Returns the newest lines with MOST_CHARACTERS together, one at least."""
    size, first = 0, len(lines)
    while first and (first == len(lines) or size + len(lines[first - 1].text) <= MOST_CHARACTERS):
        first -= 1
        size += len(lines[first].text)
    return lines[first:]


def _add(lines: list[Line], event: LoggedEvent, kickoff: UUID) -> None:
    members = first_members(event.payload) if event.cut else parsed_or_none(event.payload)
    if not isinstance(members, dict):
        members = {}
    kind, source, text = _described(event.type, members)
    if event.cut and not text:
        text = f"This line is too long to be shown. The events have it: windlass logs {kickoff} --json"
    text = CONTROL.sub("", TERMINAL_CODES.sub("", text)).rstrip()
    before = lines[-1] if lines and lines[-1].kind == "model" and lines[-1].source == source else None
    if event.type == CHUNK and before and len(before.text) < LONGEST_JOINED:
        before.text += _chunk(members)
    elif text or event.type == CHUNK:
        lines.append(Line(event.seq, event.attempt, event.at, kind, source, text))


def _described(kind: str, members: dict[str, Any]) -> tuple[str, str, str]:
    """Returns the kind of the line, its source and its text."""
    if kind == CHUNK:
        return "model", str(members.get("agent_role") or members.get("model") or "model").strip()[:60], _chunk(members)
    if kind == "library_log":
        source = f"{str(members.get('level', '')).lower()} {members.get('logger', '')}".strip()
        return "library", source[:60], str(members.get("message", ""))
    look, source, text = DESCRIBED[kind]
    return look, source, text(members)


def _restored(members: dict[str, Any]) -> str:
    names = [*(members.get("tasks") or []), *(members.get("methods") or [])]
    return f"taken from an earlier attempt: {', '.join(map(str, names))}"


def _stalled(members: dict[str, Any]) -> str:
    return f"nothing happened for {members.get('seconds')} s\n{members.get('stacks') or ''}"


def _secrets(members: dict[str, Any]) -> str:
    names = [str(one.get("name")) for one in members.get("variables") or [] if isinstance(one, dict)]
    return f"read from secret managers in {members.get('ms')} ms: {', '.join(names)}"


def _chunk(members: dict[str, Any]) -> str:
    return CONTROL.sub("", str(members.get("chunk") or ""))


DESCRIBED: dict[str, tuple[str, str, Callable[[dict[str, Any]], str]]] = {
    "output_stdout": ("printed", "", lambda members: str(members.get("line", ""))),
    "output_stderr": ("error", "stderr", lambda members: str(members.get("line", ""))),
    "journal_restored": ("note", "journal", _restored),
    "stalled": ("note", "stalled", _stalled),
    "secrets_resolved": ("note", "secrets", _secrets),
    "traceback": ("error", "traceback", lambda members: str(members.get("text", ""))),
}
