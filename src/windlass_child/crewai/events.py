"""Reports every event of crewai, in order and from any thread.

It uses crewai's stream sink, which is called before `emit` returns. Handlers on crewai's event bus are not suitable:
they run on a thread pool, out of order, and after the run has gone on.
"""

from __future__ import annotations

import contextvars
from functools import partial
from typing import TYPE_CHECKING, Any

from crewai.events import stream_context
from crewai.events.event_bus import crewai_event_bus
from crewai.execution import set_execution_uuid
from crewai.telemetry import Telemetry
from crewai.types.usage_metrics import UsageMetrics

from windlass_child.process.error_text import text_of
from windlass_child.process.messages import MOST_TOKENS, Tokens
from windlass_child.process.process_env import environment
from windlass_child.process.redaction import nameless
from windlass_child.process.truncation import short_or_noted

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass_child.process.report import Report

LEFT_OUT = {
    "type",
    "timestamp",
    "agent",
    "available_functions",
    "callbacks",
    "crew",
    "from_agent",
    "from_task",
    "task",
    "tools",
}
"""Fields of events that hold live objects. They cost 20 KB per event, and agents contain the model's API key."""

HOOKED = {"execution_start", "execution_end", "pre_model_call", "pre_tool_call", "pre_step"}
"""The interception points at which `crewai.guard` or `journal.crew` registers one hook."""

FLUSH_SECONDS = 30


def listen(report: Report, follow: Callable[[Any, Any], None], count: Callable[[int], None]) -> None:
    """Sends every event from now on to `report`, then to `follow(source, event)`. Passes the tokens of each model call
    to `count` between the two.
    """

    def spend(_: Any, event: Any) -> None:
        used = tokens_of(event)
        if used != Tokens():
            count(used.total)
            report.send(used)

    def sink(source: Any, event: Any) -> None:
        for handle in (partial(forward, report), spend, follow):
            try:
                handle(source, event)
            except Exception as error:  # noqa: BLE001 - an exception in a sink would end the crew
                message = f"an event {event.type} of the run could not be reported: {text_of(error)}"
                report.warn("event_not_told", message)

    # set as the variable's default and not as its value: threads that crew code starts see only the default
    everywhere = contextvars.ContextVar("crewai_stream_sinks", default=(sink,))
    stream_context._stream_sinks = everywhere  # noqa: SLF001 - add_stream_sink reaches only its own context


def forward(report: Report, source: Any, event: Any) -> None:
    if is_internal(source, event):
        return
    payload = event.model_dump(mode="json", fallback=nameless, exclude=LEFT_OUT, exclude_none=True)
    if "state" in payload:  # the state of a flow is in the events of each of its methods
        payload["state"] = short_or_noted(payload["state"])
    report.event(event.type, payload, event.timestamp.timestamp())


def is_internal(source: Any, event: Any) -> bool:
    """Returns whether the event is of crewai's own flow inside an agent, or of a hook that Windlass registered."""
    if event.type == "hook_dispatched":
        return bool(event.interception_point in HOOKED and event.hook_count == 1)
    return event.type.startswith("flow_") and getattr(type(source), "is_crewai_internal", False)


def tokens_of(event: Any) -> Tokens:
    """Returns the tokens of one model call, and zero for other events.

    crewai's own totals are wrong here: they count a model that several agents share several times.
    """
    usage = getattr(event, "usage", None)
    if event.type != "llm_call_completed" or not usage:
        return Tokens()
    metrics = UsageMetrics.from_provider_dict(usage)
    return Tokens(
        prompt=counted(metrics.prompt_tokens),
        completion=counted(metrics.completion_tokens),
        total=counted(metrics.total_tokens),
        cached_prompt=counted(metrics.cached_prompt_tokens),
        reasoning=counted(metrics.reasoning_tokens),
    )


def counted(tokens: int) -> int:
    """Returns a provider's count within the range of a message, 0 to MOST_TOKENS."""
    return min(max(tokens, 0), MOST_TOKENS)


def telemetry_as_wanted() -> None:
    """Switches telemetry on if this crew's environment allows it.

    crewai decides on telemetry at import, and the zygote imports it before the crew's environment is known.
    """
    telemetry = Telemetry()
    if not telemetry.ready:
        telemetry._initialized = False  # noqa: SLF001 - listeners hold this one object, so it can't be replaced
        telemetry.__init__()


def identify(kickoff_id: str) -> None:
    """Sets the kickoff's id as crewai's execution id, unless crewai's tracing is on. Tracing sets an id of its own."""
    if environment().get("CREWAI_TRACING_ENABLED", "").lower() not in {"true", "1"}:
        set_execution_uuid(kickoff_id)


def flush() -> None:
    """Waits, for FLUSH_SECONDS at most, for the handlers that crew code has registered on the bus."""
    crewai_event_bus.flush(FLUSH_SECONDS)
