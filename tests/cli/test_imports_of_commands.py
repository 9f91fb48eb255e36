"""What commands import: they answer a person at a terminal, and a shell that completes a name."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.fake_server import FakeServer
from cli.the_command import Command
from patience import DEADLINE
from projects_for_tests.homes import give_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANY_COMMAND = ("crewai", "litellm", "openai", "fastapi", "uvicorn", "starlette", "yaml", "windlass.runner")
NO_DATABASE = (*ANY_COMMAND, "windlass.wiring", "windlass.store", "psycopg", "procrastinate", "cryptography", "jwt")
NO_REQUEST = (*NO_DATABASE, "windlass.client", "windlass.config", "pydantic", "httpx", "rich", "asyncio")
NO_SERVER = (*ANY_COMMAND, "procrastinate", "croniter", "jwt", "argon2", "windlass.lifecycle")
"""For a command that opens the database, to find the token of commands or to change users."""
PROGRAM = """
import sys
from windlass.cli.commands import windlass
from windlass.cli.exit_codes import exit_code
code = exit_code(windlass, sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    server.open()
    yield server
    server.close()


def imported(command: Command, *arguments: str, **variables: str) -> tuple[int, set[str]]:
    """The exit code of the command and the modules that it has imported, in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**command.environment, **variables},
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done
    code, *modules = done.stderr.splitlines()[-1].split()
    return int(code), set(modules)


def needless(modules: set[str], unwanted: tuple[str, ...]) -> list[str]:
    return [name for name in sorted(modules) if any(name == one or name.startswith(f"{one}.") for one in unwanted)]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["kickof"], ["status", "--help"]])
def test_help_imports_neither_settings_nor_a_client(windlass: Command, arguments: list[str]) -> None:
    _, modules = imported(windlass, *arguments)

    assert not needless(modules, NO_REQUEST)


@pytest.mark.parametrize(
    "arguments", [["deployments", "list"], ["kickoffs"], ["admin", "audit"], ["credentials", "list"]]
)
def test_a_command_for_a_server_that_was_logged_in_to_opens_no_database(
    windlass: Command, server: FakeServer, arguments: list[str]
) -> None:
    _, modules = imported(windlass, *arguments, **server.variables)

    assert not needless(modules, NO_DATABASE)


@pytest.mark.parametrize("name", ["status", "logs", "files", "stop"])
def test_a_command_for_a_crew_opens_no_database(windlass: Command, server: FakeServer, name: str) -> None:
    _, modules = imported(windlass, name, "--token", "wlo_x", server.url, "0199bbbb-0000-7000-8000-000000000002")

    assert not needless(modules, NO_DATABASE)


def test_a_command_of_the_machine_of_a_server_imports_nothing_that_only_servers_need(open_folder: Path) -> None:
    windlass = Command(open_folder)
    give_database(open_folder / "windlass")

    code, modules = imported(windlass, "admin", "first-owner")

    assert code == 0
    assert "windlass.access.tokens" in modules
    assert not needless(modules, NO_SERVER)
