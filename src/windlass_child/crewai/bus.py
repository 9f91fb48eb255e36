"""The event bus of crewai: who sees its events, and its threads, which no fork copies."""

# ruff: noqa: SLF001 - crewai has no public way to pause its threads, or to see the events of all threads

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.features import first_of, optional
from windlass_child.replacements import replace_name, undo

if TYPE_CHECKING:
    from collections.abc import Callable

FLUSH_SECONDS = 30

BUS = first_of("crewai.events.event_bus:crewai_event_bus", "crewai.utilities.events:crewai_event_bus")
"""The bus, or None: releases before 0.108 have none."""

STREAM = optional("crewai.events.stream_context")
SINKS, EMIT = "crewai.events.stream_context:_stream_sinks", "crewai.events.event_bus:crewai_event_bus.emit"


def subscribe(sink: Callable[[Any, Any], None]) -> None:
    """Calls `sink(source, event)` for each event from now on, in the thread that emits it, before `emit` returns.

    Handlers on the bus are not suitable: they run on a thread pool, out of order, and after the run has gone on.
    """
    if STREAM is not None:
        # set as the variable's default and not as its value: threads that crew code starts see only the default
        replace_name(SINKS, lambda _: contextvars.ContextVar("crewai_stream_sinks", default=(sink,)))
    elif BUS is not None:

        def emitting(emit: Callable[..., Any]) -> Callable[..., Any]:
            def emit_to_sink(source: Any, event: Any, *arguments: Any, **named: Any) -> Any:
                given = emit(source, event, *arguments, **named)
                sink(source, event)
                return given

            return emit_to_sink

        replace_name(EMIT, emitting, BUS)


def unsubscribe() -> None:
    """Ends what `subscribe` began."""
    undo(SINKS, EMIT)


def flush() -> None:
    """Waits, for FLUSH_SECONDS at most, for the handlers that crew code has registered on the bus."""
    if hasattr(BUS, "flush"):
        BUS.flush(FLUSH_SECONDS)


def stop_threads() -> None:
    """Stops the threads of the bus before a fork.

    A fork copies no threads, so a child of a process with a started bus would wait for ever. The bus's own `shutdown`
    is not used, because it is final and removes the listeners.
    """
    flush()
    if not hasattr(BUS, "_loop_thread") or not getattr(BUS, "_executor_initialized", True) or BUS._loop.is_closed():
        return
    BUS._loop.call_soon_threadsafe(BUS._loop.stop)
    BUS._loop_thread.join(10)
    BUS._loop.close()
    BUS._sync_executor.shutdown(wait=True)
    if hasattr(BUS, "_pending_futures"):
        BUS._pending_futures.clear()
    if hasattr(BUS, "_executor_initialized"):  # the bus restarts its threads when it needs them
        BUS._executor_initialized = False
        BUS._has_pending_events = False


def restart_threads() -> None:
    """Starts the threads of a bus that has them from its import on, in a process that was forked without them."""
    if not hasattr(BUS, "_run_loop") or hasattr(BUS, "_executor_initialized") or BUS._loop_thread.is_alive():
        return
    with contextlib.suppress(RuntimeError):
        BUS._loop.close()
    BUS._sync_executor = ThreadPoolExecutor(max_workers=10, thread_name_prefix="CrewAISyncHandler")
    BUS._loop = asyncio.new_event_loop()
    BUS._loop_thread = threading.Thread(target=BUS._run_loop, name="CrewAIEventsLoop", daemon=True)
    BUS._loop_thread.start()
