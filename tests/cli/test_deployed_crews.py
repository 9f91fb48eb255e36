"""`windlass serve` and the commands that deploy to it, use its crews and manage it. All tests share one server."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from api.fake_vault import SECRET, FakeVault, running
from cli.the_command import Command, CommandHere, ForkedCommand
from patience import DEADLINE
from projects_for_tests.making import written
from projects_for_tests.places import folder_for_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.the_command import Ended, Started

pytestmark = pytest.mark.xdist_group("deployed_crews")

PROJECT = '[project]\nname = "{name}"\n[tool.windlass]\nentrypoint = "steep:steep"\n'
STEEP = """import os

def steep(leaf: str) -> str:
    print("the water boils")
    return f"{os.environ.get('HOW', 'hot')} {leaf} tea"
"""
STEEP_LONGER = STEEP.replace("leaf: str", "leaf: str, minutes: int = 3").replace(" tea", " tea, {minutes} minutes")
SLOW = "import time\n\nwhile True:\n    time.sleep(0.05)\n"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with folder_for_all() as folder:
        yield folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Started]:
    with ForkedCommand(folder).started("serve", "--port", "0", WINDLASS_WEBHOOK_ALLOW="127.0.0.1") as server:
        server.wait_for("Ctrl-C stops")
        yield server
        server.interrupt()
        assert server.end() == 0


@pytest.fixture
def windlass(folder: Path, server: Started) -> Command:
    assert server.process.poll() is None
    return CommandHere(folder)


def project(folder: Path, name: str, code: str = STEEP) -> str:
    return str(written(folder / name, {"pyproject.toml": PROJECT.format(name=name), "steep.py": code}))


def output(windlass: Command, slug: str) -> str:
    """What a kickoff of the crew returns."""
    ended = windlass("kickoff", "--deployment", slug, "-i", "leaf=green", "--watch")
    assert ended.code == 0, ended
    return ended.out


def value(ended: Ended) -> object:
    assert ended.code == 0, ended
    return json.loads(ended.out)


def test_the_life_of_a_deployment(windlass: Command, folder: Path) -> None:
    path = project(folder, "tea")
    first = windlass("deploy", path)
    assert first.code == 0, first
    assert "tea: version 1 is ready." in first.err
    assert "/crews/tea\n" in first.out
    assert output(windlass, "tea") == "hot green tea\n"

    (folder / "tea" / "steep.py").write_text(STEEP_LONGER)
    second = windlass("deploy", path, "--message", "steeped longer")
    assert second.err.endswith("tea: version 2 is ready.\n  inputs added: minutes\n")
    assert output(windlass, "tea") == "hot green tea, 3 minutes\n"
    listed = windlass("deployments", "builds", "tea").out
    assert "steeped longer" in listed

    assert windlass("deployments", "rollback", "tea").err == "Version 1 of tea serves new kickoffs now.\n"
    assert output(windlass, "tea") == "hot green tea\n"
    assert windlass("deployments", "promote", "tea", "2").code == 0
    versions = value(windlass("deployments", "versions", "tea", "--json"))
    assert [(one["number"], one["current"]) for one in versions["versions"]] == [(2, True), (1, False)]  # type: ignore[index]

    assert windlass("env", "set", "tea", "HOW=iced").code == 0
    assert output(windlass, "tea") == "iced green tea, 3 minutes\n"
    assert windlass("env", "list", "tea").out.splitlines()[1].split()[:2] == ["HOW", "iced"]
    assert windlass("env", "unset", "tea", "HOW").code == 0
    assert output(windlass, "tea") == "hot green tea, 3 minutes\n"

    told = windlass("deployments", "settings", "tea", "limits.timeout=60", "concurrency=2", 'approvers=["onwer"]').err
    assert "warning: approvers: There is no user 'onwer'. Did you mean owner?" in told
    rows = [line.split() for line in windlass("deployments", "settings", "tea").out.splitlines()]
    assert ["limits.timeout", "60", "deployment"] in rows
    assert ["concurrency", "2", "deployment"] in rows
    assert windlass("deployments", "settings", "tea", "--reset", "concurrency").code == 0
    unknown = windlass("deployments", "settings", "tea", "colour=red")
    assert (unknown.code, unknown.err.count("colour: there is no such member")) == (3, 1), unknown
    assert windlass("deployments", "settings", "tea", "concurency=2").err.endswith("\nDid you mean concurrency?\n")

    paused = windlass("deployments", "pause", "tea")
    assert "windlass deployments resume tea" in paused.err
    assert re.search("^tea +paused", windlass("deployments", "list", "--state", "paused").out, re.MULTILINE)
    waiting = windlass("kickoff", "--deployment", "tea", "-i", "leaf=red").out.strip()
    refused = windlass("deployments", "remove", "tea", "--yes")
    assert (refused.code, "409" in refused.err) == (3, True), "a kickoff is open"
    assert windlass("deployments", "resume", "tea").code == 0
    assert windlass("status", waiting, "--watch").out == "hot red tea, 3 minutes\n", "the id is enough"
    assert windlass("logs", waiting).out.endswith("> the water boils\n")
    assert waiting in windlass("kickoffs").out

    asked = windlass("deployments", "remove", "tea")
    assert (asked.code, "Confirm it with --yes" in asked.err) == (2, True)
    assert windlass("deployments", "remove", "tea", "--yes").code == 0
    assert windlass("deployments", "show", "tea").code == 3
    assert windlass("inputs", "--deployment", "tea").code == 3
    actions = [row["action"] for row in value(windlass("admin", "audit", "--target", "tea", "--json"))["audit"]]  # type: ignore[index]
    assert actions[0] == "deployment.remove"
    assert {"deployment.create", "deployment.deploy", "deployment.rollback", "variable.set"} <= set(actions)
    assert "iced" not in windlass("admin", "audit", "--csv").out, "no value of a variable"


class Receiver(BaseHTTPRequestHandler):
    """A program of others that gets webhooks. It accepts them below /good alone."""

    got: ClassVar[SimpleQueue[tuple[str | None, dict[str, Any]]]] = SimpleQueue()

    def do_POST(self) -> None:  # the name that http.server calls
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.put((self.headers["authorization"], json.loads(body)))
        self.send_response(204 if self.path == "/good" else 410)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_webhooks_of_a_deployment_are_delivered_and_sent_again(windlass: Command, folder: Path, receiver: str) -> None:
    assert windlass("deploy", project(folder, "chai")).code == 0
    given = ("--events", f"{receiver}/good", "--event", "kickoff_settled", "--crew", f"{receiver}/bad", "--bearer")
    assert windlass("webhooks", "set", "chai", *given, typed="a-token").code == 0
    accepted = windlass("deliveries", "test", "chai", "events")
    assert (accepted.code, "127.0.0.1 accepted the request" in accepted.err) == (0, True)
    authorization, body = Receiver.got.get(timeout=DEADLINE)
    assert (authorization, body["type"], body["hook"]) == ("Bearer a-token", "test", "events")

    kickoff = windlass("kickoff", "--deployment", "chai", "-i", "leaf=green").out.strip()
    authorization, body = Receiver.got.get(timeout=DEADLINE)
    assert (authorization, body["kickoff_id"], body["result"]) == (None, kickoff, "hot green tea")
    delivery = wait_for_delivery(windlass, kickoff, "failed")
    assert "off since" in windlass("webhooks", "show", "chai").out
    assert "410" in windlass("deliveries", "show", delivery["id"]).out
    assert windlass("webhooks", "set", "chai", "--crew", f"{receiver}/good").code == 0
    assert windlass("deliveries", "redeliver", delivery["id"]).code == 0
    _, again = Receiver.got.get(timeout=DEADLINE)
    assert again == body
    secret = windlass("webhooks", "secret", "chai")
    assert secret.out.startswith("whsec_")
    assert windlass("webhooks", "secret", "chai", "--rotate").out != secret.out
    assert windlass("webhooks", "unset", "chai", "crew", "events").code == 0
    assert "chai has no webhooks" in windlass("webhooks", "show", "chai").err


def wait_for_delivery(windlass: Command, kickoff: str, state: str) -> dict[str, Any]:
    ends = time.monotonic() + DEADLINE
    while time.monotonic() < ends:
        found: Any = value(windlass("deliveries", "list", "--kickoff", kickoff, "--state", state, "--json"))
        if found["deliveries"]:
            delivery: dict[str, Any] = found["deliveries"][0]
            return delivery
        time.sleep(0.05)
    raise AssertionError(f"no delivery of {kickoff} is {state}")


def test_variables_take_their_values_from_a_secret_manager(windlass: Command, folder: Path) -> None:
    assert windlass("deploy", project(folder, "mate")).code == 0
    with running(FakeVault()) as vault:
        refused = windlass("credentials", "add", "vault", "team", "--method", "token", typed=SECRET)
        assert (refused.code, "--address" in refused.err) == (2, True)
        at = ("--address", vault.address)
        wrong = windlass("credentials", "add", "vault", "team", "--method", "token", *at, "--role", "x", typed=SECRET)
        assert (wrong.code, "takes no --role" in wrong.err) == (2, True)
        added = windlass("credentials", "add", "vault", "team", "--method", "token", *at, typed=f"{SECRET}\n")
        assert (added.code, "at deploy" in added.err) == (0, True), added
        listed = [line.split()[:5] for line in windlass("credentials", "list").out.splitlines()]
        assert ["team", "vault", "token", "at", "deploy"] in listed
        shown = windlass("credentials", "show", "team").out
        assert vault.address in shown
        assert SECRET not in shown
        assert windlass("credentials", "test", "team").out == "tester\n"
        assert windlass("credentials", "secrets", "team", "d").out == "db\ndraft\n"

        bound = windlass("env", "set", "mate", "HOW=app/tea#how", "--from", "team")
        assert "windlass deployments redeploy mate" in bound.err
        row = windlass("env", "list", "mate").out.splitlines()[1].split()
        assert row[:8] == ["HOW", "(secret)", "yes", "team", "app/tea#how", "at", "deploy", "(not"]
        again = windlass("deployments", "redeploy", "mate")
        assert (again.code, "mate: version 2 is ready." in again.err) == (0, True), again
        in_use = windlass("credentials", "remove", "team")
        assert (in_use.code, "mate/HOW" in in_use.err) == (3, True)
        default = windlass("credentials", "change", "team", "--default")
        assert (default.code, "team is the default credential of vault now." in default.err) == (0, True), default
        assert "windlass deployments redeploy NAME" in default.err
        assert windlass("env", "set", "mate", "HOW", "--from-default", "vault", "--secret-name", "app/tea").code == 0
        assert "default of vault" in windlass("env", "list", "mate").out

        on_line = windlass("credentials", "change", "team", f"token={SECRET}")
        assert (on_line.code, "is secret" in on_line.err) == (2, True)
        assert (
            windlass("credentials", "change", "team", "token", "mount=kv", "--rename", "crew", typed="wrong").code == 0
        )
        failed = windlass("credentials", "test", "crew")
        assert (failed.code, failed.err.startswith("error: crew: Vault refuses the token")) == (1, True), failed
    assert windlass("env", "unset", "mate", "HOW").code == 0
    assert windlass("credentials", "remove", "crew").code == 0


def test_a_shell_completes_names_of_credentials_and_secrets(windlass: Command, folder: Path) -> None:
    def completed(line: str, position: int) -> list[str]:
        variables = {"_WINDLASS_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(position)}
        return ForkedCommand(folder)(**variables).out.splitlines()

    with running(FakeVault()) as vault:
        options = ("--method", "token", "--address", vault.address)
        assert windlass("credentials", "add", "vault", "team", *options, typed=SECRET).code == 0
        assert completed("windlass credentials test t", 3) == ["plain,team"]
        assert completed("windlass env set mate KEY --from team --secret-name d", 8) == ["plain,db", "plain,draft"]
    assert completed("windlass credentials secrets team d", 4) == [""], "an error is not shown"
    assert windlass("credentials", "remove", "team").code == 0


def test_variables_that_the_first_build_needs(windlass: Command, folder: Path) -> None:
    path = project(folder, "coffee", f"import os\n\nBEAN = os.environ['BEAN']\n{STEEP}")
    failed = windlass("deploy", path)
    assert failed.code == 1
    assert "error: coffee: the build failed: KeyError: 'BEAN'" in failed.err
    assert failed.err.endswith("or remove coffee: windlass deployments remove coffee\n")
    assert "\ncoffee " in windlass("deployments", "list", "--state", "failed").out
    assert "KeyError" in windlass("deployments", "logs", "coffee").out
    unbuilt = windlass("kickoff", "--deployment", "coffee", "-i", "leaf=green")
    assert (unbuilt.code, "A crew can be used once it has a version." in unbuilt.err) == (3, True)
    (folder / "some.env").write_text("BEAN=arabica\n")
    assert windlass("deploy", path, "--env-file", str(folder / "some.env"), "--name", "Coffee 2").code == 0
    assert output(windlass, "coffee-2") == "hot green tea\n"
    taken = windlass("deploy", path, "--name", "coffee-2", "--new")
    assert (taken.code, "There is a deployment 'coffee-2' already" in taken.err) == (3, True)


def test_the_last_good_version_serves_on_and_ctrl_c_leaves_the_build_to_the_server(
    windlass: Command, folder: Path
) -> None:
    path = project(folder, "mate")
    assert windlass("deploy", path).code == 0
    (folder / "mate" / "steep.py").write_text(SLOW)
    with windlass.started("deploy", path) as command:
        command.wait_for("loading the project")
        command.interrupt()
        assert command.end() == 130
        assert "The build goes on. Follow it with: windlass deployments logs mate --follow" in command.err
    (build,) = value(windlass("deployments", "builds", "mate", "--json", "--limit", "1"))["builds"]  # type: ignore[index]
    assert build["state"] == "building"
    assert output(windlass, "mate") == "hot green tea\n"
    assert windlass("deployments", "remove", "mate", "--stop", "--yes").code == 0


def test_two_first_deploys_of_one_name_at_once(windlass: Command, folder: Path) -> None:
    path = project(folder, "rooibos")
    with windlass.started("deploy", path) as one, windlass.started("deploy", path) as other:
        codes = sorted([one.end(), other.end()])
    said = one.err + other.err
    assert codes == [0, 0] or (codes == [0, 1] and "a newer build replaces this one" in said), said
    assert output(windlass, "rooibos") == "hot green tea\n"


def test_a_token_of_another_crew_is_recognised(windlass: Command, folder: Path) -> None:
    for name in ("sencha", "assam"):
        assert windlass("deploy", project(folder, name)).code == 0
    shown = value(windlass("deployments", "show", "sencha", "--tokens", "--json"))
    token = shown["tokens"]["user_token"]  # type: ignore[index]
    assert windlass("inputs", "--deployment", "sencha", WINDLASS_TOKEN=token).code == 0
    refused = windlass("inputs", "--deployment", "assam", WINDLASS_TOKEN=token)
    assert (refused.code, "WINDLASS_TOKEN or --token is not one of assam" in refused.err) == (3, True)
    unclear = windlass("inputs")
    assert (unclear.code, "Choose one with --deployment NAME." in unclear.err) == (1, True)


def test_roles_of_people_and_logins(windlass: Command, folder: Path, server: Started) -> None:
    address = next(line.split()[-1] for line in server.out.splitlines() if line.startswith("  Address"))
    assert windlass("admin", "users", "add", "boss", "--role", "owner").code == 0, "one owner must remain"
    assert windlass("admin", "users", "add", "vic", "--role", "viewer").code == 0
    token = windlass("tokens", "create", "--personal", "--user", "vic").out
    elsewhere = CommandHere(folder / "elsewhere")
    assert elsewhere("login", address, "--name", "work", typed=token).code == 0
    assert elsewhere("deployments", "list").code == 0
    refused = elsewhere("deploy", project(folder, "cocoa"))
    assert (refused.code, "403" in refused.err, "developer" in refused.err) == (3, True, True)
    assert elsewhere("admin", "audit").code == 3
    assert windlass("admin", "users", "change", "vic", "--role", "owner").code == 0
    assert elsewhere("admin", "users", "add", "dev", "--role", "developer").code == 0
    assert elsewhere("deploy", str(folder / "cocoa")).code == 0
    assert output(elsewhere, "cocoa") == "hot green tea\n"
    assert windlass("admin", "users", "change", "vic", "--disable").code == 0
    assert elsewhere("deployments", "list").code == 3


def test_the_members_of_a_deployment_and_who_uses_a_credential(windlass: Command, folder: Path) -> None:
    assert windlass("deploy", project(folder, "members")).code == 0
    for name in ("ann", "bob"):
        assert windlass("admin", "users", "add", name, "--role", "developer").code == 0
    members = ("deployments", "members", "members")
    shown = windlass(*members)
    assert shown.err == "Its members and the owners of the server see it.\n"
    assert tuple(shown.out.splitlines()[1].split()[:2]) == ("owner", "yes")
    added = windlass(*members, "add", "ann", "--owner")
    assert added.err.startswith("ann is an owner of members.\n")
    assert value(windlass(*members, "add", "bob", "--visible-to", "everybody", "--json")) != []
    found: Any = value(windlass(*members, "--json"))
    assert (found["visible_to"], [one["user"] for one in found["items"]]) == ("everybody", ["ann", "owner", "bob"])
    assert windlass(*members, "remove", "bob").err == "bob is no member of members any more.\n"
    refused = windlass(*members, "remove", "bob")
    assert (refused.code != 0, "'bob' is no member of members." in refused.err) == (True, True)
    for wrong, words in ((("add",), "Give the name of the person"), (("--owner",), "--owner needs add PERSON.")):
        assert words in windlass(*members, *wrong).err

    with running(FakeVault()) as vault:
        made = ("credentials", "add", "vault", "shop", "--method", "token", "--address", vault.address)
        assert windlass(*made, "--deployments", "members", typed=f"{SECRET}\n").code == 0
    assert "Used by     the deployments members\n" in windlass("credentials", "show", "shop").out
    changed: Any = value(
        windlass("credentials", "change", "shop", "--deployments", "", "--roles", "developer", "--json")
    )
    assert (changed["roles"], changed["deployments"]) == (["developer"], [])
    assert windlass("credentials", "change", "shop", "--roles", "").code == 0
    assert "Used by     owners of the server\n" in windlass("credentials", "show", "shop").out
    assert windlass("credentials", "remove", "shop").code == 0
