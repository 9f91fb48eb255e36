"""Checks the file of a declarative flow as far as that needs no package but PyYAML."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from windlass_child.project_files.found import Found, error
from windlass_child.project_files.nodes import Unreadable, compose, has_text, line_of, mapping, pairs, sequence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREW_FILES = ("crew.jsonc", "crew.json")
CREW = "from_declaration"
"""The member of an action that names the file of a crew."""


def findings(root: Path, entrypoint: str) -> Iterator[Found]:
    """Yields an error if the file can't be read, else one for each crew that it names and that is not there."""
    try:
        import_module("yaml")
    except ImportError:
        return
    path = root / entrypoint
    try:
        flow = compose(path)
    except Unreadable as fault:
        code, what = ("jsonc_syntax", "JSON") if path.suffix == ".json" else ("yaml_syntax", "YAML")
        hint = f"Correct the {what} of this line."
        yield error(code, f"{fault}.", entrypoint, fault.line, hint)
        return
    for name, method in mapping(mapping(flow).get("methods")).items():
        for action in actions(mapping(method).get("do")):
            for key, value in pairs(action):
                if key.value == CREW and has_text(value) and (fault_of_it := fault_of_crew(path.parent, value.value)):
                    message = f"the method {name}: {fault_of_it}."
                    hint = "Make it, or name the one that there is, by its path from the flow's file."
                    yield error("declaration_invalid", message, entrypoint, line_of(key), hint)


def actions(action: Any) -> list[Any]:
    """Returns the action itself, or the actions of the steps that it repeats."""
    steps = mapping(action).get("do")
    return [action] if steps is None else [mapping(step).get("action") for step in sequence(steps)]


def fault_of_crew(folder: Path, named: str) -> str:
    """Returns the fault of a crew's path, or "". As in crewai, a path is a file or a folder with one of CREW_FILES."""
    path = (folder / named).resolve()
    if not path.is_relative_to(folder.resolve()):
        return f"{named} is not in the folder of the flow's file"
    files = [path / name for name in CREW_FILES] if path.is_dir() else [path]
    return "" if any(file.is_file() for file in files) else f"there is no {named}"
