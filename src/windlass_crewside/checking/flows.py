"""What of a declarative flow crewai takes, and can't run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREW_FILES = ("crew.jsonc", "crew.json")

Fault = tuple[str, tuple[int | str, ...], str, str]
"""Its code, where in the file it is, what it is, and what to do."""


def faults(definition: Any, folder: Path) -> Iterator[Fault]:
    """`folder` is that of the flow's file, from which paths count."""
    yield from unheard(definition)
    for name, method in definition.methods.items():
        for place, action in actions(method.do, ("methods", name, "do")):
            if (named := getattr(action, "from_declaration", None)) and (fault := fault_of_crew(folder, named)):
                hint = "Make it, or name the one that there is, by its path from the flow's file."
                yield "declaration_invalid", (*place, "from_declaration"), f"the method {name}: {fault}.", hint


def unheard(definition: Any) -> Iterator[Fault]:
    """What methods wait for, and no method gives; nothing where one may give any."""
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
    """All that a method may wait for: the others, and what those that route give. None where they don't say what."""
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
    """Of "name", {"or": ["name", {"and": [...]}]}, or True."""
    if isinstance(condition, str):
        yield condition
    elif isinstance(condition, dict):
        for value in condition.values():
            yield from names_in(value)
    elif isinstance(condition, list):
        for one in condition:
            yield from names_in(one)


def actions(action: Any, place: tuple[int | str, ...]) -> Iterator[tuple[tuple[int | str, ...], Any]]:
    """It, or the steps that it repeats."""
    steps = getattr(action, "do", None)
    if steps is None:
        yield place, action
    for number, step in enumerate(steps or ()):
        yield (*place, "do", number, "action"), step.action


def fault_of_crew(folder: Path, named: str) -> str:
    """As crewai looks for it: a file, or a folder with one of CREW_FILES."""
    path = (folder / named).resolve()
    if not path.is_relative_to(folder.resolve()):
        return f"{named} is not in the folder of the flow's file"
    files = [path / name for name in CREW_FILES] if path.is_dir() else [path]
    return "" if any(file.is_file() for file in files) else f"there is no {named}"
