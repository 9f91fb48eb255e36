"""`windlass login`, `logout` and `profiles`, and the server that a command chooses."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from starlette.responses import HTMLResponse, Response

from cli.fake_crew import problem
from cli.fake_server import TOKEN, FakeServer, deployment
from cli.the_command import CommandHere
from windlass.cli.crew_options import is_of_server
from windlass.config import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.the_command import Command


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    server.answers["GET deployments"] = {"items": [deployment()], "next_cursor": None}
    server.open()
    yield server
    server.close()


@pytest.fixture
def windlass(tmp_path: Path) -> Command:
    return CommandHere(tmp_path)


def file_of(folder: Path) -> Path:
    return folder / ".config" / "windlass" / "profiles.json"


def test_a_login_is_kept_in_a_file_of_the_user_and_used_until_the_logout(
    windlass: Command, server: FakeServer, tmp_path: Path
) -> None:
    ended = windlass("login", f"{server.url}/", "--name", "work", typed=f"{TOKEN}\n")
    assert (ended.code, ended.out) == (0, "")
    assert f"You are logged in to {server.url} as ann, with the role developer." in ended.err
    assert TOKEN not in ended.err
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600
    assert windlass("deployments", "list").out.splitlines()[1].startswith("tea ")
    rows = {row["profile"]: row for row in json.loads(windlass("profiles", "--json").out)}
    assert rows["work"] == {"profile": "work", "user": "ann", "url": server.url, "current": True}
    assert TOKEN not in windlass("profiles").out

    assert "WINDLASS_URL is set" in windlass("login", server.url, "--name", "work", typed=TOKEN, **server.variables).err

    assert windlass("profiles", "use", "local").code == 0
    nowhere = windlass("deployments", "list")
    assert nowhere.code == 4
    assert "windlass serve" in nowhere.err
    assert windlass("deployments", "list", "--profile", "work").code == 0
    assert windlass("deployments", "list", WINDLASS_PROFILE="work").code == 0

    assert windlass("logout", "work").code == 0
    assert TOKEN not in file_of(tmp_path).read_text("utf-8")
    gone = windlass("deployments", "list", "--profile", "work")
    assert (gone.code, "There is no profile 'work'." in gone.err) == (1, True)
    assert windlass("logout").code == 1


def test_a_token_that_the_server_refuses_is_not_kept(windlass: Command, server: FakeServer, tmp_path: Path) -> None:
    ended = windlass("login", server.url, typed="wlp_wrong")
    assert ended.code == 3
    assert "401 Unauthorized" in ended.err
    assert not file_of(tmp_path).exists()


@pytest.mark.parametrize("typed", ["", "\n", "two words\n", "Schl\u00fcssel"])
def test_what_is_no_token_is_a_usage_error(windlass: Command, server: FakeServer, typed: str) -> None:
    assert windlass("login", server.url, typed=typed).code == 2
    assert server.seen == []


@pytest.mark.parametrize("url", ["crews.example.com", "file:///etc", "https://ann:secret@crews.example.com"])
def test_what_is_no_address_is_a_usage_error(windlass: Command, url: str) -> None:
    ended = windlass("login", url, typed=TOKEN)
    assert (ended.code, "is no address of a server" in ended.err) == (2, True)


def test_a_server_of_the_variables_goes_before_the_current_profile(windlass: Command, server: FakeServer) -> None:
    other = FakeServer()
    other.open()
    try:
        other.answers["GET deployments"] = {"items": [deployment("coffee")], "next_cursor": None}
        windlass("login", other.url, "--name", "other", typed=TOKEN)
        assert windlass("deployments", "list").out.splitlines()[1].startswith("coffee ")
        assert windlass("deployments", "list", **server.variables).out.splitlines()[1].startswith("tea ")
        named = windlass("deployments", "list", "--profile", "other", **server.variables)
        assert named.out.splitlines()[1].startswith("coffee ")
    finally:
        other.close()


def test_an_address_without_a_token_is_an_error(windlass: Command, server: FakeServer) -> None:
    ended = windlass("deployments", "list", WINDLASS_URL=server.url)
    assert ended.code == 1
    assert "WINDLASS_API_TOKEN is not" in ended.err


def test_a_refused_token_says_where_it_came_from(windlass: Command, server: FakeServer) -> None:
    ended = windlass("deployments", "list", WINDLASS_URL=server.url, WINDLASS_API_TOKEN="wlp_wrong")
    assert (ended.code, "Check WINDLASS_API_TOKEN" in ended.err) == (3, True)
    windlass("login", server.url, "--name", "work", typed=TOKEN)
    server.refusal = problem(401, "Unauthorized", "The token is revoked.")
    revoked = windlass("deployments", "list", "--profile", "work")
    assert (revoked.code, f"Log in again: windlass login {server.url} --name work" in revoked.err) == (3, True)


def test_a_file_that_is_not_of_profiles_is_an_error_that_names_it(windlass: Command, tmp_path: Path) -> None:
    file_of(tmp_path).parent.mkdir(parents=True)
    for text in ("{", "[]", '{"current": "x", "profiles": {"x": {"link": 1}}}'):
        file_of(tmp_path).write_text(text)
        ended = windlass("profiles")
        assert (ended.code, f"{file_of(tmp_path)} can't be read" in ended.err) == (1, True)


def test_an_unencrypted_address_of_another_machine_is_warned_of(windlass: Command) -> None:
    ended = windlass(
        "deployments",
        "list",
        WINDLASS_URL="http://192.0.2.1:9",
        WINDLASS_API_TOKEN=TOKEN,
        http_proxy="http://127.0.0.1:9",
    )
    assert ended.code == 4
    assert ended.err.startswith("warning: http:// sends the token over the network unencrypted")


def test_another_program_at_the_address_is_recognised(windlass: Command, server: FakeServer) -> None:
    server.refusal = HTMLResponse("<h1>It works!</h1>")
    ended = windlass("deployments", "list", **server.variables)
    assert ended.code == 3
    assert "does not answer as a Windlass server does" in ended.err


OF_CREWAI = "from crewai_core.token_manager import TokenManager; print(TokenManager().get_token())"


def test_the_crewai_program_is_logged_in(windlass: Command, server: FakeServer, tmp_path: Path) -> None:
    settings = tmp_path / ".config" / "crewai" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"oauth2_domain": "a.example", "org_uuid": "1", "enterprise_base_url": "https://x"}))
    windlass("login", server.url, "--name", "work", typed=f"{TOKEN}\n")
    ended = windlass("login-crewai")
    assert (ended.code, ended.out) == (0, "")
    assert f"`crewai deploy` uses {server.url} now, as ann." in ended.err
    assert TOKEN not in ended.err
    assert json.loads(settings.read_text()) == {"oauth2_domain": "a.example", "enterprise_base_url": server.url}
    kept = [settings, *(tmp_path / ".local/share/crewai/credentials").iterdir()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}
    assert not any(TOKEN.encode() in file.read_bytes() for file in kept)
    read = subprocess.run(
        [sys.executable, "-c", OF_CREWAI],
        env={**environment(), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert read.stdout.strip() == TOKEN
    settings.write_text("no JSON")
    assert "crewai config reset" in windlass("login-crewai").err


def test_tokens_of_another_server_are_listed_and_revoked(windlass: Command, server: FakeServer) -> None:
    windlass("login", server.url, "--name", "work", typed=f"{TOKEN}\n")
    one = {
        "id": "0199cccc-0000-7000-8000-000000000001", "kind": "personal", "name": "laptop", "last_four": "aB3x",
        "user": "ann", "deployment": None, "scopes": None, "created_at": "2026-11-01T00:00:00Z",
        "expires_at": "2999-01-01T00:00:00Z", "last_used_at": None, "profile": None, "shown": False, "revoked_at": None,
        "disabled_at": None, "sign_in_until": None,
    }  # fmt: skip
    server.answers["GET tokens"] = {"items": [one, {**one, "id": "2", "last_four": "zzzz"}], "next_cursor": None}
    server.answers[f"DELETE tokens/{one['id']}"] = Response(status_code=204)
    lines = windlass("tokens", "list").out.splitlines()
    assert re.split(r"  +", lines[1])[:3] == ["aB3x", "personal (laptop)", "(role)"]
    assert json.loads(windlass("tokens", "list", "--json").out)[0]["expires_at"].startswith("2999-01-01")
    ended = windlass("tokens", "revoke", "aB3x")
    assert (ended.code, "is revoked" in ended.err) == (0, True)
    assert server.requests()[-1] == f"DELETE tokens/{one['id']}"
    unknown = windlass("tokens", "revoke", "9999")
    assert (unknown.code, "windlass tokens list" in unknown.err) == (1, True)
    assert windlass("tokens", "list", "--all").code == 0
    assert server.seen[-1].query == "revoked=true&limit=1000"


def test_a_pasted_base_url_gets_the_token_of_the_profile_of_its_server(windlass: Command, server: FakeServer) -> None:
    server.answers["GET /crews/tea/inputs"] = {"inputs": ["leaf"], "schema": {}}
    assert windlass("inputs", f"{server.url}/crews/tea").code == 2, "there is no profile yet"
    assert windlass("login", server.url, typed=TOKEN).code == 0
    ended = windlass("inputs", f"{server.url}/crews/tea")
    assert (ended.code, ended.out.split()[0]) == (0, "leaf"), ended
    refused = windlass("inputs", f"{server.url}/crews/tea", WINDLASS_TOKEN="wlo_other")
    assert refused.code == 3, "a given token precedes that of the profile"


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://crews.example.com/crews/tea", True),
        ("https://CREWS.example.com:443/crews/tea", True),
        ("http://crews.example.com/crews/tea", False),
        ("https://crews.example.com.evil.example/crews/tea", False),
        ("https://crews.example.com:8443/crews/tea", False),
        ("https://example.com/crews/tea", False),
    ],
)
def test_the_token_of_a_profile_goes_to_its_server_only(url: str, *, sent: bool) -> None:
    assert is_of_server(url, "https://crews.example.com") is sent


def test_a_server_below_a_path_is_no_other_path_of_its_host() -> None:
    below = "https://example.com/windlass"
    urls = [f"{below}/crews/tea", "https://example.com/crews/tea", f"{below}er/crews/tea", f"{below}/%2e%2e/other"]
    assert [is_of_server(url, below) for url in urls] == [True, False, False, False]


def test_a_profile_with_another_name_of_this_machine_is_named_and_its_token_not_sent(
    windlass: Command, server: FakeServer
) -> None:
    assert windlass("login", server.url, "--name", "work", typed=f"{TOKEN}\n").code == 0
    seen = len(server.seen)
    port = server.url.rpartition(":")[2]
    for host in ("localhost", "127.0.0.2", "[::1]"):
        ended = windlass("inputs", f"http://{host}:{port}/crews/tea")
        assert ended.code == 2
        words = f"There is no token. The profile work has one for {server.url}: give the URL with that address."
        assert words in " ".join(ended.err.split())
    assert "export WINDLASS_TOKEN=" in windlass("inputs", f"http://localhost:{int(port) - 1}/crews/tea").err
    assert len(server.seen) == seen
