from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from cli.the_command import Command
from windlass.embedded_postgres.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ASK = ("-qtA", "-c")


@pytest.fixture
def served_home(open_folder: Path) -> Iterator[Path]:
    """The home of a server that runs."""
    postgres = EmbeddedPostgres(open_folder / "windlass")
    postgres.start()
    yield open_folder
    postgres.stop()


def test_both_commands_find_the_database_of_a_running_server(served_home: Path) -> None:
    windlass = Command(served_home)
    url = windlass("admin", "db", "--url")
    assert (url.code, url.out.splitlines()[0][:13]) == (0, "postgresql://")
    assert "password" in url.err
    assert windlass("admin", "db", *ASK, "SELECT current_database()").out == "windlass\n"


def test_the_shell_speaks_to_an_outside_database(windlass: Command, database_url: str) -> None:
    asked = windlass("admin", "db", *ASK, "SELECT current_database()", WINDLASS_DATABASE_URL=database_url)
    assert (asked.code, asked.out) == (0, f"{conninfo_to_dict(database_url)['dbname']}\n")


def test_the_exit_code_of_the_shell_is_that_of_psql(windlass: Command, database_url: str) -> None:
    assert windlass("admin", "db", *ASK, "SELECT 1/0", WINDLASS_DATABASE_URL=database_url).code == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_neither_command_line_nor_environment_holds_the_password_and_the_shell_gets_nothing_of_ours(
    windlass: Command, database_url: str
) -> None:
    password = str(conninfo_to_dict(database_url)["password"])
    look = r"\! tr '\0' ' ' < /proc/$PPID/cmdline; env"
    given = {"WINDLASS_DATABASE_URL": database_url, "WINDLASS_MASTER_KEY": "a-key-of-ours", "PGPASSWORD": "of another"}
    command_line, *environment = windlass("admin", "db", *ASK, look, **given).out.splitlines()
    assert "psql -qtA -c" in command_line
    assert password not in command_line
    assert password not in "\n".join(environment)
    assert not any(line.startswith("PGPASSWORD=") for line in environment)
    assert not any(line.startswith("WINDLASS_") for line in environment)


def test_a_url_that_cannot_be_read_is_not_repeated(windlass: Command) -> None:
    ended = windlass("admin", "db", WINDLASS_DATABASE_URL="postgres//ann:hunter2@host")
    assert ended.code == 1
    assert ended.err.startswith("error: The database's URL can't be read.")
    assert "hunter2" not in ended.err


def test_a_url_with_more_than_psql_can_be_given_is_refused_by_name(windlass: Command) -> None:
    ended = windlass("admin", "db", WINDLASS_DATABASE_URL="postgresql://ann@host/x?sslpassword=hunter2")
    assert ended.code == 1
    assert "sets sslpassword" in ended.err
    assert "hunter2" not in ended.err
