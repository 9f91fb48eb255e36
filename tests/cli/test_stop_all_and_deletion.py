from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cli.fake_crew import KICKOFF, TOKEN
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.manifest import Manifest
from windlass.store.accepting import NewKickoff
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from cli.fake_crew import FakeCrew
    from cli.the_command import Command
    from windlass.store.database import Database


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


def test_all_that_match_are_stopped_with_one_request(windlass: Command, crew: FakeCrew) -> None:
    filters = ("--user", "ann", "--state", "PENDING", "--before", "2026-01-15T09:30:00Z")
    ended = windlass("stop", crew.url, "--all", *filters)
    assert (ended.code, ended.out, ended.err) == (0, "", "3 kickoffs are stopped.\n")
    wanted = {"user": "ann", "state": "PENDING", "before": "2026-01-15T09:30:00+00:00"}
    assert [(seen.path, seen.body) for seen in crew.seen] == [("/stop", wanted)]
    assert json.loads(windlass("stop", "--all", crew.url, "--json-output").out)["stopped"] == 3
    assert crew.seen[1].body == {}


@pytest.mark.parametrize(
    "arguments",
    [("--user", "ann", KICKOFF), ("--all", "URL", KICKOFF), ("--all", "--wait"), ("--all", "--before", "noon"), ()],
)
def test_a_stop_that_could_mean_more_than_was_meant_is_a_usage_error(
    windlass: Command, crew: FakeCrew, arguments: tuple[str, ...]
) -> None:
    assert windlass("stop", *(crew.url if one == "URL" else one for one in arguments)).code == 2
    assert crew.seen == []


def test_kickoffs_are_deleted_once_that_is_confirmed(windlass: Command, crew: FakeCrew) -> None:
    unconfirmed = windlass("kickoffs", "delete", crew.url, KICKOFF)
    assert (unconfirmed.code, crew.seen) == (2, [])
    assert "Confirm it with --yes" in unconfirmed.err
    assert windlass("kickoffs", "delete", crew.url, "--yes").code == 2
    ended = windlass("kickoffs", "delete", crew.url, KICKOFF, "--yes", "--stop")
    assert (ended.code, ended.out, ended.err) == (0, "", f"{KICKOFF}: deleted.\n")
    assert [(seen.method, seen.path, seen.query) for seen in crew.seen] == [
        ("DELETE", f"/kickoffs/{KICKOFF}", "stop=true")
    ]
    unknown = windlass("kickoffs", "delete", crew.url, KICKOFF, "unknown", "--yes")
    assert unknown.code == 3
    assert f"{KICKOFF}: deleted.\n" in unknown.err
    assert "404 Not Found" in unknown.err


async def test_a_user_is_deleted_with_all_kickoffs_and_tokens(windlass: Command, database: Database) -> None:
    windlass.environment["WINDLASS_DATABASE_URL"] = database.url
    deployment = await DeploymentStore(database).register(
        "tea", digest="1", source={}, manifest=Manifest("function", "tea", {"type": "object"}, ())
    )
    assert deployment.version
    ann = await TokenStore(database).add_user("ann")
    new = NewKickoff(new_id(), deployment.id, deployment.version.id, ann, "{}")
    await KickoffStore(database).accept([new])
    assert windlass("tokens", "create", "--user", "ann").code == 0
    unconfirmed = windlass("admin", "users", "delete", "ann")
    assert unconfirmed.code == 2
    assert "Confirm it with --yes" in unconfirmed.err
    refused = windlass("admin", "users", "delete", "ann", "--yes")
    assert refused.code == 1
    assert "1 kickoff of the user 'ann' has not ended.\nStop them first, or give --stop." in refused.err
    data = windlass("admin", "users", "delete", "ann", "--yes", "--stop", "--data-only")
    assert (data.code, data.err) == (0, "1 kickoff of ann deleted.\n")
    assert await database.rows("SELECT name FROM users WHERE disabled_at IS NULL") == [{"name": "ann"}]
    whole = windlass("admin", "users", "delete", "ann", "--yes")
    assert (whole.code, whole.err) == (0, "0 kickoffs of ann deleted, and the user.\n")
    assert windlass("admin", "users", "delete", "ann", "--yes").err.startswith("error: There is no user 'ann'.")
    for table in ("kickoffs", "tokens", "users"):
        assert await database.rows(f"SELECT FROM {table}") == []
