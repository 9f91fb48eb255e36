"""No regular expression of the product takes long on a text of a crew, a project or another server."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Hashable
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from windlass.api.crew_api.schemas import _of_form
from windlass.projects import git, packages
from windlass.projects.kinds import KINDS
from windlass.secrets.provider import Meaning
from windlass.secrets.providers.configuration import form

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = Path(__file__).with_name("hostile_texts.py")
METHODS = ("search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn")
ARGUMENTS_BEFORE_FLAGS = {"compile": 1, "split": 3, "sub": 4, "subn": 4}
TAKE_A_PATTERN: dict[Any, int] = {form: re.ASCII, _of_form: re.ASCII, Meaning: re.IGNORECASE}
"""Functions of the product whose argument is a pattern, with the flags that they use."""
LINEAR = {"StringConstraints", "Path", "InQuery", "str_schema"}
"""Functions whose argument `pattern` is for the linear engine of pydantic."""

GLOBS = [(translate("*a*b"), "match"), (translate("*[!a]?*[!a]"), "match")]
KEY = r"""\s*["']?k["']?\s*[.=]"""
MADE_AT_RUN_TIME: dict[tuple[str, str], list[tuple[str, str]]] = {
    ("windlass.api.crew_api.schemas", "pattern"): [],  # in the calls of _of_form
    ("windlass.secrets.providers.configuration", "pattern"): [],  # in the calls of form
    ("windlass.secrets.provider", "meaning"): [],  # in the calls of Meaning
    ("windlass.offline_model.rules", "given"): [],  # of the person who starts this model, in a process of its own
    ("windlass_child.masking.secret_parts", "form"): [],  # three members of the module
    ("windlass.projects.kinds", "option"): [(one.option.pattern, "fullmatch") for one in KINDS if one.option],
    ("windlass.projects.git", "pattern"): [(one[0], "search") for one in git.FAILURES],
    ("windlass.projects.packages", "pattern"): [(one, "search") for one in packages.REMEDIES],
    ("windlass.deployments.environment", "map patterns translate"): GLOBS,
    ("windlass.projects.source_files", "map patterns translate"): GLOBS,
    ("windlass.projects.source_files", "ignore pattern translate"): GLOBS,
    ("windlass.projects.digest", "ignore pattern translate"): GLOBS,
    ("windlass.projects.checks", "key re"): [(KEY, "match")],
    ("windlass.projects.requirements", "one re"): [(KEY, "match")],
    ("windlass.projects.interpreter", "re version"): [(r"[/-]3\.11[/-]", "search")],
    ("windlass.projects.kinds.declared", "package"): [(r"crewai\b(?!-)", "match")],
    ("windlass_child.journal.markers", "found map re"): [("secret|other", "sub")],
    ("windlass_child.journal.markers", "re self"): [(r"\[entry\ 00\ (\S+) (\S+) (\S+) ([0-9a-f]+)\]", "sub")],
    ("windlass_child.masking.redaction", "re value"): [(r"(?<!\w)abcd(?!\w)", "sub")],
    ("windlass_child.masking.server_paths", "map paths re"): [(r"(?<![\w.-])(/a/b|/a)(?![\w-])(/?)", "sub")],
}
"""Patterns that are no constants, by their module and the names in their expression: examples, and their methods."""


@dataclass
class Pattern:
    text: str | bytes
    flags: int
    places: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)

    @property
    def case(self) -> tuple[str, int, list[str], bool]:
        text = self.text.decode("latin-1") if isinstance(self.text, bytes) else self.text
        return text, self.flags, sorted(self.methods) or ["fullmatch", "search"], isinstance(self.text, bytes)


class Patterns:
    """All patterns of the source."""

    def __init__(self) -> None:
        self.found: dict[tuple[str | bytes, int], Pattern] = {}
        self.unknown: list[str] = []
        trees = dict(trees_of_the_source())
        self._used = {use for name, tree in trees.items() for use in uses(name, tree)}
        for name, tree in trees.items():
            module = importlib.import_module(name)
            self._compiled(module)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    self._call(module, node)

    def _add(self, text: str | bytes, flags: int, place: str, methods: set[str]) -> None:
        expression = re.compile(text, flags)
        one = self.found.setdefault((text, expression.flags), Pattern(text, expression.flags))
        one.places.add(place)
        one.methods |= methods

    def _compiled(self, module: ModuleType) -> None:
        """Adds the expressions that a module holds, with the methods of them that the source calls."""
        for name, value in vars(module).items():
            for one in expressions_in(value):
                methods = {method for of, used, method in self._used if used == name and of in {module.__name__, ""}}
                self._add(one.pattern, one.flags, f"{module.__name__}.{name}", methods)

    def _call(self, module: ModuleType, call: ast.Call) -> None:
        name, owner = called(call)
        named = [one.value for one in call.keywords if one.arg == "pattern"]
        function = vars(module).get(name) if owner == "" else None
        place = f"{module.__name__}:{call.lineno}"
        if owner == "re" and name in {*METHODS, "compile"}:
            self._of_re(module, call, name, place)
        elif isinstance(function, Hashable) and function in TAKE_A_PATTERN:
            methods = {"search" if function is Meaning else "fullmatch"}
            self._add(value_of([*named, *call.args][0], module), TAKE_A_PATTERN[function], place, methods)
        elif named and name not in LINEAR:
            self.unknown.append(f"{place}: {ast.unparse(call)}")

    def _of_re(self, module: ModuleType, call: ast.Call, name: str, place: str) -> None:
        methods = {name} - {"compile"}
        try:
            text = value_of(call.args[0], module)
        except NameError:
            self._made_at_run_time(module, call, place)
            return
        at = ARGUMENTS_BEFORE_FLAGS.get(name, 2)
        flags = [one.value for one in call.keywords if one.arg == "flags"] + call.args[at : at + 1]
        if name != "compile" or flags or not methods:
            self._add(text, value_of(flags[0], module) if flags else 0, place, methods)

    def _made_at_run_time(self, module: ModuleType, call: ast.Call, place: str) -> None:
        names = " ".join(sorted({one.id for one in ast.walk(call.args[0]) if isinstance(one, ast.Name)}))
        examples = MADE_AT_RUN_TIME.get((module.__name__, names))
        if examples is None:
            self.unknown.append(f"{place}: {ast.unparse(call)}")
        for text, method in examples or ():
            self._add(text, 0, place, {method})


@cache
def patterns() -> Patterns:
    return Patterns()


def trees_of_the_source() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if parts[-1] != "__main__":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), ast.parse(file.read_text("utf-8"))


def uses(module: str, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yields the module, the name and the method where a method of a name is used. An unknown module is ""."""
    imported = {
        one.asname or one.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            if isinstance(node.value, ast.Name):
                yield imported.get(node.value.id, module), node.value.id, node.attr
            elif isinstance(node.value, ast.Attribute):
                yield "", node.value.attr, node.attr


def called(call: ast.Call) -> tuple[str, str]:
    """Returns the name of the function and of its owner, "" for none."""
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        return call.func.attr, owner.id if isinstance(owner, ast.Name) else "?"
    return (call.func.id, "") if isinstance(call.func, ast.Name) else ("", "?")


def value_of(node: ast.expr, module: ModuleType) -> Any:
    return eval(compile(ast.Expression(node), "<source>", "eval"), dict(vars(module)))


def expressions_in(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from (one for one in value.values() if isinstance(one, re.Pattern))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (one for one in value if isinstance(one, re.Pattern))


def slow(cases: list[tuple[str, int, list[str], bool]], seconds: float = 1.0) -> list[str | None]:
    """Returns a description of the first text that takes longer, for each case. Linear patterns need milliseconds."""
    done = subprocess.run(
        [sys.executable, PROGRAM, str(seconds)], input=json.dumps(cases), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_pattern_is_examined() -> None:
    """A pattern that is made at run time needs an example in MADE_AT_RUN_TIME."""
    assert patterns().unknown == []
    assert len(patterns().found) > 100


def test_no_pattern_takes_long_on_a_hostile_text() -> None:
    found = list(patterns().found.values())
    results = zip(found, slow([one.case for one in found]), strict=True)
    assert [f"{sorted(one.places)}: {one.text!r}: {fault}" for one, fault in results if fault] == []


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"\s*\|\|?\s*", "split"),
        (r"\s*,\s*|(?<=[\w*])\s+(?=[<>=!~^])", "split"),
        (r"/[^\s\"]*/sources/[0-9a-f]{64}/", "sub"),
        (r"role .*not (be )?found", "search"),
        (r"^(\w+ ?)*$", "match"),
        (r'"(?:[^"\\]|\\.)*+"', "sub"),
        (r"[0-9a-f:.]*:[0-9a-f:.]*", "fullmatch"),
        (r"^\s*(\w+): ", "findall"),
    ],
)
def test_patterns_with_backtracking_are_found(pattern: str, method: str) -> None:
    assert slow([(pattern, re.MULTILINE, [method], False)], seconds=0.2)[0]
