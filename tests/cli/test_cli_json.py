"""The JSON of commands: every command that prints facts has it, and docs/reference/cli.md lists its members."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from cli.fake_crew import KICKOFF, TOKEN
from cli.fake_server import FakeServer, deployment, variable
from cli.the_command import Command, line, read_to_end
from patience import DEADLINE
from windlass.api.control_api.answers import DeploymentAnswer
from windlass.api.control_api.credentials import CheckAnswer, CredentialItem
from windlass.api.control_api.people import TokenItem
from windlass.api.control_api.settings import VariableItem
from windlass.api.control_api.webhooks import DeliveryItem, WebhooksAnswer, WebhookTest
from windlass.cli.commands import windlass as root
from windlass.cli.doctor import checks
from windlass.config import Settings
from windlass.kickoffs.manifest import Manifest
from windlass.store.deployments import DeploymentStore
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.fake_crew import FakeCrew
    from windlass.store.database import Database

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text("utf-8")
WITHOUT_FACTS = {"dev", "serve", "api", "worker", "setup", "demo-llm", "admin db", "open"}
"""Commands that serve, that install, that another program replaces, or that print one value."""


def leaves(context: click.Context, name: str = "") -> Iterator[tuple[str, click.Command]]:
    command = context.command
    if not isinstance(command, click.Group):
        yield name.strip(), command
        return
    for part in command.list_commands(context):
        found = command.get_command(context, part)
        assert found is not None
        yield from leaves(click.Context(found, info_name=part, parent=context), f"{name} {part}")


def documented(command: str) -> set[str]:
    """The names in code in the row of the command."""
    (row,) = (row for row in PAGE.splitlines() if row.startswith(f"| `{command}`") and row.count("|") == 3)
    return set(re.findall(r"`(\w+)`", row.split("|")[2])) - {"ok", "warn", "fail", "active", "paused", "disabled"}


def value(windlass: Command, *arguments: str) -> Any:
    ended = windlass(*arguments, "--json")
    assert ended.code == 0, ended
    return json.loads(ended.out)


def test_every_command_that_prints_facts_can_print_them_as_json() -> None:
    without = {
        name
        for name, command in leaves(click.Context(root, info_name="windlass"))
        if not any(param.name == "json_output" for param in command.params)
    }
    assert without == WITHOUT_FACTS


@pytest.fixture
def control(windlass: Command) -> Iterator[FakeServer]:
    server = FakeServer()
    server.open()
    windlass.environment |= server.variables
    yield server
    server.close()


@pytest.fixture
async def server(windlass: Command, database: Database) -> Command:
    """The command, on a database with one crew."""
    manifest = Manifest("function", "tea", {"type": "object"}, ())
    await DeploymentStore(database).register("tea", digest="1", source={}, manifest=manifest)
    windlass.environment["WINDLASS_DATABASE_URL"] = database.url
    return windlass


def test_crews_as_json(windlass: Command, control: FakeServer) -> None:
    page = {"items": [deployment()], "next_cursor": None}
    control.answers |= {"GET deployments": page, "POST deployments/tea/pause": deployment(state="paused")}
    (crew,) = value(windlass, "deployments", "list")
    assert crew.keys() == documented("deployments list") == set(DeploymentAnswer.model_fields)
    assert crew == deployment()
    assert value(windlass, "deployments", "pause", "tea") == deployment(state="paused")


def test_credentials_as_json(windlass: Command, control: FakeServer) -> None:
    made = dict.fromkeys(CredentialItem.model_fields, "x") | {"configuration": {"region": "eu-west-1"}}
    check = {"ok": True, "message": "x", "hint": "", "code": None}
    control.answers |= {
        "GET credentials": {"items": [made]},
        "GET credentials/providers": {"items": []},
        "GET credentials/prod": made,
        "PATCH credentials/prod": made,
        "DELETE credentials/prod": {},
        "POST credentials/prod/test": check,
        "GET credentials/prod/secrets": {"items": ["db"]},
    }
    assert value(windlass, "credentials", "list") == [made]
    assert made.keys() == documented("credentials list")
    assert value(windlass, "credentials", "show", "prod") == made
    assert value(windlass, "credentials", "change", "prod", "region=eu-west-1") == made
    assert value(windlass, "credentials", "change", "prod", "--default") == made
    assert value(windlass, "credentials", "test", "prod").keys() == documented("credentials test") | {"ok"}
    assert check.keys() == set(CheckAnswer.model_fields)
    assert value(windlass, "credentials", "secrets", "prod") == ["db"]
    assert value(windlass, "credentials", "remove", "prod").keys() == documented("credentials remove")


def test_webhooks_as_json(windlass: Command, control: FakeServer) -> None:
    hooks, delivery, test = (
        dict.fromkeys(model.model_fields, "x") for model in (WebhooksAnswer, DeliveryItem, WebhookTest)
    )
    control.answers |= {
        "GET deployments/tea/webhooks": hooks,
        "PATCH deployments/tea/webhooks": hooks,
        "GET deployments/tea/webhooks/secret": {"secret": "x"},
        "POST deployments/tea/webhooks/test": {**test, "accepted": True},
        "GET deliveries": {"items": [delivery], "next_cursor": None},
        "GET deliveries/x": delivery,
        "POST deliveries/x/redeliver": delivery,
    }
    assert value(windlass, "webhooks", "show", "tea").keys() == documented("webhooks show")
    assert value(windlass, "webhooks", "set", "tea", "--crew", "https://a.example") == hooks
    assert value(windlass, "webhooks", "unset", "tea", "crew") == hooks
    assert value(windlass, "webhooks", "secret", "tea").keys() == documented("webhooks secret")
    assert value(windlass, "deliveries", "list").keys() == documented("deliveries list")
    assert value(windlass, "deliveries", "show", "x").keys() == documented("deliveries show")
    assert value(windlass, "deliveries", "redeliver", "x") == delivery
    assert value(windlass, "deliveries", "test", "tea").keys() == documented("deliveries test")


def test_logins_and_variables_as_json(windlass: Command, control: FakeServer) -> None:
    row = variable("A", "1")
    control.answers |= {
        "GET deployments/tea/variables": {"items": [row]},
        "PUT deployments/tea/variables": {"items": [row]},
    }
    assert value(windlass, "env", "list", "tea") == [row]
    assert row.keys() == documented("env list") == set(VariableItem.model_fields)
    assert value(windlass, "env", "set", "tea", "A=1") == [{"name": "A", "secret": False}]
    login = json.loads(windlass("login", control.url, "--name", "work", "--json", typed=control.token).out)
    assert login.keys() == documented("login")
    assert all(one.keys() == documented("profiles") for one in value(windlass, "profiles"))
    assert value(windlass, "profiles", "use", "local").keys() == documented("profiles use")
    assert value(windlass, "logout", "work").keys() == documented("logout")


def test_tokens_of_crews_as_json(server: Command) -> None:
    (shown,) = value(server, "tokens", "show", "--kind", "user")
    assert shown.keys() == documented("tokens show")
    assert (shown["deployment"], shown["organization_token"], shown["user_token"][:4]) == ("tea", None, "wlu_")
    made = value(server, "tokens", "create", "--read-only", "--all-deployments")
    assert made == {"token": made["token"], "deployment": None}
    assert made.keys() == documented("tokens create")
    rotated = value(server, "tokens", "rotate", made["token"][-4:])
    assert rotated.keys() == documented("tokens rotate")
    first = value(server, "admin", "first-owner", "ann")
    assert first == {"token": first["token"], "user": "ann"}
    assert first.keys() == documented("admin first-owner")


def test_tokens_of_a_server_as_json(windlass: Command, control: FakeServer) -> None:
    one = dict.fromkeys(TokenItem.model_fields) | {
        "id": "1",
        "kind": "organization",
        "scopes": ["read"],
        "shown": False,
    }
    made = {"id": "2", "token": "wlp_x", "name": "personal", "user": "ann", "expires_at": None}
    control.answers |= {"GET tokens": {"items": [one]}, "POST tokens": made, "DELETE tokens/1": {}}
    (listed,) = value(windlass, "tokens", "list")
    assert listed.keys() == documented("tokens list")
    assert (listed["scopes"], listed["deployment"], listed["state"], listed["expires_at"]) == (
        ["read"],
        None,
        "valid",
        None,
    )
    assert value(windlass, "tokens", "create", "--personal").keys() == documented("tokens create --personal")
    revoked = value(windlass, "tokens", "revoke", "1")
    assert revoked.keys() == documented("tokens revoke")
    assert revoked["state"] == "revoked"


def test_users_as_json(windlass: Command, control: FakeServer) -> None:
    name = "Ann \u2615"
    user = {"name": name, "role": None, "disabled": True, "created_at": "2026-01-02T03:04:05Z"}
    control.answers |= {"GET users": {"items": [user]}, "POST users": user, f"PATCH users/{name}": user}
    added = value(windlass, "admin", "users", "add", name)
    assert added == {"name": name, "state": "active", "role": None}
    assert added.keys() == documented("admin users add")
    (listed,) = value(windlass, "admin", "users", "list")
    assert listed.keys() == documented("admin users list")
    assert (listed["name"], listed["state"]) == (name, "disabled")
    changed = value(windlass, "admin", "users", "change", name, "--enable", "--role", "viewer")
    assert changed.keys() == documented("admin users change")


async def test_a_deleted_user_as_json(server: Command, database: Database) -> None:
    await TokenStore(database).add_user("ann")
    deleted = value(server, "admin", "users", "delete", "ann", "--yes")
    assert deleted == {"name": "ann", "deleted_kickoffs": 0, "deleted_user": True}
    assert deleted.keys() == documented("admin users delete")


def test_a_new_project_as_json(windlass: Command, tmp_path: Path) -> None:
    made = value(windlass, "init", str(tmp_path / "tea"), "--kind", "function")
    assert made.keys() == documented("init")
    assert made["files"]
    assert all(Path(file).is_file() for file in made["files"])
    assert made["next"][0] == f"windlass check {tmp_path / 'tea'}"


def test_a_machine_as_json(server: Command, tmp_path: Path) -> None:
    ended = server("doctor", "--json", WINDLASS_HOST="192.0.2.1")
    found = json.loads(ended.out)
    assert [one["check"] for one in found] == [name for name, _ in checks(Settings(), {}, None)]
    assert all(one.keys() == documented("doctor") for one in found)
    assert (ended.code, found[-1]["level"]) == (1, "fail")


@pytest.mark.parametrize("name", ["status", "stop"])
def test_a_kickoff_as_json_by_either_name_of_the_option(windlass: Command, crew: FakeCrew, name: str) -> None:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    told = value(windlass, name, crew.url, KICKOFF)
    assert told["kickoff_id"] == KICKOFF
    assert json.loads(windlass(name, crew.url, KICKOFF, "--json-output").out) == told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inputs"], "The table of inputs goes to standard output"),
        (["kickoff", "-i", "topic=tea"], "The id goes to standard output"),
        (["kickoff", "-i", "topic=tea", "--watch"], "The final output goes to standard output"),
    ],
)
def test_a_person_learns_which_stream_has_the_result_and_a_program_needs_not(
    windlass: Command, crew: FakeCrew, arguments: list[str], words: str
) -> None:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    command = [arguments[0], crew.url, *arguments[1:]]
    assert "standard output" not in windlass(*command).err
    ours, theirs = pty.openpty()
    process = subprocess.Popen(line(*command), stdout=subprocess.DEVNULL, stderr=theirs, env=windlass.environment)
    os.close(theirs)
    shown = read_to_end(ours)
    assert process.wait(DEADLINE) == 0
    assert words in shown
