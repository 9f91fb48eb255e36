"""Finds the parts of a declarative flow that crewai accepts but can't run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREW_FILES = ("crew.jsonc", "crew.json")

Fault = tuple[str, tuple[int | str, ...], str, str]
"""The code, the path in the file, the message and the hint."""


def faults(definition: Any, folder: Path) -> Iterator[Fault]:
    """Yields the faults. `folder` is that of the flow's file. Paths in the file are relative to it."""
    yield from discard(definition)
    for name, method in definition.methods.items():
        for place, action in actions(method.do, ("methods", name, "do")):
            if (named := getattr(action, "from_declaration", None)) and (fault := fault_of_crew(folder, named)):
                hint = "Make it, or name the one that there is, by its path from the flow's file."
                yield "declaration_invalid", (*place, "from_declaration"), f"the method {name}: {fault}.", hint


def discard(definition: Any) -> Iterator[Fault]:
    """Yields the names that methods wait for and that no method emits. Yields nothing if a method may emit any name."""
    given = outcomes(definition)
    if given is None:
        return
    for name, method in definition.methods.items():
        for how in ("listen", "start"):
            for awaited in dict.fromkeys(names_in(getattr(method, how))):
                if awaited not in given:
                    message = f"the method {name} waits for {awaited!r}, which is no method and no outcome of one."
                    yield (
                        "never_runs",
                        ("methods", name, how),
                        message,
                        f"There are: {', '.join(one for one in given if one != name)}.",
                    )


def outcomes(definition: Any) -> list[str] | None:
    """Returns the names for which a method may wait: all methods, and the outcomes of routers.

    Returns None if a router does not declare its outcomes.
    """
    conversational = definition.conversational
    if conversational is not None and conversational.enabled:
        return None
    given = list(definition.methods)
    for method in definition.methods.values():
        asked = method.human_feedback.emit if method.human_feedback else None
        emitted = method.emit or asked
        if method.router and not emitted:
            return None
        given += emitted or []
    return list(dict.fromkeys(given))


def names_in(condition: Any) -> Iterator[str]:
    """Yields the names in a condition: "name", {"or": ["name", {"and": [...]}]}, or True."""
    if isinstance(condition, str):
        yield condition
    elif isinstance(condition, dict):
        for value in condition.values():
            yield from names_in(value)
    elif isinstance(condition, list):
        for one in condition:
            yield from names_in(one)


def actions(action: Any, place: tuple[int | str, ...]) -> Iterator[tuple[tuple[int | str, ...], Any]]:
    """Yields the action itself, or the steps that it repeats."""
    steps = getattr(action, "do", None)
    if steps is None:
        yield place, action
    for number, step in enumerate(steps or ()):
        yield (*place, "do", number, "action"), step.action


def fault_of_crew(folder: Path, named: str) -> str:
    """Returns the fault of a crew's path, or "". As in crewai, a path is a file or a folder with one of CREW_FILES."""
    path = (folder / named).resolve()
    if not path.is_relative_to(folder.resolve()):
        return f"{named} is not in the folder of the flow's file"
    files = [path / name for name in CREW_FILES] if path.is_dir() else [path]
    return "" if any(file.is_file() for file in files) else f"there is no {named}"
