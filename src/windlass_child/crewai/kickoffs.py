"""Refuses kickoffs while the modules of a project are imported: a load would then run the crew, and pay for it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.features import optional
from windlass_child.process.error_text import StartedAtImport
from windlass_child.replacements import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, ModuleType

STARTED = ("crewai:Crew", "crewai.flow.flow:Flow", "crewai:Agent", "crewai.lite_agent:LiteAgent")
"""The classes whose objects call models when they are started."""
WITHOUT_KICKOFF_IN_THEIR_NAMES = {"train", "test", "replay", "resume", "resume_async"}


def starting(found: Any) -> list[tuple[type, str]]:
    """Returns (class, name) for each public method of a class that starts a run.

    A method may be defined in a base class of crewai: those of Flow are, since 1.14.7.
    """
    own = [base for base in getattr(found, "__mro__", ()) if base.__module__.partition(".")[0] == "crewai"]
    return [(base, name) for base in own for name, method in vars(base).items() if starts(name) and callable(method)]


def starts(name: str) -> bool:
    return name in WITHOUT_KICKOFF_IN_THEIR_NAMES or ("kickoff" in name and not name.startswith("_"))


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Replaces the methods that start crews, flows and agents inside the `with` block. They raise StartedAtImport.

    Code may keep or wrap one of the replaced methods, as `ask = crew.kickoff` and libraries for tracing do. After the
    block it calls the original. A method that such code has set on the class stays.
    """
    places = {place: name for name in STARTED for place in starting(optional(name))}
    with contextlib.ExitStack() as stack:
        for (owner, name), found_in in places.items():
            stack.enter_context(replaced(f"{found_in}.*", refusing, owner, name))
        yield


def refusing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that raises StartedAtImport. It is asynchronous if `method` is."""

    @functools.wraps(method)
    def refuse(started: Any, *arguments: Any, **named: Any) -> Any:
        raise fault(started, method, arguments, named)

    @functools.wraps(method)
    async def refuse_when_awaited(started: Any, *arguments: Any, **named: Any) -> Any:
        raise fault(started, method, arguments, named)

    return refuse_when_awaited if inspect.iscoroutinefunction(method) else refuse


def fault(started: Any, method: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> StartedAtImport:
    inputs = named.get("inputs", arguments[0] if arguments else None)
    called_in = calling_frame()
    modules = being_imported(called_in)
    # the caller may be a library that has wrapped the method
    names = next((vars(module) for module in modules.values()), called_in.f_globals)
    called = f"{type(started).__name__}.{getattr(method, '__name__', 'kickoff')}"
    return StartedAtImport(started, called, inputs if isinstance(inputs, dict) else {}, names, modules)


def calling_frame() -> FrameType:
    """Returns the innermost frame that is none of Windlass: it calls the method."""
    frame = sys._getframe(1)  # noqa: SLF001 - the stack of this thread
    while str(frame.f_globals.get("__name__")).startswith("windlass_child.") and frame.f_back is not None:
        frame = frame.f_back
    return frame


def being_imported(frame: FrameType | None) -> dict[str, ModuleType]:
    """Returns the modules whose code is running on this stack, by name, the innermost first."""
    found = {}
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        module = sys.modules.get(name)
        if frame.f_code.co_name == "<module>" and module is not None and vars(module) is frame.f_globals:
            found[name] = module
        frame = frame.f_back
    return found
