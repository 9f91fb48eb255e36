"""Finds errors of syntax in the YAML files of crews. It needs neither the project's interpreter nor its packages."""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.projects.findings import Finding, Level
from windlass.projects.kinds import used_classes

if TYPE_CHECKING:
    from windlass_child.protocol.messages import Project

yaml = import_module("yaml")  # here: the process of a BoundedReader can't import modules later
CODE = "yaml_syntax"
FOLDER, ENDINGS = "config", {".yaml", ".yml"}
MOST_FILES = 200
LARGEST = 4 << 20
"""Bytes of a file that is parsed."""


def with_syntax_errors(project: Project, reported: list[Finding]) -> list[Finding]:
    """Returns the reported findings, with an error for each YAML file of a crew class that can't be parsed.

    The files are those in `config` beside a class with @CrewBase that the entrypoint uses. The project's interpreter
    reports the same errors: a file that has one already gets no second one.
    """
    root = Path(project.root)
    known = {one.file for one in reported if one.code == CODE}
    found = (unparsable(root, path) for path in crew_files(root, project))
    return [*reported, *(one for one in found if one is not None and one.file not in known)]


def crew_files(root: Path, project: Project) -> list[Path]:
    classes = used_classes(root, project.entrypoint) or []
    folders = sorted({(root / place.rpartition(":")[0]).parent / FOLDER for place in classes})
    files = (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))
    usable = (path for path in files if path.suffix in ENDINGS and path.resolve().is_relative_to(root.resolve()))
    return list(islice((path for path in usable if path.is_file() and path.stat().st_size <= LARGEST), MOST_FILES))


def unparsable(root: Path, path: Path) -> Finding | None:
    """Returns an error if the file is no YAML. Makes no objects, so that references can't multiply them."""
    hint = "Correct the YAML of this line: its indentation, a colon or a quote."
    name = path.relative_to(root).as_posix()
    try:
        yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as fault:
        return Finding(CODE, Level.ERROR, f"the file can't be read: {fault}.", name, None, hint)
    except RecursionError:
        return Finding(CODE, Level.ERROR, "the file is nested too deeply.", name, None, hint)
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None) or getattr(fault, "context_mark", None)
        problem = getattr(fault, "problem", None) or str(fault).splitlines()[0]
        words = f"{problem} (column {mark.column + 1})." if mark else f"{problem}."
        return Finding(CODE, Level.ERROR, words, name, mark.line + 1 if mark else None, hint)
    return None
