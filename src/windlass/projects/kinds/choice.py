"""Chooses the crew, flow or function that a project serves, from its code (docs/concepts/projects.md, "Order").

The order: the object on the command line; the function of a command such as `run_crew`; the block below
`if __name__ == "__main__"` of the main module; then flows before crews before functions, those in the usual modules
first. Two that fit equally are an error that lists both.
"""

# See docs/decisions/deployments.md#an-object-of-the-code-is-chosen-by-a-documented-order

from __future__ import annotations

import ast
import shlex
from typing import TYPE_CHECKING

from windlass.projects.kinds.candidates import KINDS, Candidate, Candidates, names_in
from windlass.projects.kinds.code import Code, is_main_guard
from windlass.projects.kinds.declared import FILE, Unrecognised
from windlass_child.masking.server_paths import is_deployed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from windlass.projects.kinds.code import Module
    from windlass.projects.kinds.declared import Declared

COMMANDS = ("run_crew", "kickoff", "run_flow", "run", "plot", "plot_flow")
"""Commands of crewai's templates, of all releases."""
FUNCTIONS = ("main", "run", "kickoff", "run_crew", "build_crew", "create_crew", "make_crew", "get_crew")
"""Names of functions that precede others of the same module."""
MODULES = {"crew": ("crew", "main", "app"), "flow": ("main", "flow", "app"), "function": ("main", "crew", "run", "app")}
"""The usual modules for each kind, in the project's package and in its folder."""
OPTIONS = {"crew": "crew", "flow": "flow", "function": "entrypoint"}
MOST_LISTED = 8
MOST_STEPS = 200
MOST_PARTS = 5000


class Choice:
    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._code = declared.code
        self._candidates = Candidates(declared.code)

    def of(self, kinds: Iterable[str]) -> Candidate | None:
        """Returns the candidate of the first of these kinds that has one. Raises Unrecognised for several."""
        kinds = list(kinds)
        if self._declared.target is not None:
            return self._targeted(kinds, *self._declared.target)
        if self._holds_projects:
            return None
        if (found := self._by_command() or self._by_main_block()) and found.kind in kinds:
            return found
        self._refuse_unread()
        return self._only(self._candidates.fit, kinds)

    def entrypoint(self, found: Candidate) -> str:
        """Returns "module" for the only class of its module, and else "module:name"."""
        form, module = found.form, found.module
        others = [one for one in self._candidates.all if (one.kind, one.module) == (found.kind, module)]
        alone = form in {"crew class", "flow class"} and len(others) == 1 and self._declared.target is None
        return module if alone else found.entrypoint

    def returned_by(self, entrypoint: str) -> str | None:
        """Returns the kind, "crew" or "flow", of what a function returns that makes it and does not run it."""
        return self._candidates.returned_by(entrypoint)

    def everything(self) -> str:
        """Returns a list of all parts of the code that make crews and flows, for a message."""
        return listed(self._candidates.all)

    def nothing_found(self) -> Unrecognised:
        """Returns the error for a project without a crew, flow or function. It lists the parts that don't fit."""
        unfit, files = self._candidates.all, len(self._code.modules)
        places = f"no crew, flow or function found in {self._declared.root}"
        if unfit and not self._holds_projects:
            return Unrecognised(f"{places}: {listed(unfit)}.", self._write_a_function(unfit[0]))
        if inner := self._code.inner_projects:
            return Unrecognised(
                f"{places}. These folders in it are projects: {', '.join(inner[:MOST_LISTED])}.",
                "Give the folder of one of them; of a git repository, with --subfolder.",
            )
        if files:
            return Unrecognised(f"{places}: its Python files ({files}) make none.", "")
        file, root = self._declared.file, self._declared.root
        if file.exists():
            return Unrecognised(f"{file} declares no crew, and {root} has no Python file that makes one.", "")
        return Unrecognised(f"there is no {FILE} and no Python file in {root}.", "", "pyproject")

    @property
    def _holds_projects(self) -> bool:
        """Whether this is no project itself, and folders in it are."""
        return bool(self._code.inner_projects) and not self._declared.file.exists()

    def _only(self, fit: list[Candidate], kinds: list[str]) -> Candidate | None:
        for kind in kinds:
            left = self._first([one for one in fit if one.kind == kind], kind)
            if "function" in kinds and (function := self._function_of_all(left)):
                return function
            if len(left) > 1:
                raise self._several(left, kind)
            if left:
                return left[0]
        return None

    def _function_of_all(self, several: list[Candidate]) -> Candidate | None:
        """Returns the function that runs all of these, if it is in a usual module and has a usual name.

        For a single one, it must take inputs, and that one must be a function too.
        """
        wanted = {(one.module, one.name) for one in several}
        usual = self._usual("function")
        functions = [one for one in self._candidates.fit if one.form == "function" and wanted <= one.uses]
        found = [one for one in functions if one.module in usual and one.name in FUNCTIONS]
        if len(several) == 1:
            found = [one for one in found if one.needs and several[0].form == "factory"]
        return found[0] if several and found else None

    def _first(self, found: list[Candidate], kind: str) -> list[Candidate]:
        """Returns those in the first usual module that has any, of the first form that is there."""
        for module in self._usual(kind):
            if there := [one for one in found if one.module == module]:
                found = there
                break
        form = first_form(found)
        found = [one for one in found if one.form == form]
        named = [one for name in FUNCTIONS for one in found if one.name == name] if kind == "function" else []
        return named[:1] or found

    def _usual(self, kind: str) -> list[str]:
        packages = dict.fromkeys(
            [*(name.rpartition(".")[0] for name in self._commands().values()), self._declared.package]
        )
        return [f"{package}.{name}".lstrip(".") for package in (*packages, "") for name in MODULES[kind]]

    def _commands(self) -> dict[str, str]:
        """Returns the commands of the project that may start a crew, with their modules, the usual ones first."""
        names = dict.fromkeys([*COMMANDS, self._declared.name, self._declared.package])
        scripts = self._declared.scripts
        others = [name for name, (_, function) in scripts.items() if function in FUNCTIONS]
        return {name: scripts[name][0] for name in dict.fromkeys([*names, *others]) if name in scripts}

    def _by_command(self) -> Candidate | None:
        for name, module_name in self._commands().items():
            module, function = self._code.modules.get(module_name), self._declared.scripts[name][1]
            node = module.definitions.get(function) if module else None
            if module is None or node is None:
                continue
            if found := self._reached(module, node):
                return found
            own = [one for one in self._candidates.fit if (one.module, one.name) == (module.name, function)]
            if own:
                return own[0]
        return None

    def _by_main_block(self) -> Candidate | None:
        usual = [self._code.modules.get(name) for name in self._usual("function")]
        for module in filter(None, usual):
            if found := self._of_main_block(module):
                return found
        return None

    def _of_main_block(self, module: Module) -> Candidate | None:
        for node in module.tree.body:
            if isinstance(node, ast.If) and is_main_guard(node.test) and (found := self._reached(module, node)):
                return found
        return None

    def _reached(self, module: Module, node: ast.AST) -> Candidate | None:
        """Returns the only flow that this code names, or else the only crew, also through functions that it calls."""
        fit = {(one.module, one.name): one for one in self._candidates.fit if one.kind != "function"}
        waiting = [(module, node)]
        seen: set[tuple[str, str]] = set()
        found: list[Candidate] = []
        for _ in range(MOST_STEPS):
            if not waiting:
                break
            inside, code = waiting.pop()
            for name in sorted(names_in(code)):
                place = self._candidates.resolved(inside, name)
                if place in seen:
                    continue
                seen.add(place)
                if place in fit:
                    found.append(fit[place])
                elif definition := self._definition(place):
                    waiting.append(definition)
        for kind in ("flow", "crew"):
            if len(there := [one for one in found if one.kind == kind]) >= 1:
                return there[0] if len(there) == 1 else None
        return None

    def _definition(self, place: tuple[str, str]) -> tuple[Module, ast.AST] | None:
        module = self._code.modules.get(place[0])
        node = module.definitions.get(place[1]) if module else None
        return (module, node) if module and node else None

    def _targeted(self, kinds: list[str], file: str | None, name: str | None) -> Candidate | None:
        """Chooses among the objects of a file, or by name. A function that was named may be any function."""
        here = [one for one in self._candidates.all if file in (None, one.file)]
        where = file or str(self._declared.root)
        if name is None:
            module = next((one for one in self._code.modules.values() if one.file == file), None)
            if module is None:
                raise Unrecognised(f"{where} can't be read: {self._code.unread.get(where, 'it is no module')}.", "")
            found = self._of_file(module, [one for one in here if not one.unfit], kinds)
            if found is None:
                raise Unrecognised(
                    f"no crew, flow or function found in {where}{': ' if here else ''}{listed(here)}.",
                    self._write_a_function(here[0]) if here else "",
                )
            return found
        named = [one for one in here if name in (one.name, one.entrypoint)] or self._other_objects(file, name)
        if not named:
            found_here = f" There are: {listed(here)}." if here else ""
            raise Unrecognised(
                f"{where} has no {name} to serve.{found_here}", "Name one of its crews, flows or functions."
            )
        if len(named) > 1:
            raise self._several(named, named[0].kind)
        if not named[0].kind or (named[0].unfit and named[0].kind != "function"):
            raise Unrecognised(f"{named[0]}.", self._write_a_function(named[0]))
        return named[0] if named[0].kind in kinds else None

    def _of_file(self, module: Module, fit: list[Candidate], kinds: list[str]) -> Candidate | None:
        found = self._only(fit, [kind for kind in kinds if kind != "function"]) or self._of_main_block(module)
        for function in (one for one in fit if one.kind == "function"):
            found = found or self._reached(module, module.definitions[function.name])
        return found if found and found.kind in kinds else self._only(fit, kinds)

    def _other_objects(self, file: str | None, name: str) -> list[Candidate]:
        found = []
        for module in self._code.modules.values():
            own = name.removeprefix(f"{module.name}:")
            node = module.definitions.get(own) if file in (None, module.file) else None
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(Candidate("function", module.name, own, module.file, node.lineno))
        return found

    def _refuse_unread(self) -> None:
        """Raises Unrecognised when a usual module can't be parsed: the crew or flow in it would be passed over."""
        usual = {file for kind in MODULES for name in self._usual(kind) for file in files_of(name)}
        for file, fault in self._code.unread.items():
            if file in usual:
                raise Unrecognised(
                    f"{file} can't be parsed: {fault}.",
                    f'Correct it, or name the crew in {FILE}: [tool.windlass] crew = "module:Class".',
                    "load_failed",
                )

    def _several(self, found: list[Candidate], kind: str) -> Unrecognised:
        message = f"{self._declared.root} has more than one {kind}: {listed(found)}."
        add, deploys = self._add(found[0].kind, found[0].entrypoint), "; ".join(self._deploys(found))
        if is_deployed(self._declared.root):  # its folder may be a repository, which is not on the deployer's machine
            hint = f"{add}, and deploy the project again. To deploy each under its own name: {deploys}"
            return Unrecognised(message, hint, "several_crews")
        places = [shlex.quote(f"{self._declared.root / one.file}:{one.name}") for one in found[:MOST_LISTED]]
        each = f"To serve each under its own name: windlass dev {' '.join(places)}"
        hint = f"{add}, or name one: windlass dev {places[0]}. {each}, or {deploys}"
        return Unrecognised(message, hint, "several_crews")

    def _deploys(self, found: list[Candidate]) -> list[str]:
        """Returns the commands that deploy each of these under a name of its own."""
        names = [one.name for one in found]
        commands = [
            ["windlass", "deploy", str(self._declared.root), "--entrypoint", f"{one.file}:{one.name}", "--name",
             one.name if names.count(one.name) == 1 else f"{one.module}-{one.name}"]
            for one in found[:MOST_LISTED]
        ]  # fmt: skip
        return list(map(shlex.join, commands))

    def _add(self, kind: str, entrypoint: str) -> str:
        line = f'{OPTIONS[kind]} = "{entrypoint}"'
        if self._declared.file.exists():
            return f"Add to {FILE}: [tool.windlass] {line}"
        return f"Create {FILE} with the lines [tool.windlass] and {line}"

    def _write_a_function(self, found: Candidate) -> str:
        """Returns the hint for a project whose crew is made by code that can't be an entrypoint."""
        taken = ", ".join(dict.fromkeys([*found.needs, *found.method_needs]))
        made, call = (", ".join(f"{one}={one}" for one in names) for names in (found.needs, found.method_needs))
        if found.form == "flow class":  # a function's result that is a flow or a crew is run
            code = f"def kickoff({taken}): return {found.name}({made})"
        elif found.method and found.method != "__init__":
            code = f"def kickoff({taken}): return {found.name}({made}).{found.method}({call})"
        else:
            code = "def kickoff(topic): ..."
        return f"Write a function in {found.file}: `{code}`. {self._add('function', f'{found.module}:kickoff')}"


def used_classes(root: Path, entrypoint: str) -> list[str] | None:
    """Returns the classes with @CrewBase that the code of an entrypoint names, also through other code, as "file:line".

    Returns None if the entrypoint is in no file that can be parsed, or if its code is too large.
    """
    code = Code(root)
    candidates = Candidates(code)
    name, _, attribute = entrypoint.partition(":")
    if (module := code.modules.get(name)) is None:
        return None
    alone = [one.name for one in candidates.all if one.module == name and one.form in {"crew class", "flow class"}]
    start = attribute or (alone[0] if len(alone) == 1 else "")
    waiting: list[tuple[Module, ast.AST]] = [(module, module.definitions.get(start, module.tree))]
    found: dict[str, None] = {}
    seen = {(name, start)}
    for inside, node in waiting:
        if len(waiting) > MOST_PARTS:
            return None
        if isinstance(node, ast.ClassDef) and (inside.name, node.name) in candidates.crews:
            found[f"{inside.file}:{node.lineno}"] = None
        names = names_in(node) | (inside.imports.keys() if node is inside.tree else set())
        for place in sorted(candidates.resolved(inside, named) for named in names):
            if place not in seen:
                seen.add(place)
                waiting += part_of(code, place)
    return list(found)


def part_of(code: Code, place: tuple[str, str]) -> list[tuple[Module, ast.AST]]:
    """Returns the definition at a place, or a whole module for a place that is one."""
    name, attribute = place
    module = code.modules.get(name)
    if module and attribute in module.definitions:
        return [(module, module.definitions[attribute])]
    whole = code.modules.get(f"{name}.{attribute}") if attribute else module
    return [(whole, whole.tree)] if whole else []


def first_form(found: list[Candidate]) -> str | None:
    forms = {one.form for one in found}
    return next((form for form in KINDS if form in forms), None)


def files_of(module: str) -> list[str]:
    path = module.replace(".", "/")
    return [f"{folder}{path}.py" for folder in ("", "src/")]


def listed(found: list[Candidate]) -> str:
    more = f"; and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return "; ".join(str(one) for one in found[:MOST_LISTED]) + more
