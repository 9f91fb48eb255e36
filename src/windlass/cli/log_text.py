"""Converts the stored events of a kickoff to lines for a person."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from windlass.cli.printing import printable
from windlass.cli.run_words import model_of, plain, shown, without_our_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import date

    Payload = Mapping[str, Any]

LONGEST_TEXT = 4000
"""Most characters of one prompt, answer or tool result that are shown."""
INDENT = "  "
TIME = "%H:%M:%S.%f"
"""UTC, cut to milliseconds."""


class LogText:
    """Converts events, in their order, to lines.

    A prompt usually repeats the conversation so far. Only the messages that the same agent has not sent before are
    shown. A line has the date where an event is not of the day of the one before. `day` is that of the reader.
    """

    def __init__(self, day: date | None = None) -> None:
        self._day = day
        self._attempt = 1
        self._sent: dict[str, list[Any]] = {}

    def lines(self, event: Payload) -> Iterator[str]:
        if event["attempt"] > self._attempt:
            self._attempt = event["attempt"]
            self._sent.clear()
            yield f"attempt {self._attempt}"
        found = list(self._described(event["type"], event["payload"]))
        at = datetime.fromisoformat(event["at"])
        if found and at.date() != self._day:
            if self._day is not None:
                yield f"{at.date()}"
            self._day = at.date()
        time = at.strftime(TIME)[:-3]
        for place, (depth, words) in enumerate(found):
            yield f"{time if place == 0 else ' ' * len(time)}  {INDENT * depth}{words}"

    def _described(self, kind: str, payload: Payload) -> Iterator[tuple[int, str]]:
        if kind in {"output_stdout", "output_stderr"}:
            words = plain(str(payload.get("line", "")))
            yield from [(2, f"> {words}")] if words else []
        elif kind == "llm_call_started":
            yield 2, f"{model_of(dict(payload))} is asked"
            yield from self._prompt(payload)
        elif kind in DESCRIBED:
            yield from DESCRIBED[kind](payload)

    def _prompt(self, payload: Payload) -> Iterator[tuple[int, str]]:
        given = payload.get("messages")
        messages = given if isinstance(given, list) else [{"role": "user", "content": given}]
        agent = str(payload.get("agent_id"))
        before = self._sent.get(agent, [])
        same = len(before) if messages[: len(before)] == before else 0
        self._sent[agent] = messages
        if same:
            yield 3, f"({same} earlier messages)"
        for message in messages[same:]:
            parts = message if isinstance(message, dict) else {"content": message}
            content = parts.get("content") or parts.get("tool_calls")
            yield from text_of(f"{shown(parts.get('role') or 'message')}: ", content)


def text_of(head: str, value: Any) -> Iterator[tuple[int, str]]:
    """Yields the lines of a text or of another JSON value, the first one after `head`."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if value in (None, [], {}) or not text.strip():
        return
    cut = "" if len(text) <= LONGEST_TEXT else f" ... ({len(text) - LONGEST_TEXT:,} more characters; --json shows all)"
    first, *rest = printable(f"{head}{text[:LONGEST_TEXT].strip()}{cut}").expandtabs().splitlines()
    yield 3, first
    yield from ((4, line) for line in rest)


def _answer(payload: Payload) -> Iterator[tuple[int, str]]:
    usage = payload.get("usage")
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    yield 2, f"{model_of(dict(payload))} answered" + (f", {tokens:,} tokens" if isinstance(tokens, int) else "")
    yield from text_of("", payload.get("response"))


def _failed_call(payload: Payload) -> Iterator[tuple[int, str]]:
    yield 2, f"{model_of(dict(payload))} failed: {shown(payload.get('error'))}"


def _tool_started(payload: Payload) -> Iterator[tuple[int, str]]:
    arguments = payload.get("tool_args")
    words = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    yield 2, f"tool {shown(payload.get('tool_name'))} {shown(words)}"


def _tool_finished(payload: Payload) -> Iterator[tuple[int, str]]:
    failed = payload.get("failure") or payload.get("error")
    yield 2, f"tool {shown(payload.get('tool_name'))}: {'failed' if failed else 'done'}"
    yield from text_of("", failed if isinstance(failed, str) else payload.get("output"))


def _task_ended(payload: Payload) -> Iterator[tuple[int, str]]:
    yield 1, f"task {_task(payload)}: completed"
    output = payload.get("output")
    yield from text_of("", output.get("raw") if isinstance(output, dict) else output)


def _task(payload: Payload) -> str:
    return shown(payload.get("task_name") or payload.get("task_id") or "without a name")


def _traceback(payload: Payload) -> Iterator[tuple[int, str]]:
    yield from ((1, line) for line in without_our_frames(str(payload.get("text", ""))))


def _secrets(payload: Payload) -> Iterator[tuple[int, str]]:
    yield 0, f"variables read from secret managers in {shown(payload.get('ms'))} ms"
    variables = payload.get("variables")
    for one in variables if isinstance(variables, list) else []:
        if isinstance(one, dict):
            place = f"{shown(one.get('provider') or '')} {shown(one.get('secret_name') or '')}"
            yield 1, f"{shown(one.get('name'))} from {place}: {shown(one.get('error') or 'read')}"


def _restored(payload: Payload) -> Iterator[tuple[int, str]]:
    kept = [*payload.get("tasks", []), *payload.get("methods", [])]
    yield 1, f"taken from the journal: {shown(', '.join(map(str, kept)))}"


def _stalled(payload: Payload) -> Iterator[tuple[int, str]]:
    yield 1, f"stalled: nothing happened for {shown(payload.get('seconds'))} s"
    yield from text_of("", payload.get("stacks"))


def _connection(payload: Payload) -> Iterator[tuple[int, str]]:
    place = shown(payload.get("host")) + (f":{shown(payload['port'])}" if payload.get("port") else "")
    moved = f"{shown(payload.get('sent'))} bytes sent, {shown(payload.get('received'))} received"
    yield 2, f"connection to {place}: {shown(payload['error']) if payload.get('error') else moved}"


def _library_log(payload: Payload) -> Iterator[tuple[int, str]]:
    yield 2, f"{shown(payload.get('level'))} of {shown(payload.get('logger'))}: {shown(payload.get('message'))}"


def _named(depth: int, kind: str, name: str, end: str) -> Callable[[Payload], Iterator[tuple[int, str]]]:
    """Returns a function that describes events as one line: the kind, the member `name`, and `end`."""

    def describe(payload: Payload) -> Iterator[tuple[int, str]]:
        error = f": {shown(payload['error'])}" if payload.get("error") else ""
        yield depth, " ".join(f"{kind} {shown(payload.get(name) or '')} {end}".split()) + error

    return describe


DESCRIBED: Mapping[str, Callable[[Payload], Iterator[tuple[int, str]]]] = {
    "crew_kickoff_started": _named(0, "crew", "crew_name", "started"),
    "crew_kickoff_completed": _named(0, "crew", "crew_name", "completed"),
    "crew_kickoff_failed": _named(0, "crew", "crew_name", "failed"),
    "flow_started": _named(0, "flow", "flow_name", "started"),
    "flow_finished": _named(0, "flow", "flow_name", "completed"),
    "method_execution_started": _named(1, "method", "method_name", "started"),
    "method_execution_finished": _named(1, "method", "method_name", "completed"),
    "method_execution_failed": _named(1, "method", "method_name", "failed"),
    "task_started": _named(1, "task", "task_name", "started"),
    "task_completed": _task_ended,
    "task_failed": _named(1, "task", "task_name", "failed"),
    "agent_logs_started": _named(2, "agent", "agent_role", "started"),
    "agent_execution_error": _named(2, "agent", "agent_role", "failed"),
    "llm_call_completed": _answer,
    "llm_call_failed": _failed_call,
    "tool_usage_started": _tool_started,
    "tool_usage_finished": _tool_finished,
    "tool_usage_error": _tool_finished,
    "journal_restored": _restored,
    "library_log": _library_log,
    "secrets_resolved": _secrets,
    "traceback": _traceback,
    "stalled": _stalled,
    "connection": _connection,
}
"""Describes events by type. Other events are internal to the framework, and only `--json` shows them."""
