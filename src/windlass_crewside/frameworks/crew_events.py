"""Every event of crewai, in order, from whatever thread: its stream sink, which is called before `emit` returns.

Handlers on crewai's event bus would not do: they run on a pool, out of order, and after the run has gone on.
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

from windlass_crewside.faults import text_of
from windlass_crewside.messages import Tokens
from windlass_crewside.shortening import short_or_noted
from windlass_crewside.surroundings import environment
from windlass_crewside.veil import nameless

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass_crewside.report import Report

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
"""Fields of events that hold live objects: they cost 20 KB an event, and agents have the model's key in them."""

HOOKED = {"execution_start", "execution_end", "pre_model_call", "pre_tool_call", "pre_step"}
"""Where crew_guard and crew_journal have one hook each."""

FLUSH_SECONDS = 30


def listen(report: Report, follow: Callable[[Any, Any], None], count: Callable[[int], None]) -> None:
    """From now on every event goes to `report`, then to `follow(source, event)`; the tokens of each call to `count`."""

    def spend(_: Any, event: Any) -> None:
        used = tokens_of(event)
        if used != Tokens():
            count(used.total)
            report.send(used)

    def sink(source: Any, event: Any) -> None:
        for heed in (partial(tell, report), spend, follow):
            try:
                heed(source, event)
            except Exception as error:  # noqa: BLE001 - what a sink raises ends the crew
                report.warn("event_not_told", f"an event {event.type} of the run could not be told: {text_of(error)}")

    # a default, where crewai sets a value: threads that crew code starts itself see it too
    everywhere = contextvars.ContextVar("crewai_stream_sinks", default=(sink,))
    stream_context._stream_sinks = everywhere  # noqa: SLF001 - add_stream_sink reaches only its own context


def tell(report: Report, source: Any, event: Any) -> None:
    if is_no_news(source, event):
        return
    payload = event.model_dump(mode="json", fallback=nameless, exclude=LEFT_OUT, exclude_none=True)
    if "state" in payload:  # of a flow: it is told with every method
        payload["state"] = short_or_noted(payload["state"])
    report.event(event.type, payload, event.timestamp.timestamp())


def is_no_news(source: Any, event: Any) -> bool:
    """Of the flow that is in each agent, which is crewai's own, and of a hook at a point where one of ours stands."""
    if event.type == "hook_dispatched":
        return bool(event.interception_point in HOOKED and event.hook_count == 1)
    return event.type.startswith("flow_") and getattr(type(source), "is_crewai_internal", False)


def tokens_of(event: Any) -> Tokens:
    """Of one call; none for other events. crewai's own totals count a model that agents share several times."""
    usage = getattr(event, "usage", None)
    if event.type != "llm_call_completed" or not usage:
        return Tokens()
    metrics = UsageMetrics.from_provider_dict(usage)
    return Tokens(
        prompt=metrics.prompt_tokens,
        completion=metrics.completion_tokens,
        total=metrics.total_tokens,
        cached_prompt=metrics.cached_prompt_tokens,
        reasoning=metrics.reasoning_tokens,
    )


def telemetry_as_wanted() -> None:
    """Telemetry is decided on when crewai is imported, which is before this crew's environment was known."""
    telemetry = Telemetry()
    if not telemetry.ready:
        telemetry._initialized = False  # noqa: SLF001 - it is one object, which its listeners hold
        telemetry.__init__()


def identify(kickoff_id: str) -> None:
    """The run carries our id, unless the crew's environment wants crewai's own tracing, which brings its own."""
    if environment().get("CREWAI_TRACING_ENABLED", "").lower() not in {"true", "1"}:
        set_execution_uuid(kickoff_id)


def flush() -> None:
    """Waits for the handlers that crew code has put on the bus."""
    crewai_event_bus.flush(FLUSH_SECONDS)
