"""Finds what the modules of a project keep of the working folder that they were imported in.

That folder is gone when the process takes another run. An example is `OUTPUT = Path.cwd() / "out"`.
"""

# See docs/decisions/child.md#a-reused-child-gets-a-new-folder

from __future__ import annotations

import sys
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from windlass_child.process.error_text import inside

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

DEEPEST = 6
"""Containers and objects in each other, from a variable of a module."""
MOST = 20_000
"""Values that one search looks at."""


def kept(folder: str, root: str, moved: Collection[object]) -> list[str]:
    """Returns the variables of the project's modules that hold a place in the folder. `moved` are objects whose places
    are set for each run.
    """
    search = Search(folder, root, moved)
    return [
        f"{name}.{variable}"
        for name, module in search.modules.items()
        for variable, value in list(vars(module).items())
        if not variable.startswith("__") and search.finds(value, DEEPEST)
    ]


class Search:
    def __init__(self, folder: str, root: str, moved: Collection[object]) -> None:
        self._folder = folder
        self._seen = {id(one) for one in moved}
        self.modules = {name: one for name, one in list(sys.modules.items()) if is_of_project(one, folder, Path(root))}

    def finds(self, value: Any, depth: int) -> bool:
        kind = type(value)
        if issubclass(kind, (str, PurePath)):
            return self._folder in str(value)
        if depth == 0 or id(value) in self._seen or len(self._seen) > MOST:
            return False
        self._seen.add(id(value))
        return any(self.finds(one, depth - 1) for one in self._inside(value, kind))

    def _inside(self, value: Any, kind: type) -> Iterable[Any]:
        if issubclass(kind, dict):
            return list(dict.values(value))
        if issubclass(kind, (list, tuple, set, frozenset)):
            return list(value)
        if issubclass(kind, ModuleType) or (
            issubclass(kind, (type, FunctionType)) and value.__module__ not in self.modules
        ):
            return []
        if issubclass(kind, FunctionType):
            return [value.__defaults__, value.__kwdefaults__, getattr(value, "__wrapped__", None)]
        return [attributes_of(value, name) for name in ("__dict__", "__pydantic_private__")]


def is_of_project(module: object, folder: str, root: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and (file.startswith(f"{folder}/") or inside(file, root) is not None)


def attributes_of(value: object, name: str) -> dict[str, Any]:
    try:
        found = object.__getattribute__(value, name)  # a proxy has one of its own
    except (AttributeError, TypeError):
        return {}
    return dict(found) if found else {}
