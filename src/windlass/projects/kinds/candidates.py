"""Finds the crews, flows and functions in the syntax trees of a project that uses crewai."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from windlass.projects.kinds.code import Code, Definition, Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KICKOFFS = {"kickoff", "kickoff_async", "akickoff", "kickoff_for_each", "kickoff_for_each_async", "akickoff_for_each"}
FLOW_METHODS = {"start", "listen", "router"}
OTHER_COMMANDS = {"train", "replay", "test", "plot", "plot_flow", "chat", "evaluate"}
"""Functions of crewai's templates that do something else than a kickoff."""

MOST_CALLS = 5
"""Functions that call one another to make a crew."""

FORMS = {
    "crew class": "a class with @CrewBase",
    "plain class": "a class with the method {method}()",
    "crew": "a crew that the module makes",
    "factory": "a function that returns a crew",
    "flow class": "a flow",
    "flow": "a flow that the module makes",
    "function": "a function that runs a crew",
    "maker": "a class that makes a crew in {method}()",
}
KINDS = {
    "crew class": "crew", "plain class": "crew", "crew": "crew", "factory": "crew",
    "flow class": "flow", "flow": "flow", "function": "function",
}  # fmt: skip
"""The kind of project for each form, in the order in which forms of one module precede each other."""


@dataclass(frozen=True)
class Candidate:
    """A part of the code that may be the entrypoint.

    `unfit` is the reason why it can't be one as it is, or "". `needs` are the arguments without a default, and
    `method_needs` those of `method`. `uses` are the (module, name) pairs that its code names.
    """

    form: str
    module: str
    name: str
    file: str
    line: int
    method: str = ""
    unfit: str = ""
    needs: tuple[str, ...] = ()
    method_needs: tuple[str, ...] = ()
    uses: frozenset[tuple[str, str]] = field(default_factory=frozenset, compare=False)

    @property
    def kind(self) -> str:
        return KINDS.get(self.form, "")

    @property
    def entrypoint(self) -> str:
        return f"{self.module}:{self.name}"

    def __str__(self) -> str:
        reason = f", but {self.unfit}" if self.unfit else ""
        return f"{self.name} ({self.file}:{self.line}, {FORMS[self.form].format(method=self.method)}{reason})"


class Candidates:
    def __init__(self, code: Code) -> None:
        self.code = code

    @cached_property
    def all(self) -> list[Candidate]:
        """All candidates, also unfit ones, by file and line."""
        found = [one for module in self.code.modules.values() for one in ModuleReader(module, self).candidates()]
        makers = {(one.module, one.name): one for one in found if one.form.endswith(" class") or one.form == "factory"}
        return [one for one in found if one.form not in {"crew", "flow"} or not repeats(one, makers)]

    @cached_property
    def fit(self) -> list[Candidate]:
        return [one for one in self.all if not one.unfit and one.kind]

    @cached_property
    def flows(self) -> set[tuple[str, str]]:
        return {(name, node.name) for name, node in self._classes() if is_flow(node)}

    @cached_property
    def crews(self) -> set[tuple[str, str]]:
        return {(name, node.name) for name, node in self._classes() if "CrewBase" in marks(node)}

    @cached_property
    def factories(self) -> set[tuple[str, str]]:
        """Returns the functions that return a crew, also those with parameters."""
        return {
            (name, node.name)
            for name, module in self.code.modules.items()
            for node in module.definitions.values()
            if isinstance(node, ast.FunctionDef) and returns_crew(node, makes=any(map(is_crew, calls_in(node))))
            if not any(map(is_kickoff, calls_in(node)))
        }

    def returned_by(self, entrypoint: str) -> str | None:
        """Returns "crew" or "flow" for a function "module:name" that makes one, runs nothing and has no parameters.

        Returns None for all other entrypoints. Each `return` of the function must return such an object.
        """
        name, _, attribute = entrypoint.partition(":")
        module = self.code.modules.get(name)
        return None if module is None else self._made_by(self.resolved(module, attribute), 0)

    def _made_by(self, place: tuple[str, str], depth: int) -> str | None:
        """`depth` is the number of functions that call one another, up to this one."""
        module = self.code.modules.get(place[0])
        node = module.definitions.get(place[1]) if module else None
        if module is None or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or depth > MOST_CALLS:
            return None
        if node.decorator_list or (depth == 0 and has_parameters(node.args)) or any(map(is_kickoff, calls_in(node))):
            return None
        body = list(own_nodes(node))
        values = [one.value for one in body if isinstance(one, ast.Return)]
        kinds = {None if value is None else self._kind_of_value(module, value, body, depth) for value in values}
        return kinds.pop() if len(kinds) == 1 else None

    def _kind_of_value(self, module: Module, value: ast.expr, body: list[ast.AST], depth: int) -> str | None:
        """Returns what an expression of the function with this body makes."""
        if isinstance(value, ast.Name):
            values = [*assigned(body, value.id), *(assigned(module.statements, value.id))]
            kinds = {self._kind_of_call(module, one, depth) for one in values}
            return kinds.pop() if len(kinds) == 1 else None
        return self._kind_of_call(module, value.value if isinstance(value, ast.Await) else value, depth)

    def _kind_of_call(self, module: Module, call: ast.expr | None, depth: int) -> str | None:
        if not isinstance(call, ast.Call):
            return None
        made = self.resolved(module, root_name(call.func))
        if is_crew(call) or (last_name(call.func) == "crew" and made in self.crews):
            return "crew"
        if not isinstance(call.func, ast.Name):
            return None
        return "flow" if made in self.flows else self._made_by(made, depth + 1)

    def _classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        for name, module in self.code.modules.items():
            for node in module.definitions.values():
                if isinstance(node, ast.ClassDef):
                    yield name, node

    def resolved(self, module: Module, name: str) -> tuple[str, str]:
        """Returns the module that defines a name of `module`, following imports within the project."""
        for _ in range(5):
            if name in module.definitions or name not in module.imports:
                break
            source, imported = module.imports[name]
            beside = self.code.modules.get(f"{module.package}.{source}")  # as a script imports what is in its folder
            found = self.code.modules.get(source, beside)
            if not imported or found is None:
                return source, imported
            module, name = found, imported
        return module.name, name


def repeats(one: Candidate, makers: dict[tuple[str, str], Candidate]) -> bool:
    """Returns whether an object is made by a class or function that can be the entrypoint itself."""
    return any(used in makers and not makers[used].unfit for used in one.uses)


class ModuleReader:
    """Finds the candidates of one module."""

    def __init__(self, module: Module, project: Candidates) -> None:
        self._module = module
        self._project = project

    def candidates(self) -> Iterator[Candidate]:
        for node in self._module.statements:
            if isinstance(node, ast.ClassDef):
                yield from self._of_class(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._of_function(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                yield from self._of_assignment(node)

    def _candidate(self, form: str, node: ast.stmt, name: str, **more: Any) -> Candidate:
        uses = frozenset(self._project.resolved(self._module, one) for one in names_in(node))
        return Candidate(form, self._module.name, name, self._module.file, node.lineno, uses=uses, **more)

    def _of_class(self, node: ast.ClassDef) -> Iterator[Candidate]:
        needs = wanted_by_constructor(node)
        built = {"needs": needs, "unfit": f"its constructor needs {', '.join(needs)}" if needs else ""}
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        marked = next((one for one in methods if "crew" in marks(one) or one.name == "crew"), None)
        if marked:
            built |= {"method": marked.name, "method_needs": tuple(required(marked.args)[1:])}
        if "CrewBase" in marks(node):
            yield self._candidate("crew class", node, node.name, **built)
        elif is_flow(node):
            yield self._candidate("flow class", node, node.name, **built)
        elif marked and self._makes_crew(node):
            yield self._candidate("plain class", node, node.name, **built)
        elif maker := next((one for one in methods if self._makes_crew(one)), None):
            built["unfit"] = built["unfit"] or "no option names a method"
            call = () if maker.name == "__init__" else tuple(required(maker.args)[1:])
            yield self._candidate("maker", node, node.name, method=maker.name, method_needs=call, **built)

    def _of_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Candidate]:
        if node.name.startswith("_") or node.name in OTHER_COMMANDS or node.decorator_list:
            return
        needs, kicks_off = required(node.args), any(map(is_kickoff, calls_in(node)))
        asks = asks_outside(node)
        if returns_crew(node, makes=self._makes_crew(node)) and not kicks_off and not needs:
            yield self._candidate("factory", node, node.name, unfit=asks)
        elif kicks_off or (self._makes_crew(node) and returns_crew(node, makes=True)):
            yield self._candidate("function", node, node.name, unfit=asks, needs=tuple(needs))

    def _of_assignment(self, node: ast.Assign | ast.AnnAssign) -> Iterator[Candidate]:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Name) or not isinstance(node.value, ast.Call):
            return
        made = self._project.resolved(self._module, root_name(node.value.func))
        by_class = last_name(node.value.func) == "crew" and made in self._project.crews
        if is_crew(node.value) or by_class or made in self._project.factories:
            yield self._candidate("crew", node, target.id)
        elif made in self._project.flows and isinstance(node.value.func, ast.Name):
            yield self._candidate("flow", node, target.id)

    def _makes_crew(self, node: ast.AST) -> bool:
        return any(is_crew(call) or self._calls_factory(call) for call in calls_in(node))

    def _calls_factory(self, call: ast.Call) -> bool:
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        return bool(name) and self._project.resolved(self._module, name) in self._project.factories


def is_flow(node: ast.ClassDef) -> bool:
    """Returns whether a class inherits from Flow and has methods of a flow. A flow does not inherit such methods."""
    based = any(last_name(base.value if isinstance(base, ast.Subscript) else base) == "Flow" for base in node.bases)
    return based and any(marks(one) & FLOW_METHODS for one in node.body if isinstance(one, Definition))


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def is_crew(call: ast.Call) -> bool:
    return last_name(call.func) == "Crew"


def is_kickoff(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in KICKOFFS


def returns_crew(node: ast.FunctionDef | ast.AsyncFunctionDef, *, makes: bool) -> bool:
    if node.returns is not None:
        named = node.returns.value if isinstance(node.returns, ast.Constant) else last_name(node.returns)
        return named == "Crew"
    return makes and any(isinstance(one, ast.Return) and one.value is not None for one in ast.walk(node))


def asks_outside(node: ast.AST) -> str:
    """Returns why a kickoff can't run a function: it reads the command line or a keyboard. Returns "" for others."""
    if any(isinstance(call.func, ast.Name) and call.func.id == "input" for call in calls_in(node)):
        return "it calls input()"
    if any(isinstance(one, ast.Attribute) and dotted(one) == "sys.argv" for one in ast.walk(node)):
        return "it reads sys.argv"
    if any(last_name(call.func) in {"ArgumentParser", "parse_args"} for call in calls_in(node)):
        return "it reads the command line"
    return ""


def wanted_by_constructor(node: ast.ClassDef) -> tuple[str, ...]:
    makers = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    return next((tuple(required(one.args)[1:]) for one in makers), ())


def required(arguments: ast.arguments) -> list[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    without = positional[: len(positional) - len(arguments.defaults)]
    named = [one for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    return [one.arg for one in (*without, *named)]


def has_parameters(arguments: ast.arguments) -> bool:
    return any((arguments.posonlyargs, arguments.args, arguments.vararg, arguments.kwonlyargs, arguments.kwarg))


def own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yields the nodes of a function's body, without those of the functions and classes in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Definition | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def assigned(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.expr | None]:
    """Yields the values that these statements assign to a name."""
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            yield getattr(node, "value", None)


def names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def marks(node: Definition) -> set[str]:
    """Returns the last names of its decorators: "crew" for @crew, @project.crew and @crew(...)."""
    return {last_name(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list}


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def root_name(node: ast.expr) -> str:
    """Returns "a" for a.b and for a().b()."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return getattr(node, "id", "")


def dotted(node: ast.expr) -> str:
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")
