"""Commands for tokens and users. Most use one server, on a database with the crew tea, and have users of their own."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from cli.the_command import CommandHere, ForkedCommand
from store.shared_database import made
from windlass.cli.tokens import create, duration
from windlass.kickoffs.manifest import Manifest
from windlass.secrets.secret import TokenKind, kind_of
from windlass.store.database import Database
from windlass.store.deployments import DeploymentStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.the_command import Command, Ended

pytestmark = pytest.mark.xdist_group("cli_tokens")


@pytest.fixture(scope="module")
def url(postgres: str) -> Iterator[str]:
    for url in made(postgres, "cli_tokens"):
        asyncio.run(serve(url, "tea"))
        yield url


@pytest.fixture(scope="module")
def windlass(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    command = CommandHere(tmp_path_factory.mktemp("home"), {"WINDLASS_DATABASE_URL": url})
    with ForkedCommand(Path(command.environment["HOME"]), command.environment).started("api", "--port", "0") as server:
        line = server.wait_for("serving every crew")
        command.environment["WINDLASS_PORT"] = line.partition("127.0.0.1:")[2].partition("/")[0]
        yield command


@pytest.fixture
def alone(tmp_path: Path, database: Database) -> Command:
    """On a database with no server."""
    return CommandHere(tmp_path, {"WINDLASS_DATABASE_URL": database.url, "WINDLASS_PORT": "1"})


async def serve(url: str, slug: str) -> None:
    async with Database(url) as database:
        manifest = Manifest("function", slug, {"type": "object"}, ())
        await DeploymentStore(database).register(slug, digest="1", source={}, manifest=manifest)


def listed(windlass: Command, *arguments: str) -> dict[str, dict[str, str]]:
    """The rows of the list by their last four characters."""
    heading, *rows = (re.split("  +", line) for line in windlass("tokens", "list", *arguments).out.splitlines())
    return {row[0]: dict(zip(heading, row, strict=False)) for row in rows}


def kinds(ended: Ended) -> list[TokenKind | None]:
    return [kind_of(line) for line in ended.out.splitlines()]


def test_the_two_tokens_of_a_crew_are_shown_again_and_alone_on_standard_output(windlass: Command) -> None:
    first = windlass("tokens", "show", WINDLASS_PORT="8123")
    assert (first.code, kinds(first)) == (0, [TokenKind.ORGANIZATION, TokenKind.USER])
    assert first.err.splitlines()[0] == "The crew tea, at http://127.0.0.1:8123/crews/tea"
    assert not any(token in first.err for token in first.out.splitlines())
    assert windlass("tokens", "show", "--deployment", "tea").out == first.out
    assert windlass("tokens", "show", "--kind", "organization").out == first.out.splitlines()[0] + "\n"
    assert windlass("tokens", "show", "--kind", "user").out == first.out.splitlines()[1] + "\n"


def test_with_several_crews_all_are_shown_and_one_must_be_chosen_for_a_new_token(
    alone: Command, database: Database
) -> None:
    for slug in ("tea", "coffee"):
        asyncio.run(serve(database.url, slug))
    shown = alone("tokens", "show", WINDLASS_PUBLIC_URL="https://crews.example.com/")
    assert len(shown.out.splitlines()) == 4
    assert "The crew coffee, at https://crews.example.com/crews/coffee" in shown.err
    refused = alone("tokens", "create")
    assert (refused.code, refused.out) == (1, "")
    assert "Choose one with --deployment. The crews of this server are: coffee, tea." in refused.err
    assert alone("tokens", "create", "--deployment", "tea").code == 0


def test_an_unknown_crew_is_told_with_those_that_there_are(windlass: Command) -> None:
    ended = windlass("tokens", "show", "--deployment", "cocoa")
    assert (ended.code, ended.err) == (1, "error: There is no crew 'cocoa'.\nThe crews of this server are: tea.\n")


def test_without_a_crew_the_way_to_one_is_told(alone: Command) -> None:
    ended = alone("tokens", "show", "--deployment", "tea")
    assert ended.code == 1
    assert "windlass deploy PATH" in ended.err


def test_a_new_token_is_what_was_asked_for(windlass: Command) -> None:
    windlass("admin", "users", "add", "nils")
    made = windlass("tokens", "create", "--user", "nils", "--profile", "live", "--expires-in", "30d")
    assert (made.code, kinds(made)) == (0, [TokenKind.USER])
    assert "It opens the crew tea. It is not shown again." in made.err
    row = listed(windlass)[made.out.strip()[-4:]]
    assert (row["KIND"], row["CREW"], row["USER"], row["PROFILE"], row["LAST USED"]) == (
        "user",
        "tea",
        "nils",
        "live",
        "-",
    )
    assert row["EXPIRES"].startswith("20")


def test_a_token_for_every_crew_is_one_of_the_organization(windlass: Command) -> None:
    made = windlass("tokens", "create", "--all-deployments")
    assert kinds(made) == [TokenKind.ORGANIZATION]
    assert listed(windlass)[made.out.strip()[-4:]]["CREW"] == "(all)"


def test_one_crew_and_all_crews_at_once_is_a_usage_error(windlass: Command) -> None:
    assert windlass("tokens", "create", "--all-deployments", "--deployment", "tea").code == 2


def test_a_revoked_token_is_gone_from_the_list_that_shows_only_valid_ones(windlass: Command) -> None:
    last_four = windlass("tokens", "create").out.strip()[-4:]
    number = listed(windlass)[last_four]["ID"]
    ended = windlass("tokens", "revoke", last_four)
    assert (ended.code, ended.out, ended.err) == (0, "", f"The token {number} is revoked.\n")
    assert last_four not in listed(windlass)
    assert "revoked" in listed(windlass, "--all")[last_four].values()
    again = windlass("tokens", "revoke", number)
    assert (again.code, "There is no token that you may revoke" in again.err) == (1, True)


def test_a_rotated_token_makes_room_for_another_that_may_do_the_same(windlass: Command) -> None:
    old = windlass("tokens", "create", "--profile", "live").out.strip()
    new = windlass("tokens", "rotate", old[-4:])
    assert (new.code, kinds(new)) == (0, [TokenKind.ORGANIZATION])
    rows = listed(windlass)
    assert old[-4:] not in rows
    assert rows[new.out.strip()[-4:]]["PROFILE"] == "live"


def test_a_user_is_added_once_and_told_the_next_step(windlass: Command) -> None:
    added = windlass("admin", "users", "add", "Ann Lee")
    assert (added.code, added.out) == (0, "")
    assert "windlass tokens create --user 'Ann Lee'" in added.err
    again = windlass("admin", "users", "add", "Ann Lee")
    assert (again.code, "There is a user 'Ann Lee' already." in again.err) == (3, True)


def test_a_token_for_an_unknown_user_is_refused_with_the_command_that_adds_one(windlass: Command) -> None:
    ended = windlass("tokens", "create", "--user", "bob")
    assert (ended.code, ended.out) == (1, "")
    assert "windlass admin users add bob" in ended.err


@pytest.mark.parametrize("name", ["", " ann", "a\nb", "a" * 101])
def test_a_name_that_would_spoil_a_list_is_refused(windlass: Command, name: str) -> None:
    assert windlass("admin", "users", "add", name).code == 2


def test_a_database_that_is_away_is_told_without_its_password(windlass: Command) -> None:
    ended = windlass("tokens", "show", WINDLASS_DATABASE_URL="postgresql://ann:hunter2@127.0.0.1:1/x")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: The database can't be reached: ")
    assert "hunter2" not in ended.err


@pytest.mark.parametrize(
    ("text", "expected"), [("45m", timedelta(minutes=45)), ("12h", timedelta(hours=12)), ("8w", timedelta(weeks=8))]
)
def test_a_duration_is_a_number_and_a_unit(text: str, expected: timedelta) -> None:
    assert duration(click.Context(create), create.params[0], text) == expected


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1y", "1d12h", "999999d"])
def test_what_is_no_duration_is_refused_in_words(text: str) -> None:
    with pytest.raises(click.BadParameter, match="such as 30d"):
        duration(click.Context(create), create.params[0], text)


def test_a_token_can_be_made_with_fewer_scopes_and_an_expiry(windlass: Command) -> None:
    made = windlass("tokens", "create", "--read-only", "--expires", "30d").out.strip()
    row = listed(windlass)[made[-4:]]
    assert (row["SCOPES"], row["EXPIRES"][:2]) == ("read", "20")
    two = windlass("tokens", "create", "--scope", "admin", "--scope", "read").out.strip()
    assert listed(windlass)[two[-4:]]["SCOPES"] == "read,admin"
    whole = windlass("tokens", "create").out.strip()
    assert listed(windlass)[whole[-4:]]["SCOPES"] == "read,run,admin"
    personal = windlass("tokens", "create", "--personal").out.strip()
    assert listed(windlass)[personal[-4:]]["SCOPES"] == "(role)"


def test_scopes_that_can_not_be_are_refused_in_words(windlass: Command) -> None:
    windlass("admin", "users", "add", "mary")
    ended = windlass("tokens", "create", "--user", "mary", "--scope", "admin")
    assert (ended.code, ended.out) == (1, "")
    assert "can't have the scope admin.\nIt can have: read, run." in ended.err
    assert windlass("tokens", "create", "--scope", "write").code == 2
    assert windlass("tokens", "create", "--scope", "run", "--read-only").code == 2


def state_of(windlass: Command, user: str) -> list[str]:
    """The columns ROLE and STATE of the user."""
    (row,) = (row.split() for row in windlass("admin", "users", "list").out.splitlines() if row.startswith(f"{user} "))
    return row[1:3]


def test_a_user_is_disabled_and_enabled_and_the_lists_show_it(windlass: Command) -> None:
    windlass("admin", "users", "add", "ann")
    token = windlass("tokens", "create", "--user", "ann").out.strip()
    disabled = windlass("admin", "users", "change", "ann", "--disable")
    assert (disabled.code, disabled.out) == (0, "")
    assert "windlass stop --all --user ann" in disabled.err
    assert "disabled" in listed(windlass)[token[-4:]].values()
    assert state_of(windlass, "ann") == ["-", "disabled"]
    assert "windlass admin users change ann --enable" in windlass("tokens", "create", "--user", "ann").err
    assert windlass("admin", "users", "change", "ann", "--enable").code == 0
    assert state_of(windlass, "ann") == ["-", "active"]
    assert "There is no user 'bob'." in windlass("admin", "users", "change", "bob", "--disable").err
    assert windlass("admin", "users", "change", "ann").code == 2, "nothing to change"


def test_a_person_gets_a_role_and_a_personal_token(windlass: Command) -> None:
    assert windlass("admin", "users", "add", "vic", "--role", "viewer").code == 0
    assert state_of(windlass, "vic") == ["viewer", "active"]
    assert windlass("admin", "users", "change", "vic", "--role", "developer").code == 0
    made = windlass("tokens", "create", "--personal", "--user", "vic", "--name", "laptop", "--expires", "30d")
    assert made.out.startswith("wlp_")
    own = json.loads(windlass("tokens", "create", "--personal", "--json").out)
    assert own["user"] == "owner", "without --user, it is one of the person who set up the server"
    assert listed(windlass)[made.out.strip()[-4:]]["KIND"] == "personal (laptop)"

    last = windlass("admin", "users", "change", "owner", "--role", "none")
    assert (last.code, "is the last owner" in last.err) == (3, True)
    assert windlass("admin", "users", "change", "vic", "--role", "none").code == 0
    nothing = windlass("tokens", "create", "--personal", "--user", "vic")
    assert (nothing.code, "has no role" in nothing.err) == (3, True)
    assert windlass("tokens", "create", "--personal", "--read-only").code == 2


def test_the_first_owner_is_made_while_no_server_runs(alone: Command, windlass: Command) -> None:
    assert alone("admin", "users", "add", "zoe").code == 4, "no server answers"
    made = alone("admin", "first-owner", "zoe")
    assert (made.code, made.out[:4]) == (0, "wlp_")
    assert alone("admin", "first-owner").code == 0, "the name is owner"

    windlass("admin", "users", "add", "zoe", "--role", "viewer")
    token = windlass("admin", "first-owner", "zoe").out.strip()
    assert state_of(windlass, "zoe") == ["owner", "active"]
    added = windlass(
        "admin",
        "users",
        "add",
        "kim",
        WINDLASS_URL=f"http://127.0.0.1:{windlass.environment['WINDLASS_PORT']}",
        WINDLASS_API_TOKEN=token,
    )
    assert added.code == 0
    windlass("admin", "users", "change", "zoe", "--role", "none")


def test_commands_of_this_machine_refuse_while_another_server_is_chosen(windlass: Command) -> None:
    ended = windlass("tokens", "show", WINDLASS_URL="http://127.0.0.1:9", WINDLASS_API_TOKEN="wlp_x")
    assert (ended.code, "windlass profiles use local" in ended.err) == (1, True)
