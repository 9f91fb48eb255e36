"""docs/reference/cli.md names every command with its arguments, every option, every exit code and every check, and no
other.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from repo.generated_docs import leaves, option_rows, usage
from windlass.cli import doctor, exit_codes
from windlass.cli.commands import windlass
from windlass.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "cli.md").read_text("utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)


def rows(text: str) -> set[str]:
    """What stands in code in the first cells of the tables."""
    return {cell.replace("\\|", "|") for cell in re.findall(r"^\| `(.+?)` \|", text, re.MULTILINE)}


def told() -> dict[str, set[str]]:
    """Usage -> options; what stands before the first command of a section is true of all that follow in it."""
    found = {}
    for section in SECTIONS[1:]:
        common, *commands = re.split(r"^### ", section, flags=re.MULTILINE)
        for command in commands:
            usage = command.splitlines()[0].strip("`")
            found[usage] = {row for row in rows(common) | rows(command) if row.startswith("-")}
    return found


def real() -> dict[str, set[str]]:
    return {
        usage(context): {name.replace("\\|", "|") for name, _ in option_rows(context)}
        for context in leaves(click.Context(windlass, info_name="windlass"))
    }


def test_the_page_has_the_commands_and_their_arguments() -> None:
    assert list(told()) != []
    assert set(told()) == set(real())


@pytest.mark.parametrize("usage", sorted(real()))
def test_the_page_has_the_options_of(usage: str) -> None:
    assert told()[usage] == real()[usage]


def test_the_page_has_the_exit_codes() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert {int(row) for row in rows(SECTIONS[0])} == {0} | codes


def test_the_page_has_the_checks_of_the_doctor() -> None:
    checks = {subject for subject, _ in doctor.checks(Settings(), {}, Path())}
    assert {row for row in rows(PAGE.rpartition("### ")[2]) if not row.startswith("-")} == checks


def typed() -> Iterator[tuple[str, list[str]]]:
    """The commands in the blocks of all pages, without comments and what follows a pipe or a redirection."""
    for page in sorted(DOCS.glob("*/*.md")):
        for block in re.findall(r"^ *```(?:sh)?\n(.*?)^ *```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.split(r"\s(?:#|\||<|>|&)", f"{line.strip()} ")[0].strip()
                if command.startswith("windlass "):
                    yield f"{page.name}: {command}", shlex.split(command)[1:]


def test_commands_of_all_pages_and_their_options_exist() -> None:
    found = dict(typed())
    assert len(found) > 100
    for place, words in found.items():
        context = click.Context(windlass, info_name="windlass")
        while isinstance(context.command, click.Group) and words and not words[0].startswith("-"):
            command = context.command.get_command(context, words.pop(0))
            assert command is not None, place
            context = click.Context(command, info_name=command.name, parent=context)
        if isinstance(context.command, click.Group):  # some have a command that runs when none is given
            continue
        try:
            context.command.make_parser(context).parse_args(words)
        except click.UsageError as error:
            pytest.fail(f"{place}: {error.format_message()}")
