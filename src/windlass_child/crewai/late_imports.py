from __future__ import annotations

import contextlib
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


@contextlib.contextmanager
def once_imported(name: str, act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` at once if the module is imported already.

    Otherwise calls `act` right after code inside the `with` block imports the module, before that import returns.
    """
    if name in sys.modules:
        act()
        yield
        return
    finder = Awaiting(name, act)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class Awaiting(MetaPathFinder):
    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            # the loader is patched and not replaced, because other code may expect the module's original loader
            spec.loader.exec_module = followed(spec.loader.exec_module, self._act)  # type: ignore[assignment]  # of this one object
        return spec


def followed(execute: Callable[[ModuleType], None], act: Callable[[], None]) -> Callable[[ModuleType], None]:
    def execute_and_act(module: ModuleType) -> None:
        execute(module)
        act()

    return execute_and_act
