from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from windlass.cli.commands import COMMANDS, SECTIONS
from windlass.cli.commands import windlass as root

if TYPE_CHECKING:
    from cli.the_command import Command

SLOW = {
    "asyncio",
    "cryptography",
    "httpx",
    "psycopg",
    "pydantic",
    "pydantic_settings",
    "rich",
    "starlette",
    "uvicorn",
    "uvloop",
    "watchfiles",
}


def test_the_help_lists_every_command_with_its_first_sentence(windlass: Command) -> None:
    lines = {" ".join(line.split()) for line in windlass("--help").out.splitlines()}
    assert {f"{name} {sentence}" for name, (_, sentence) in COMMANDS.items()} <= lines


def test_the_help_has_the_commands_by_their_sections(windlass: Command) -> None:
    titles = [line.removesuffix(":") for line in windlass("--help").out.splitlines() if line.endswith(":")]
    assert titles == ["Options", *SECTIONS]


def test_an_unknown_command_gets_the_most_similar_one(windlass: Command) -> None:
    ended = windlass("kickof")
    assert (ended.code, "Did you mean 'kickoff'?" in ended.err) == (2, True)
    assert "Did you mean" not in windlass("x" * 10_000).err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_begins_its_own_help_with_the_sentence_of_the_list(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert (command.help or "").split("\n\n")[0] == COMMANDS[name][1]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["kickoff", "--help"], ["tokens", "--help"], ["tokenz"]]
)
def test_telling_about_commands_imports_nothing_that_they_need_to_run(arguments: list[str]) -> None:
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "windlass", *arguments], check=False, capture_output=True, text=True
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in told.stderr.splitlines()}
    assert "click" in imported
    assert not imported & SLOW


def test_the_version_is_that_of_the_package(windlass: Command) -> None:
    assert windlass("--version").out.startswith("windlass 0.")


def test_an_unknown_command_is_a_usage_error(windlass: Command) -> None:
    ended = windlass("tokenz")
    assert (ended.code, ended.out) == (2, "")
    assert "No such command 'tokenz'" in ended.err
