"""The payloads of events, by the type of the event. docs/reference/events.md describes them.

Every member can be missing: those of the framework's events depend on its release, and a payload of more than 256 KB
is cut.
An event of a type that is not listed here has a payload with the members of the framework's event of this name.
"""

from __future__ import annotations

from typing import Any, TypedDict


class PrintedLine(TypedDict, total=False):
    """A line that the crew printed."""

    line: str


class Traceback(TypedDict, total=False):
    """The traceback of the failed run. Only tokens of the organization see it."""

    text: str


class JournalRestored(TypedDict, total=False):
    """The steps that came from the journal."""

    tasks: list[str]
    methods: list[str]


class HumanInputRequested(TypedDict, total=False):
    """A question to a person."""

    task_id: str
    task: str | None
    method: str | None
    question: str
    draft: str
    response_schema: dict[str, Any]
    asked_at: str
    expires_at: str | None


class HumanInputReceived(TypedDict, total=False):
    """The answer with which a run goes on."""

    task: str | None
    method: str | None
    question: str
    approved: bool
    feedback: str


class FlowPaused(TypedDict, total=False):
    """A flow that is about to ask a person, with its state."""

    method_name: str
    state: dict[str, Any]
    message: str
    emit: list[str]


class LibraryLog(TypedDict, total=False):
    """A warning of a library."""

    logger: str
    level: str
    message: str


class SecretsResolved(TypedDict, total=False):
    """The variables that were read from secret managers. Only tokens of the organization see it."""

    ms: int
    variables: list[dict[str, Any]]


class Stalled(TypedDict, total=False):
    """What a run did that had given no sign of life for `seconds`."""

    seconds: float
    stacks: str


class Connection(TypedDict, total=False):
    """A connection of the crew, at its end, or one that its egress does not permit. `port` and `address` are null for a
    name that it does not permit.
    """

    host: str
    address: str | None
    port: int | None
    allowed: bool
    sent: int
    received: int
    seconds: float
    error: str


class TaskEvent(TypedDict, total=False):
    task_name: str | None
    task_id: str
    output: Any
    error: str


class AgentEvent(TypedDict, total=False):
    task_prompt: str
    output: Any


class ModelCall(TypedDict, total=False):
    model: str
    call_id: str
    messages: Any
    response: Any
    usage: dict[str, Any] | None
    error: str


class ModelChunk(TypedDict, total=False):
    """A part of a model's answer, where the model streams."""

    chunk: str


class ToolUsage(TypedDict, total=False):
    tool_name: str
    tool_args: Any
    output: Any
    error: str


class MethodExecution(TypedDict, total=False):
    """A method of a flow."""

    method_name: str


PAYLOADS: dict[str, type] = {
    "output_stdout": PrintedLine,
    "output_stderr": PrintedLine,
    "traceback": Traceback,
    "journal_restored": JournalRestored,
    "human_input_requested": HumanInputRequested,
    "human_input_received": HumanInputReceived,
    "flow_paused": FlowPaused,
    "library_log": LibraryLog,
    "secrets_resolved": SecretsResolved,
    "stalled": Stalled,
    "connection": Connection,
    "task_started": TaskEvent,
    "task_completed": TaskEvent,
    "task_failed": TaskEvent,
    "agent_execution_started": AgentEvent,
    "agent_execution_completed": AgentEvent,
    "llm_call_started": ModelCall,
    "llm_call_completed": ModelCall,
    "llm_call_failed": ModelCall,
    "llm_stream_chunk": ModelChunk,
    "tool_usage_started": ToolUsage,
    "tool_usage_finished": ToolUsage,
    "tool_usage_error": ToolUsage,
    "method_execution_started": MethodExecution,
    "method_execution_finished": MethodExecution,
}
"""The type of an event, and that of its payload."""
