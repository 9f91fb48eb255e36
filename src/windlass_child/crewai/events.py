"""Reports every event of crewai, in order and from any thread."""

from __future__ import annotations

import contextlib
import inspect
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from windlass_child.crewai import bus, usage
from windlass_child.crewai.capabilities import found
from windlass_child.crewai.features import first_of, optional
from windlass_child.masking.redaction import nameless
from windlass_child.process.error_text import of_caught, text_of
from windlass_child.process.process_env import environment
from windlass_child.protocol import offline_model
from windlass_child.protocol.messages import Tokens
from windlass_child.protocol.truncation import short_or_noted
from windlass_child.replacements import replace_name

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

set_execution_uuid = optional("crewai.execution:set_execution_uuid")
Telemetry = first_of("crewai.telemetry:Telemetry", "crewai.telemetry.telemetry:Telemetry")

tracing = optional("crewai.events.listeners.tracing.utils")

BEGIN_TRACES = "crewai.events.listeners.tracing.trace_batch_manager:TraceBatchManager._initialize_backend_batch"

DUMPS_ANYTHING = "fallback" in inspect.signature(BaseModel.model_dump).parameters
"""Whether this pydantic can replace the objects that it can't convert."""


def listen(report: Report, follow: Callable[[Any, Any], None], count: Callable[[int], None]) -> None:
    """Sends every event from now on to `report`, then to `follow(source, event)`. Passes the tokens of each model call
    to `count` between the two.
    """
    end_first_run()

    def spend(used: Tokens) -> None:
        if used != Tokens():
            count(used.total)
            report.send(used)

    def spend_of_event(_: Any, event: Any) -> None:
        spend(usage.of_event(event))

    def sink(source: Any, event: Any) -> None:
        for handle in (partial(forward, report), spend_of_event, follow):
            try:
                handle(source, event)
            except Exception as error:  # noqa: BLE001 - an exception in a sink would end the crew
                message = f"an event {event.type} of the run could not be reported: {text_of(error)}"
                report.warn("event_not_told", message)

    if not usage.IN_EVENTS:
        usage.follow(spend, partial(report.warn, "event_not_told"))
    bus.subscribe(sink)


def forward(report: Report, source: Any, event: Any) -> None:
    if is_internal(source, event):
        return
    payload = dumped(event)
    if "state" in payload:  # the state of a flow is in the events of each of its methods
        payload["state"] = short_or_noted(payload["state"])
    if event.type.startswith("llm_call") and is_offline(source, payload.get("model")):
        payload["model"] = offline_model.NAME
    report.event(event.type, payload, event.timestamp.timestamp())


def is_offline(source: Any, model: object) -> bool:
    """Returns whether the offline model answers `source`, an LLM with the name `model`. crewai's events name the model
    that the crew wants.
    """
    if environment().get("OPENAI_API_KEY") != offline_model.KEY:
        return False
    of_openai = "/" not in str(model) or str(model).startswith("openai/")
    return of_openai and getattr(source, "api_key", None) in {None, offline_model.KEY}


def is_internal(source: Any, event: Any) -> bool:
    """Returns whether the event is of crewai's own flow inside an agent."""
    return event.type.startswith("flow_") and getattr(type(source), "is_crewai_internal", False)


def dumped(event: Any) -> dict[str, Any]:
    if DUMPS_ANYTHING:
        with contextlib.suppress(ValueError):  # bytes that are not UTF-8, for which pydantic asks no fallback
            payload: dict[str, Any] = event.model_dump(
                mode="json", fallback=replacement, exclude=LEFT_OUT, exclude_none=True
            )
            return payload
    values = event.model_dump(exclude=LEFT_OUT, exclude_none=True)
    plain: dict[str, Any] = json.loads(json.dumps(values, skipkeys=True, default=replacement))
    return plain


def replacement(value: object) -> str:
    """Returns the text for a value that JSON has no type for. Tools' errors are exceptions in events."""
    return of_caught(value) if isinstance(value, BaseException) else nameless(value)


def end_first_run() -> None:
    """Stops crewai from taking a run for the first on this machine. It would ask, for 20 s, whether to send traces."""
    if hasattr(tracing, "is_first_execution") and tracing.is_first_execution is not no_first_run:
        replace_name("crewai.events.listeners.tracing.utils:is_first_execution", lambda _: no_first_run)
    listener = optional("crewai.events.listeners.tracing.trace_listener:TraceCollectionListener._instance")
    if handler := getattr(listener, "first_time_handler", None):
        handler.is_first_time = False
    if hasattr(listener, "setup_listeners") and hasattr(bus.BUS, "_sync_handlers") and hasattr(bus.BUS, "off"):
        collect_traces_only_if_wanted(listener)
    send_traces_only_if_wanted()


def no_first_run() -> bool:
    return False


def collect_traces_only_if_wanted(listener: Any) -> None:
    """Removes the handlers of events that collect traces, which crewai has registered at its import for a first run.
    It registers them again when they are wanted: now, or for a crew with `tracing=True`.
    """
    for kind, handlers in list(bus.BUS._sync_handlers.items()):  # noqa: SLF001 - crewai has no public list of them
        for handler in handlers:
            if getattr(handler, "__module__", "") == type(listener).__module__:
                bus.BUS.off(kind, handler)
    listener._listeners_setup = False  # noqa: SLF001 - as above
    listener.setup_listeners(bus.BUS)


def send_traces_only_if_wanted() -> None:
    """Makes crewai send traces only if this crew's environment asks for it. Some releases send those of every run."""
    begin = optional(BEGIN_TRACES)  # no setting is read before it
    if hasattr(tracing, "should_enable_tracing") or begin is None or begin.__module__ == __name__:
        return
    replace_name(BEGIN_TRACES, if_wanted)


def if_wanted(begin: Callable[..., None]) -> Callable[..., None]:
    def begin_if_wanted(*arguments: Any, **named: Any) -> None:
        if wants_tracing():
            begin(*arguments, **named)

    return begin_if_wanted


def wants_tracing() -> bool:
    return environment().get("CREWAI_TRACING_ENABLED", "").lower() in {"true", "1"}


def telemetry_as_wanted() -> None:
    """Switches telemetry on if this crew's environment allows it.

    crewai decides on telemetry at import, and the zygote imports it before the crew's environment is known.
    """
    if not found()["telemetry_switch"]:
        replace_name("crewai.telemetry.telemetry:Telemetry.__init__", lambda _: never_ready, Telemetry)
        return
    telemetry = Telemetry()
    if not telemetry.ready and hasattr(telemetry, "_initialized"):  # older releases make a new object each time
        telemetry._initialized = False  # noqa: SLF001 - listeners hold this one object, so it can't be replaced
        telemetry.__init__()


def never_ready(telemetry: Any) -> None:
    """Replaces the constructor of a telemetry that is made anew for each crew and task, and reads no setting."""
    telemetry.ready = telemetry.trace_set = False


def identify(kickoff_id: str) -> None:
    """Sets the kickoff's id as crewai's execution id, unless crewai's tracing is on. Tracing sets an id of its own."""
    if set_execution_uuid and not wants_tracing():
        set_execution_uuid(kickoff_id)
