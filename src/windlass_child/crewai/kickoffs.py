"""Refuses kickoffs while the modules of a project are imported: a load would then run the crew, and pay for it."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

from crewai import Crew
from crewai.flow.flow import Flow

from windlass_child.process.error_text import StartedAtImport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, ModuleType


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Replaces the methods that kick off crews and flows inside the `with` block. They raise StartedAtImport.

    Code may keep one of the replaced methods, for example `ask = crew.kickoff`. After the block it calls the original.
    """
    replaced = [(owner, name) for owner in (Crew, Flow) for name in vars(owner) if "kickoff" in name and name[0] != "_"]
    replaced = [(owner, name) for owner, name in replaced if callable(getattr(owner, name))]
    before = [(owner, name, vars(owner)[name]) for owner, name in replaced]
    block = Block()
    for owner, name in replaced:
        setattr(owner, name, refusing(getattr(owner, name), block))
    try:
        yield
    finally:
        block.is_over = True
        for owner, name, method in before:
            setattr(owner, name, method)


class Block:
    """Whether the `with` block is over."""

    is_over = False


def refusing(method: Callable[..., Any], block: Block) -> Callable[..., Any]:
    """Returns a method that calls `method` once the block is over, and raises StartedAtImport before."""

    @functools.wraps(method)
    def refuse(crew: Any, *arguments: Any, **named: Any) -> Any:
        if block.is_over:
            return method(crew, *arguments, **named)
        inputs = named.get("inputs", arguments[0] if arguments else None)
        called_in = sys._getframe(1)  # noqa: SLF001 - in the module that is being imported
        raise StartedAtImport(
            crew, inputs if isinstance(inputs, dict) else {}, called_in.f_globals, being_imported(called_in)
        )

    return refuse


def being_imported(frame: FrameType | None) -> dict[str, ModuleType]:
    """Returns the modules whose code is running on this stack, by name."""
    found = {}
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        module = sys.modules.get(name)
        if frame.f_code.co_name == "<module>" and module is not None and vars(module) is frame.f_globals:
            found[name] = module
        frame = frame.f_back
    return found
