"""Refuses kickoffs while the modules of a project are imported: a load would then run the crew, and pay for it."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from crewai import Crew
from crewai.flow.flow import Flow

from windlass_child.process.error_text import StartedAtImport

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Replaces the methods that kick off crews and flows inside the `with` block. They raise StartedAtImport."""
    replaced = [(owner, name) for owner in (Crew, Flow) for name in vars(owner) if "kickoff" in name and name[0] != "_"]
    replaced = [(owner, name) for owner, name in replaced if callable(getattr(owner, name))]
    before = [(owner, name, vars(owner)[name]) for owner, name in replaced]
    for owner, name in replaced:
        setattr(owner, name, refuse)
    try:
        yield
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


def refuse(crew: Any, *arguments: Any, **named: Any) -> None:
    inputs = named.get("inputs", arguments[0] if arguments else None)
    called_in = sys._getframe(1).f_globals  # noqa: SLF001 - the module that is being imported
    raise StartedAtImport(crew, inputs if isinstance(inputs, dict) else {}, called_in)
