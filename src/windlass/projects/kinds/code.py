"""Reads the Python files of a project as syntax trees, within bounds. It runs none of their code."""

# See docs/decisions/deployments.md#a-project-is-recognised-by-its-syntax-trees

from __future__ import annotations

import ast
import os
import stat
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from windlass_child.protocol.working_folder import IGNORED_FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_FILES = 500
MOST_FOLDERS = 1000
LARGEST, LARGEST_SUM = 512 * 1024, 16 << 20
"""The limits of a search: Python files, folders, bytes of a file and of all files. Files beyond them are not read."""

WITHOUT_CREWS = IGNORED_FOLDERS | {"docs", "site-packages", "test", "tests"}
PROJECT_FILE = "pyproject.toml"
PARSES = 3
"""How often a file is parsed again. Python before 3.11.8 and 3.12.2 can fail while another thread parses too."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Module:
    """A module of the project. `file` is its path in the project, `tree` its syntax tree."""

    name: str
    file: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name if self.file.endswith("/__init__.py") else self.name.rpartition(".")[0]

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The statements that an import runs, without those below `if __name__ == "__main__"`."""
        return list(run_by_import(self.tree.body))

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        return {node.name: node for node in self.statements if isinstance(node, Definition)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """The module and the name that each imported name stands for. The name is "" for a module."""
        found: dict[str, tuple[str, str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {one.asname or one.name.partition(".")[0]: (one.name, "") for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = self._absolute(node)
                found |= {one.asname or one.name: (source, one.name) for one in node.names}
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        parts = self.package.split(".") if self.package else []
        base = parts[: len(parts) - node.level + 1] if node.level else []
        return ".".join([*base, *([node.module] if node.module else [])])


def run_by_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields statements, and those in `if`, `try` and `with` at the level of the module."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and not is_main_guard(node.test):
            yield from run_by_import([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from run_by_import([*node.body, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.With):
            yield from run_by_import(node.body)


def is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


@dataclass(frozen=True)
class Code:
    """The Python files of a project."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, Module]:
        return self._read[0]

    @property
    def unread(self) -> dict[str, str]:
        """The files that can't be parsed, with the reasons."""
        return self._read[1]

    def unparsed(self, modules: list[str]) -> str | None:
        """Returns the first of these modules that exists, if it can't be parsed."""
        names = {self.module_of(file) for file in self.unread}
        found = next((one for one in modules if one in names or one in self.modules), None)
        return found if found in names else None

    @property
    def inner_projects(self) -> list[str]:
        """The folders in the project that are projects of their own."""
        return self._read[2]

    @cached_property
    def _read(self) -> tuple[dict[str, Module], dict[str, str], list[str]]:
        found: dict[str, Module] = {}
        unread: dict[str, str] = {}
        inner: list[str] = []
        left = LARGEST_SUM
        for file in islice(python_files(self.root, inner), MOST_FILES):
            name = self.module_of(file)
            if name and name not in found:
                try:
                    source = read(self.root / file, min(LARGEST, left))
                    left -= len(source)
                    found[name] = Module(name, file, parsed(source))
                except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
                    unread[file] = in_words(error)
        return found, unread, inner

    def module_of(self, file: str) -> str | None:
        """Returns the name under which a file of the project is imported, or None if it can't be imported."""
        parts = file.removesuffix(".py").split("/")
        if parts[-1] == "__init__":
            parts.pop()
        if parts and parts[0] == "src" and not (self.root / "src" / "__init__.py").exists():
            parts.pop(0)
        return ".".join(parts) if parts and all(part.isidentifier() for part in parts) else None


def python_files(root: Path, inner: list[str]) -> Iterator[str]:
    """Yields paths in the project, those of its folder first. Adds folders that are other projects to `inner`."""
    folders = [""]
    for number, folder in enumerate(folders):
        if number >= MOST_FOLDERS:
            return
        files, below = listed(root / folder)
        if folder and PROJECT_FILE in files:
            inner.append(folder.rstrip("/"))
            continue
        yield from (f"{folder}{name}" for name in files if name.endswith(".py"))
        folders += [f"{folder}{name}/" for name in below]


def listed(folder: Path) -> tuple[list[str], list[str]]:
    """Returns the names of the files and of the folders that may hold code. Follows no links to folders."""
    files, folders = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    files.append(entry.name)
    except OSError:
        return [], []
    return sorted(files), sorted(name for name in folders if not name.startswith(".") and name not in WITHOUT_CREWS)


def read(path: Path, left: int) -> bytes:
    """Returns the content of a file of at most `left` bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        if found.st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST >> 10} KB")
        if found.st_size > left:
            raise ValueError(f"the Python files before it have {LARGEST_SUM >> 20} MB together")
        return file.read(left)


def parsed(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for example of an invalid escape in a string
        for _ in range(PARSES):
            with suppress(SystemError):
                return ast.parse(source)
        return ast.parse(source)


def in_words(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    if isinstance(error, OSError):
        return str(error.strerror)
    if isinstance(error, MemoryError):
        return "it takes too much memory, or its expressions are too deep in one another"
    return str(error) or "its expressions are too deep in one another"
