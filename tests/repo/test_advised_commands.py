"""Each command that a message of the program advises exists, and has the arguments and options that it needs."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from windlass.cli.commands import COMMANDS, windlass

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


SRC = Path(__file__).parents[2] / "src"
TEMPLATES = sorted((SRC / "windlass").rglob("*.html"))
VALUE = "value"
"""Stands for a value that is put into a text when the program runs."""
QUOTED = re.compile(r"`windlass ([^`]+)`")
ADVISED = re.compile(r"(?:: |\$\(|[Ww]ith |[Rr]un )windlass ([a-z].*?)(?=\)|[,;] | #|\. |\.?$|\n)", re.MULTILINE)
OPTIONAL = re.compile(r"\[[^\]]*\]")
NAMES = {
    "deploy": "the command as such",
    "env set --from-file": "the help of an option refers to another command's option",
}
"""Commands without their arguments that are named and not advised."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the texts of a module, except its docstrings, with their lines."""
    tree = ast.parse(path.read_text("utf-8"))
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, owners) and node.body]
    skipped = {id(one.value) for one in first if isinstance(one, ast.Expr)}
    skipped |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(one.value) if isinstance(one, ast.Constant) else VALUE for one in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"\{\w*\}", VALUE, node.value)


def advised() -> Iterator[tuple[str, str]]:
    for path in sorted(SRC.rglob("*.py")):
        for line, text in texts(path):
            for command in (*QUOTED.findall(text), *ADVISED.findall(text)):
                yield f"{path.relative_to(SRC)}:{line}", command
    for path in TEMPLATES:
        for command in QUOTED.findall(re.sub(r"\{\{.*?\}\}", VALUE, path.read_text("utf-8"))):
            yield path.name, command


def fault(command: str) -> str:
    """Returns what a command is without, or ""."""
    words = shlex.split(command)
    context = click.Context(windlass, info_name="windlass")
    while isinstance(context.command, click.Group) and words and not words[0].startswith("-"):
        found = context.command.get_command(context, words.pop(0))
        if found is None:
            return "no such command"
        context = click.Context(found, info_name=found.name, parent=context)
    if words in (["--help"], []) and isinstance(context.command, click.Group):
        return ""
    try:
        given, _, _ = context.command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    arguments = [one for one in context.command.params if isinstance(one, click.Argument)]
    needed = [one for one in arguments if OPTIONAL.sub("", one.make_metavar(context)).strip(" .")]
    values = {one.name: given.get(one.name or "") for one in needed}
    return ", ".join(str(name) for name, value in values.items() if not isinstance(value, str | tuple) or not value)


def test_advised_commands_have_what_they_need() -> None:
    found = [(place, command) for place, command in advised() if command.split()[0] in COMMANDS]
    assert len(found) > 100
    assert [(place, one, why) for place, one in found if one not in NAMES and (why := fault(one))] == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("status", "kickoff"),
        ("status ID", ""),
        ("env set", "deployment"),
        ("env list tea --all", "No such option"),
        ("credentials add --help", ""),
        ("no-such-command", "no such command"),
    ],
)
def test_what_a_command_is_without_is_found(command: str, why: str) -> None:
    assert fault(command).startswith(why)
    assert bool(fault(command)) == bool(why)
