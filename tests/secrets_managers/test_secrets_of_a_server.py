"""A real server with secrets of every source: rotation through its commands, and a search for the secrets in all that
the server stores, sends and shows.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import httpx
import pytest

from cli.the_command import CommandHere
from patience import DEADLINE
from projects_for_tests.making import written
from projects_for_tests.places import folder_for_all
from secrets_managers.azure_server import CLIENT, CLIENT_SECRET, TENANT
from secrets_managers.leaks import Search, readable_paths
from secrets_managers.vault_server import vault_server
from windlass.embedded_postgres.postgres import running_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cli.the_command import Command, Ended, Started
    from secrets_managers.managers_of_tests import ManagerOfTests
    from secrets_managers.vault_server import VaultServer

pytestmark = pytest.mark.xdist_group("secrets_managers")

CREW = "marked"
SECRET = "db-of-the-server"
PRINTED = "a-word-that-the-search-must-find"
PROJECT = '[project]\nname = "marked"\n[tool.windlass]\nentrypoint = "marked:run"\n'
CODE = f'''
import base64, hashlib, json, os, pathlib, sys, time, urllib.parse

NAMES = ("DIRECT", "STATIC", "ROTATING", "OF_DEFAULT", "OF_AWS")


def run(do: str = "fingerprints", place: str = "") -> object:
    """Uses its secrets as crews should not."""
    values = {{name: os.environ[name] for name in NAMES if name in os.environ}}
    return globals()["do_" + do](values, pathlib.Path(place))


def do_fingerprints(values, _):
    print("{PRINTED}")
    return {{name: hashlib.sha256(value.encode()).hexdigest() for name, value in values.items()}}


def do_print(values, _):
    for value in values.values():
        raw = value.encode()
        print(value, repr(value), json.dumps(value), urllib.parse.quote(value, safe=""), raw.hex())
        for skipped in range(3):
            shifted = b"x" * skipped + raw
            print(base64.b64encode(shifted).decode(), base64.urlsafe_b64encode(shifted).decode())
        for part in (value[:9], value[9:], "\\n"):
            sys.stderr.write(part)
            sys.stderr.flush()
    return "printed"


def do_return(values, _):
    return {{"values": values, "encoded": [base64.b64encode(one.encode()).decode() for one in values.values()]}}


def do_fail(values, _):
    raise ValueError(f"can't log in with {{values}}")


def do_hold(values, place):
    place.joinpath("held").touch()
    while not place.joinpath("let go").exists():
        time.sleep(0.01)
    return "held"
'''


@dataclass
class Stage:
    folder: Path
    server: Started
    windlass: Command
    address: str
    vault: VaultServer
    values: dict[str, str] = field(default_factory=dict)

    def succeeded(self, *arguments: str, typed: str = "") -> Ended:
        ended = self.windlass(*arguments, typed=typed)
        assert ended.code == 0, ended
        return ended

    def put(self, manager: ManagerOfTests, name: str = SECRET) -> str:
        value = secrets.token_urlsafe(24)
        manager.put(name, json.dumps({"user": "app", "password": value}))
        return value

    def fingerprints(self) -> dict[str, str]:
        ended = self.succeeded("kickoff", "--deployment", CREW, "--watch")
        found: dict[str, str] = json.loads(ended.out)
        return found

    def kickoff(self, do: str, **inputs: str) -> str:
        """Starts the crew, which may fail. Returns the id of the kickoff."""
        given = json.dumps({"do": do, **inputs})
        return self.succeeded("kickoff", "--deployment", CREW, "--inputs-json", given).out.strip()

    def imported(self, package: str) -> bool:
        """Returns whether the server has imported the package until now (PYTHONPROFILEIMPORTTIME)."""
        return any(
            line.rstrip().endswith(f" {package}") for line in self.server.err.splitlines() if line[:11] == "import time"
        )


@pytest.fixture
def stage(server_of: Callable[[str], ManagerOfTests]) -> Iterator[Stage]:
    aws = server_of("aws")
    endpoints = f"aws.secretsmanager={aws.endpoints.aws_secretsmanager},aws.sts={aws.endpoints.aws_sts}"
    with folder_for_all() as folder, vault_server() as vault:
        windlass, place = CommandHere(folder), folder / "place"
        place.mkdir()
        place.chmod(0o777)
        given = {
            "WINDLASS_SECRET_ENDPOINTS": endpoints,
            "WINDLASS_LOG_LEVEL": "DEBUG",
            "WINDLASS_CREW_FILES": f"{place}:rw",
            "PYTHONPROFILEIMPORTTIME": "1",
        }
        with windlass.started("serve", "--port", "0", **given) as server:
            address = server.wait_for("Address").split()[-1]
            server.wait_for("Ctrl-C stops")
            yield Stage(folder, server, windlass, address, vault)
            server.interrupt()
            assert server.end() == 0


def mark(value: str) -> str:
    return sha256(value.encode()).hexdigest()


def test_secrets_of_every_source_are_used_and_rotated_and_not_stored_sent_or_shown(
    stage: Stage, server_of: Callable[[str], ManagerOfTests]
) -> None:
    use_and_rotate(stage, server_of("aws"))
    search_everything(stage, server_of("google"))


def use_and_rotate(stage: Stage, aws: ManagerOfTests) -> None:
    vault = stage.vault
    identity = json.loads(stage.succeeded("admin", "identity", "--json").out)
    vault.trust(identity["issuer"], identity["subject"])
    project = written(stage.folder / CREW, {"pyproject.toml": PROJECT, "marked.py": CODE})
    stage.succeeded("deploy", str(project))
    assert not any(map(stage.imported, ("boto3", "botocore", "google.auth", "azure.core", "azure.identity")))

    at = ("--address", vault.address)
    fixed = vault.configuration("token")["token"]
    stage.succeeded("credentials", "add", "vault", "fixed", "--method", "token", *at, typed=fixed)
    stage.succeeded(
        "credentials", "add", "vault", "own", "--method", "workload_identity", *at, "--role", "windlass", "--default"
    )
    direct, shown = secrets.token_urlsafe(24), stage.put(vault)
    stage.succeeded("env", "set", CREW, "DIRECT", typed=direct)
    name = ("--secret-name", f"{SECRET}#password")
    stage.succeeded("env", "set", CREW, "STATIC", "--from", "fixed", *name)
    stage.succeeded("env", "set", CREW, "ROTATING", "--from", "own", *name)
    stage.succeeded("env", "set", CREW, "OF_DEFAULT", "--from-default", "vault", *name)
    assert stage.fingerprints() == {"DIRECT": mark(direct), "ROTATING": mark(shown), "OF_DEFAULT": mark(shown)}
    stage.succeeded("deployments", "redeploy", CREW)
    assert stage.fingerprints()["STATIC"] == mark(shown)
    rotated = stage.put(vault)
    assert stage.fingerprints() == {
        "DIRECT": mark(direct),
        "STATIC": mark(shown),
        "ROTATING": mark(rotated),
        "OF_DEFAULT": mark(rotated),
    }
    assert not any(map(stage.imported, ("boto3", "botocore", "google.auth", "azure.core", "azure.identity")))

    of_aws = aws.configuration("access_keys")
    options = ("--region", of_aws["region"], "--access-key-id", of_aws["access_key_id"])
    key = of_aws["secret_access_key"]
    stage.succeeded("credentials", "add", "aws", "keys", "--method", "access_keys", *options, typed=key)
    in_aws = stage.put(aws)
    stage.succeeded("env", "set", CREW, "OF_AWS", "--from", "keys", *name)
    stage.succeeded("deployments", "redeploy", CREW)
    assert stage.fingerprints()["OF_AWS"] == mark(in_aws)
    assert [stage.imported(one) for one in ("boto3", "google.auth", "azure.core")] == [True, False, False]
    stage.values |= {
        "direct": direct,
        "static": shown,
        "rotated": rotated,
        "in AWS": in_aws,
        "token": fixed,
        "key": key,
    }


def search_everything(stage: Stage, of_google: ManagerOfTests) -> None:
    """Finds no secret in what the server stores, sends and shows."""
    azure = ("--vault-url", "https://of-tests.vault.azure.net", "--tenant-id", TENANT, "--client-id", CLIENT)
    stage.succeeded("credentials", "add", "azure", "app", "--method", "client_secret", *azure, typed=CLIENT_SECRET)
    file = of_google.configuration("service_account")["service_account_json"]
    google = ("google", "robot", "--method", "service_account", "--from-file", "-")
    stage.succeeded("credentials", "add", *google, typed=file)
    of_key = json.loads(file)["private_key"].splitlines()[5]
    search = Search({**stage.values, "client secret": CLIENT_SECRET, "private key": of_key})
    kickoffs = [stage.kickoff(do) for do in ("print", "return", "fail")]
    place = stage.folder / "place"
    kickoffs.append(stage.kickoff("hold", place=str(place)))
    with held(place):
        search.processes()
        search.files(stage.folder, except_for="postgres")
    ended = [stage.windlass("status", one, "--watch", "--json").code for one in kickoffs]
    assert [code != 0 for code in ended] == [False, False, True, False]
    search_commands(stage, search, kickoffs)
    search_http(stage, search, kickoffs)
    search.bytes("the log of the server", (stage.server.out + stage.server.err).encode())
    url = running_url(stage.folder / "windlass")
    assert url is not None
    search.database(url)
    search.files(stage.folder)
    assert search.found == []
    control = Search({"the printed word": PRINTED})
    control.database(url)
    assert "the printed word (plain) in the column events.payload" in control.found


@contextmanager
def held(place: Path) -> Iterator[None]:
    """Runs the block while the crew holds its secrets."""
    until = time.monotonic() + DEADLINE
    while not place.joinpath("held").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    try:
        yield
    finally:
        place.joinpath("let go").touch()


def search_commands(stage: Stage, search: Search, kickoffs: list[str]) -> None:
    commands = [
        ("credentials", "list", "--json"),
        ("credentials", "show", "fixed", "--json"),
        ("credentials", "test", "fixed"),
        ("credentials", "secrets", "own"),
        ("env", "list", CREW, "--json"),
        ("admin", "audit", "--json"),
        ("deployments", "logs", CREW),
        ("deployments", "show", CREW, "--json"),
        ("admin", "identity", "--json"),
        *(("status", kickoff) for kickoff in kickoffs),
        *(("status", kickoff, "--full") for kickoff in kickoffs),
        *(("logs", kickoff, "--json") for kickoff in kickoffs),
    ]
    for command in commands:
        ended = stage.windlass(*command)
        search.bytes(f"windlass {' '.join(command)}", (ended.out + ended.err).encode())


def search_http(stage: Stage, search: Search, kickoffs: list[str]) -> None:
    """Searches the answers of all paths that can be read, of the control API and of the crew."""
    token = stage.succeeded("tokens", "create", "--personal", "--name", "search").out.strip()
    build = json.loads(stage.succeeded("deployments", "builds", CREW, "--json").out)["builds"][0]["id"]
    values = {
        "slug": [CREW],
        "deployment": [CREW],
        "kickoff_id": kickoffs,
        "kickoff": kickoffs,
        "name": ["fixed", "own", "STATIC", CREW],
        "number": ["1", "2"],
        "build": [build],
        "build_id": [build],
    }
    answered = 0
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False) as http:
        for base, document in (("/api/v1", "/api/v1/openapi.json"), (f"/crews/{CREW}", f"/crews/{CREW}/openapi.json")):
            described = http.get(f"{stage.address}{document}").raise_for_status().json()
            for path in readable_paths(described, values):
                url = path if path.startswith(base) else base + path
                answer = http.get(f"{stage.address}{url}")
                search.bytes(f"GET {url}", answer.content)
                answered += answer.status_code == httpx.codes.OK
        for path in ("/metrics", "/health", "/ready", "/.well-known/openid-configuration", "/oauth2/jwks"):
            search.bytes(f"GET {path}", http.get(f"{stage.address}{path}").content)
        invalid = {"source": {"type": "credential", "credential": "nobody"}, "secret_name": "x"}
        refused = http.put(f"{stage.address}/api/v1/deployments/{CREW}/variables/X", json=invalid)
        search.bytes("PUT of a variable", refused.content)
    assert answered > 40, "most paths have been read"
