"""Finds questions to persons for which the process of a kickoff waits, and ways to ask that crewai does not call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from windlass_child.project_files.code import marks
from windlass_child.project_files.found import Found, warning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from windlass_child.project_files.code import Code
    from windlass_child.protocol.messages import Project

FLOWS = ("flow", "declarative_flow")
FLOW_MARKS = {"start", "listen", "router", "human_feedback"}
OBJECTS = {"self", "flow"}
"""The names by which code of a flow calls its flow."""
ASK = "_ask_human_input"
INSTEAD = "Use @human_feedback on a method of the project's own flow: its kickoff holds no process while it waits."


def findings(project: Project, code: Code) -> Iterator[Found]:
    for path, tree in code.trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield from in_class(node, path, project, code)
            elif replaces_ask(node):
                yield ignored(code.named(path), node.lineno)  # type: ignore[attr-defined]  # it is a statement


def in_class(node: ast.ClassDef, path: Path, project: Project, code: Code) -> Iterator[Found]:
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    for method in methods:
        found = marks(method) & FLOW_MARKS
        if "human_feedback" in found and project.kind not in FLOWS:
            what = f"the method {method.name} asks a person in a flow that other code kicks off"
            yield alive(what, code.named(path), method.lineno)
        if found:
            for call in ast.walk(method):
                if asks(call):
                    yield alive(f"the method {method.name} calls ask()", code.named(path), call.lineno)  # type: ignore[attr-defined]  # it is a call


def asks(node: ast.AST) -> bool:
    """Returns whether this is a call of Flow.ask."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "ask":
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id in OBJECTS


def replaces_ask(node: ast.AST) -> bool:
    """Returns whether this sets the method by which old releases of crewai ask a person, on a class that it names."""
    if isinstance(node, ast.Assign):
        return any(isinstance(one, ast.Attribute) and one.attr == ASK and is_ignored(one.value) for one in node.targets)
    if not isinstance(node, ast.Call) or len(node.args) < 2:  # noqa: PLR2004 - the object and the name of setattr
        return False
    is_setattr = (node.func.id if isinstance(node.func, ast.Name) else "") == "setattr"
    is_patch = (node.func.attr if isinstance(node.func, ast.Attribute) else "") in ("setattr", "object")
    name = node.args[1]
    return (
        (is_setattr or is_patch) and isinstance(name, ast.Constant) and name.value == ASK and is_ignored(node.args[0])
    )


def is_ignored(owner: ast.expr) -> bool:
    """Returns whether the installed crewai never calls the method of this class. No release calls it of an agent."""
    from windlass_child.crewai.persons import ASKS_IN_EXECUTOR

    return not ASKS_IN_EXECUTOR or (isinstance(owner, ast.Name) and owner.id == "Agent")


def alive(what: str, file: str, line: int) -> Found:
    return warning("waits_alive", f"{what}: the process of a kickoff waits for the answer.", file, line, INSTEAD)


def ignored(file: str, line: int) -> Found:
    words = "the code replaces _ask_human_input, which the installed crewai does not call."
    hint = "Set a provider by crewai.core.providers.human_input.set_provider, or remove it: the server asks then."
    return warning("own_question_ignored", words, file, line, hint)
