from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click
import pytest

from cli.fake_server import FakeServer
from windlass.cli.commands import ADMIN, COMMANDS, OF_ADMIN, SECTIONS, admin
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


GROUPS: list[tuple[list[str], Any]] = [([], SECTIONS), (["admin"], ADMIN)]


@pytest.mark.parametrize(("group", "sections"), GROUPS)
def test_the_help_lists_every_command_with_its_first_sentence(
    windlass: Command, group: list[str], sections: Any
) -> None:
    lines = {" ".join(line.split()) for line in windlass(*group, "--help").out.splitlines()}
    commands = [(name, sentence) for section in sections.values() for name, (_, sentence) in section.items()]
    assert {f"{name} {sentence}" for name, sentence in commands} <= lines


@pytest.mark.parametrize(("group", "sections"), GROUPS)
def test_the_help_has_the_commands_by_their_sections(windlass: Command, group: list[str], sections: Any) -> None:
    titles = [line.removesuffix(":") for line in windlass(*group, "--help").out.splitlines() if line.endswith(":")]
    assert titles == ["Options", *sections]


GROUPS_THAT_LIST = ("deployments", "deliveries", "credentials", "approvals", "profiles", "tokens", "admin users")


@pytest.mark.parametrize("group", [*GROUPS_THAT_LIST, "kickoffs"])
def test_a_group_alone_lists(windlass: Command, group: str) -> None:
    server = FakeServer()
    server.open()
    with closing(server):
        windlass.environment |= server.variables
        for path in ("deployments", "deliveries", "credentials", "approvals", "tokens", "users", "kickoffs"):
            server.answers[f"GET {path}"] = {"items": [], "next_cursor": None}
        for options in ([], ["--json"]):
            listed = windlass(*group.split(), "list", *options)
            assert (listed.code, windlass(*group.split(), *options)) == (0, listed)


@pytest.mark.parametrize("group", [*GROUPS_THAT_LIST, "admin identity"])
def test_a_group_that_lists_alone_has_help_and_knows_its_commands(windlass: Command, group: str) -> None:
    assert "Commands:" in windlass(*group.split(), "--help").out
    ended = windlass(*group.split(), "lizt")
    assert (ended.code, "No such command 'lizt'" in ended.err) == (2, True), ended


def test_a_command_of_admin_is_found_from_its_name_alone(windlass: Command) -> None:
    ended = windlass("users", "list")
    assert (ended.code, "Did you mean 'admin users'?" in ended.err) == (2, True)
    assert "Did you mean 'backup'?" in windlass("admin", "backups").err


def test_an_unknown_command_gets_the_most_similar_one(windlass: Command) -> None:
    ended = windlass("kickof")
    assert (ended.code, "Did you mean 'kickoff'?" in ended.err) == (2, True)
    assert "Did you mean" not in windlass("x" * 10_000).err


@pytest.mark.parametrize(("group", "name"), [(root, name) for name in COMMANDS] + [(admin, name) for name in OF_ADMIN])
def test_a_command_begins_its_own_help_with_the_sentence_of_the_list(group: click.Group, name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert (command.help or "").split("\n\n")[0] == (COMMANDS | OF_ADMIN)[name][1]


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
