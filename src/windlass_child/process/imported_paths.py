"""Moves the paths that modules keep since they were imported in a zygote into the folder of the run.

Modules compute paths when they are imported: `CACHE = Path.home() / ".cache"`, a default of a parameter, an attribute
of a class. In a zygote these paths are in the folder of the zygote. All its children would share the files there, so
that one crew could leave a model, a configuration or a plug-in for another one.
"""

# See docs/decisions/child.md#paths-that-modules-keep-are-moved-in-each-child

from __future__ import annotations

import contextlib
import sys
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass_child.protocol.working_folder import HOME, STORAGE, TEMPORARY, WORK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEEPEST = 3
"""Containers and objects in each other, from a variable of a module."""
LARGEST = 1000
"""Entries of a container that is searched."""


DEFAULTS = ("__defaults__", "__kwdefaults__")
WITHOUT_PATHS = {
    type(None), bool, int, float, bytes, property, ModuleType, BuiltinFunctionType, GetSetDescriptorType,
    MethodDescriptorType, MemberDescriptorType, WrapperDescriptorType,
}  # fmt: skip


class Found(NamedTuple):
    """A value with a path in `folder`. `put(owner, key, value)` replaces it. `variable` is the variable
    of the module that holds it: "module.name".
    """

    folder: str
    variable: str
    value: Any
    put: Callable[[Any, Any, Any], None]
    owner: Any
    key: Any


class Search:
    """Finds the values of modules that hold a path in `folder`. It runs no code of the modules."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: set[int] = set()
        self._variable = self._module = ""
        self.found: list[Found] = []

    def search(self, modules: Iterable[Any]) -> list[Found]:
        for module in modules:
            if isinstance(module, ModuleType):
                self._module = module.__dict__.get("__name__", "")
                for name, value in list(module.__dict__.items()):
                    self._variable = f"{self._module}.{name}"
                    self._look(value, dict.__setitem__, module.__dict__, name, DEEPEST)
        return self.found

    def _look(self, value: Any, put: Callable[[Any, Any, Any], None], owner: Any, key: Any, depth: int) -> None:
        kind = type(value)
        if kind in WITHOUT_PATHS:
            return
        if self._is_path(value, kind) or (kind is tuple and any(self._is_path(one, type(one)) for one in value)):
            self.found.append(Found(self._folder, self._variable, value, put, owner, key))
        elif depth and kind is not str and id(value) not in self._seen:
            self._seen.add(id(value))
            self._look_inside(value, kind, depth - 1)

    def _is_path(self, value: Any, kind: type) -> bool:
        return issubclass(kind, (str, PurePath)) and self._folder in str(value)

    def _look_inside(self, value: Any, kind: type, depth: int) -> None:
        if issubclass(kind, dict):
            self._look_at(list(dict.items(value)), dict.__setitem__, value, depth)
        elif issubclass(kind, list):
            self._look_at(list(enumerate(list.__iter__(value))), list.__setitem__, value, depth)
        elif kind is FunctionType:
            self._look_at([(name, getattr(value, name)) for name in DEFAULTS], setattr, value, depth)
        elif issubclass(kind, (classmethod, staticmethod)):
            self._look(value.__func__, setattr, value, "", depth + 1)
        elif issubclass(kind, type):
            attributes = type.__getattribute__(value, "__dict__")
            if attributes.get("__module__") == self._module:  # others are searched with the module that defines them
                self._look_at(list(attributes.items()), type.__setattr__, value, depth)
        elif attributes := attributes_of(value):
            self._look_at(list(attributes.items()), dict.__setitem__, attributes, depth)

    def _look_at(
        self, entries: list[tuple[Any, Any]], put: Callable[[Any, Any, Any], None], owner: Any, depth: int
    ) -> None:
        for key, one in entries if len(entries) <= LARGEST else ():
            self._look(one, put, owner, key, depth)


def attributes_of(value: object) -> dict[str, Any]:
    try:
        found = object.__getattribute__(value, "__dict__")  # a proxy has one of its own
    except (AttributeError, TypeError):
        return {}
    return found if type(found) is dict else {}


_found: list[Found] = []
_searched: set[str] = set()


def find(folder: str) -> None:
    """Finds the paths in `folder`, that of the zygote, when modules are imported there. It searches only modules that
    were imported since the last call.
    """
    new = {name: module for name, module in list(sys.modules.items()) if name not in _searched}
    _searched.update(new)
    _found.extend(Search(folder).search(new.values()))


def move(folder: str, environment: Mapping[str, str]) -> None:
    """Replaces these paths by those at the same place in the folder of a run. A path in the home is then in HOME of the
    environment.
    """
    for one in _found:
        places = [(f"{one.folder}/{HOME}", environment.get("HOME", f"{folder}/{HOME}"))]
        places += [(f"{one.folder}/{name}", f"{folder}/{name}") for name in (WORK, TEMPORARY, STORAGE)]
        with contextlib.suppress(AttributeError, TypeError, IndexError):  # a class that can't be changed
            one.put(one.owner, one.key, moved(one.value, places))


def moved(value: Any, places: list[tuple[str, str]]) -> Any:
    if isinstance(value, tuple):
        return tuple(moved(one, places) if isinstance(one, (str, PurePath)) else one for one in value)
    text = str(value)
    for before, after in places:
        text = text.replace(before, after)
    return type(value)(text) if isinstance(value, PurePath) else text
