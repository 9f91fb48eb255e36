"""Names the callbacks of crews, and refuses those that crewai calls and does not await."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from windlass_child.process.error_text import ProjectFault

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKS = ("is_before_kickoff", "is_after_kickoff")
ANNOTATIONS, CREW_BASE = "crewai.project.annotations", "crewai.project.crew_base"


def before_kickoff(crew: Any) -> list[Any]:
    """Returns the callbacks of a crew. Crews of the oldest releases have none."""
    return list(getattr(crew, "before_kickoff_callbacks", ()))


def after_kickoff(crew: Any) -> list[Any]:
    return list(getattr(crew, "after_kickoff_callbacks", ()))


def names_of(callbacks: Iterable[Any]) -> str:
    """Returns the names of the project's callbacks among these."""
    return ", ".join(name_of(one) for one in callbacks if not closes_connections(one))


def closes_connections(callback: Any) -> bool:
    """Returns whether this is the callback that crewai adds to each crew, to close connections to MCP servers.

    @crew wraps this callback in the same way as an @after_kickoff method.
    """
    cells = getattr(callback, "__closure__", None) or ()
    wrapped = getattr(callback, "__module__", None) == ANNOTATIONS
    return wrapped and any(getattr(one.cell_contents, "__module__", None) == CREW_BASE for one in cells)


def name_of(callback: Any) -> str:
    return str(getattr(function_of(callback), "__name__", "a callback"))


def function_of(callback: Any) -> Any:
    """Returns the method of a callback. @crew wraps each method in a function that keeps the method in its closure."""
    cells = [one.cell_contents for one in getattr(callback, "__closure__", None) or ()]
    marked = (one for one in cells if any(getattr(one, mark, False) for mark in MARKS))
    found = next(marked, callback)
    return getattr(found, "_meth", found)


def refuse_async(crew: Any) -> None:
    """Raises ProjectFault for an async callback: crewai takes its coroutine for the inputs, or for the result."""
    for mark, callbacks in (("before", before_kickoff(crew)), ("after", after_kickoff(crew))):
        for callback in callbacks:
            if is_async(function_of(callback)):
                raise ProjectFault(
                    f"no kickoff can run the crew: its callback {name_of(callback)} (@{mark}_kickoff) is async, and "
                    f"crewai {version('crewai')} does not await it",
                    "Make it a `def`. It can call async code with asyncio.run(...).",
                    "never_runs",
                )


def is_async(function: Any) -> bool:
    called = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004 - for its kind
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(called)
