"""Refuses kickoffs while the modules of a project are imported: a load would then run the crew, and pay for it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.capabilities import optional
from windlass_child.process.error_text import StartedAtImport

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
    block = Block()
    replaced = []
    for owner, name in dict.fromkeys(one for found in map(optional, STARTED) for one in starting(found)):
        method = vars(owner)[name]
        refuse = refusing(method, block)
        setattr(owner, name, refuse)
        replaced.append((owner, name, method, refuse))
    try:
        yield
    finally:
        block.is_over = True
        for owner, name, method, refuse in replaced:
            if vars(owner).get(name) is refuse:
                setattr(owner, name, method)


class Block:
    """Whether the `with` block is over."""

    is_over = False


def refusing(method: Callable[..., Any], block: Block) -> Callable[..., Any]:
    """Returns a method that calls `method` once the block is over, and raises StartedAtImport before.

    It is asynchronous if `method` is: libraries that wrap methods look at that.
    """

    def bound(started: Any) -> Any:
        """Returns the method of this object, as an attribute of the object is found."""
        return method.__get__(started, type(started)) if hasattr(method, "__get__") else method

    @functools.wraps(method)
    def refuse(started: Any, *arguments: Any, **named: Any) -> Any:
        if not block.is_over:
            raise fault(started, method, arguments, named)
        return bound(started)(*arguments, **named)

    @functools.wraps(method)
    async def refuse_when_awaited(started: Any, *arguments: Any, **named: Any) -> Any:
        if not block.is_over:
            raise fault(started, method, arguments, named)
        return await bound(started)(*arguments, **named)

    return refuse_when_awaited if inspect.iscoroutinefunction(method) else refuse


def fault(started: Any, method: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> StartedAtImport:
    inputs = named.get("inputs", arguments[0] if arguments else None)
    called_in = sys._getframe(2)  # noqa: SLF001 - the frame that calls the method
    modules = being_imported(called_in)
    # the caller may be a library that has wrapped the method
    names = next((vars(module) for module in modules.values()), called_in.f_globals)
    called = f"{type(started).__name__}.{getattr(method, '__name__', 'kickoff')}"
    return StartedAtImport(started, called, inputs if isinstance(inputs, dict) else {}, names, modules)


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
