"""Finds data that a module keeps from one kickoff to the next, where `reuse` lets kickoffs share a process."""

from __future__ import annotations

import ast
from itertools import islice
from typing import TYPE_CHECKING

from windlass.projects.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.projects.kinds.code import Code, Module

CODE = "kept_data"
MOST = 20
CONTAINERS = {"list", "dict", "set", "defaultdict", "deque", "Counter", "OrderedDict"}
CHANGING = {"append", "appendleft", "add", "extend", "insert", "setdefault", "update"}
"""The methods that add to a container."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def kept_data(code: Code) -> list[Finding]:
    """Returns a warning for each list, dict or set of a module to which a function of this module adds."""
    return list(islice((one for module in code.modules.values() for one in of_module(module)), MOST))


def of_module(module: Module) -> Iterator[Finding]:
    names = set(containers(module))
    for function in (node for node in ast.walk(module.tree) if names and isinstance(node, FUNCTIONS)):
        own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        own |= {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
        for node in ast.walk(function):
            if (name := changed_by(node)) in names and name not in own:
                names.discard(name)
                message = f"{function.name}() adds to {name}, which the module keeps: with reuse, kickoffs share it."
                hint = f"Make {name} in the function, or remove reuse from [tool.windlass]."
                yield Finding(CODE, Level.WARNING, message, module.file, getattr(node, "lineno", None), hint)


def containers(module: Module) -> Iterator[str]:
    for node in module.statements:
        value = getattr(node, "value", None)
        called = getattr(value.func, "id", getattr(value.func, "attr", "")) if isinstance(value, ast.Call) else ""
        if isinstance(value, ast.List | ast.Dict | ast.Set) or called in CONTAINERS:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            yield from (one.id for one in targets if isinstance(one, ast.Name))


def changed_by(node: ast.AST) -> str | None:
    """Returns the name of the container to which this node adds: `name.append(...)`, `name[...] = ...`."""
    found: ast.AST | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        found = node.func.value
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        found = node.value
    return found.id if isinstance(found, ast.Name) else None
