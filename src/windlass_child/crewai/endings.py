"""Decides whether code of the project runs between the last task of a crew and its result."""

# ruff: noqa: SLF001 - crewai has no public lists of listeners and hooks

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from crewai import Crew

from windlass_child.crewai.bus import BUS, STREAM
from windlass_child.crewai.capabilities import optional

if TYPE_CHECKING:
    from collections.abc import Iterator

dispatch = optional("crewai.hooks.dispatch")

AT_THE_END = ("output", "execution_end")
"""The interception points after the last task."""
OWN = ("crewai.", "windlass_child.")
"""The beginnings of the names of modules whose code is not the project's."""
ANNOTATIONS, CREW_BASE = "crewai.project.annotations", "crewai.project.crew_base"


def only_crewai_follows(crew: Any) -> bool:
    """Returns whether only code of crewai runs between the last task of this crew and its result.

    Returns False for a release of crewai whose listeners and hooks are not known.
    """
    if type(crew) is not Crew or dispatch is None or STREAM is None or not hasattr(BUS, "_sync_handlers"):
        return False
    callbacks = chain(crew.before_kickoff_callbacks, crew.after_kickoff_callbacks)
    return all(map(closes_connections, callbacks)) and all(map(is_own, listeners())) and all(map(is_own, hooks()))


def closes_connections(callback: Any) -> bool:
    """Returns whether this is the callback that crewai adds to each crew, to close connections to MCP servers.

    @crew wraps this callback in the same way as an @after_kickoff method.
    """
    cells = getattr(callback, "__closure__", None) or ()
    wrapped = getattr(callback, "__module__", None) == ANNOTATIONS
    return wrapped and any(getattr(one.cell_contents, "__module__", None) == CREW_BASE for one in cells)


def is_own(function: Any) -> bool:
    return str(getattr(function, "__module__", None)).startswith(OWN)


def listeners() -> Iterator[Any]:
    for handlers in [*BUS._sync_handlers.values(), *BUS._async_handlers.values()]:
        yield from tuple(handlers)  # a copy, like the list: another thread may add a listener
    yield from STREAM._stream_sinks.get()


def hooks() -> Iterator[Any]:
    for point in map(dispatch.InterceptionPoint, AT_THE_END):
        yield from tuple(dispatch._global_hooks[point])
        yield from dispatch.get_scoped_hooks(point)
