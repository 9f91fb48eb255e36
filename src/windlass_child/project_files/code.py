"""Parses the project's Python files: the words in them and their tasks, with lines. It does not import them."""

from __future__ import annotations

import ast
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child.project_files.found import Place
from windlass_child.protocol.working_folder import IGNORED_FOLDERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

UNCHECKED = IGNORED_FOLDERS | {"site-packages", "tests"}
LARGEST = 4 * 1024 * 1024


class Code:
    def __init__(self, root: Path, used: Collection[str] | None = None) -> None:
        """`used` are the classes that are checked, as "file:line", or None for all."""
        self.root = root
        self._used = used

    def uses(self, path: Path, node: ast.ClassDef) -> bool:
        return self._used is None or f"{self.named(path)}:{node.lineno}" in self._used

    def named(self, path: Path) -> str:
        return os.path.relpath(path, self.root)

    @cached_property
    def words(self) -> set[str]:
        """The strings of the code and the annotated fields of its classes. The code may use them as names."""
        nodes = [node for _, tree in self.trees for node in ast.walk(tree)]
        strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        fields = (node.target for node in nodes if isinstance(node, ast.AnnAssign))
        return strings | {target.id for target in fields if isinstance(target, ast.Name)}

    def place_of(self, task: Any) -> Place:
        """Returns the place of the decorated function with the name of a task.

        Returns no place for several such functions, and for none.
        """
        lines = [
            Place(file=self.named(path), line=node.lineno)
            for path, tree in self.trees
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == task and marks(node)
        ]
        return lines[0] if len(lines) == 1 else Place(file=None, line=None)

    @cached_property
    def trees(self) -> list[tuple[Path, ast.Module]]:
        """The syntax trees of the files that can be parsed. The import reports other files if the project uses them."""
        return parsed(python_files(self.root))

    @cached_property
    def trees_with_classes(self) -> list[tuple[Path, ast.Module]]:
        """The syntax trees of the files with the classes that are checked."""
        if self._used is None:
            return self.trees
        return parsed(self.root / file for file in sorted({place.rpartition(":")[0] for place in self._used}))


def parsed(files: Iterable[Path]) -> list[tuple[Path, ast.Module]]:
    found = []
    for path in files:
        try:
            found.append((path, ast.parse(path.read_bytes())))
        except (SyntaxError, ValueError, OSError, RecursionError):
            continue
    return found


def marks(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Returns the last names of its decorators: "task" for @task, @project.task and @task(...)."""
    bare = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in bare}


def python_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in UNCHECKED and not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file() and path.stat().st_size <= LARGEST:
                yield path
