"""Parses the project's Python files: their classes and tasks, with lines. It does not import them."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child.checks.found import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSED_OVER = {"__pycache__", "build", "dist", "env", "node_modules", "site-packages", "tests", "venv"}
LARGEST = 4 * 1024 * 1024
CONFIG = {"agents": "config/agents.yaml", "tasks": "config/tasks.yaml"}
"""The files that crewai reads if the class does not name others."""


@dataclass(frozen=True)
class CrewClass:
    """A class with @CrewBase."""

    path: Path
    node: ast.ClassDef

    def config(self, kind: str) -> str | None:
        """Returns the path of its YAML file of agents or tasks, relative to the folder of its module.

        Returns None if the class sets the config to something else than a path.
        """
        for statement in self.node.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(one, ast.Name) and one.id == f"{kind}_config" for one in targets):
                value = getattr(statement, "value", None)
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    return value.value
                if value is not None:
                    return None
        return CONFIG[kind]

    def methods(self, mark: str) -> set[str]:
        return {node.name for node in self.node.body if isinstance(node, ast.FunctionDef) and mark in marks(node)}

    def lines_that_read(self, kind: str) -> list[int]:
        """Returns the lines that read self.agents_config or self.tasks_config."""
        nodes = (node for node in ast.walk(self.node) if isinstance(node, ast.Attribute))
        return sorted(node.lineno for node in nodes if node.attr == f"{kind}_config")

    @property
    def stands_alone(self) -> bool:
        """Whether the class has no bases, from which it could inherit methods."""
        return not self.node.bases


class Code:
    def __init__(self, root: Path) -> None:
        self.root = root

    def named(self, path: Path) -> str:
        return os.path.relpath(path, self.root)

    @cached_property
    def crews(self) -> list[CrewClass]:
        found = ((path, node) for path, tree in self._trees for node in ast.walk(tree))
        return [
            CrewClass(path, node)
            for path, node in found
            if isinstance(node, ast.ClassDef) and "CrewBase" in marks(node)
        ]

    @cached_property
    def words(self) -> set[str]:
        """The strings of the code and the annotated fields of its classes. The code may use them as names."""
        nodes = [node for _, tree in self._trees for node in ast.walk(tree)]
        strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        fields = (node.target for node in nodes if isinstance(node, ast.AnnAssign))
        return strings | {target.id for target in fields if isinstance(target, ast.Name)}

    def place_of(self, task: Any) -> Place:
        """Returns the place of the decorated function with the name of a task.

        Returns no place for several such functions, and for none.
        """
        lines = [
            Place(file=self.named(path), line=node.lineno)
            for path, tree in self._trees
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == task and marks(node)
        ]
        return lines[0] if len(lines) == 1 else Place(file=None, line=None)

    @cached_property
    def _trees(self) -> list[tuple[Path, ast.Module]]:
        """The syntax trees of the files that can be parsed. The import reports other files if the crew uses them."""
        found = []
        for path in python_files(self.root):
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
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER and not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file() and path.stat().st_size <= LARGEST:
                yield path
