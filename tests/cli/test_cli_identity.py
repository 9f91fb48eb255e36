from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cli.fake_server import FakeServer
from windlass.config import Settings
from windlass.wiring.infrastructure import signing_keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.the_command import Command, Ended

SUBJECT = "organization:5b0c4b6e"
KEY = {"id": "first-key", "state": "signing", "created_at": None, "signs_from": None}
NEXT = {"id": "next-key", "state": "waiting", "created_at": None, "signs_from": "2026-11-24T07:00:00Z"}
AWS = {
    "title": "AWS Secrets Manager",
    "audience": "sts.amazonaws.com",
    "values": {"Provider URL": "https://crews.example.com", "Audience": "sts.amazonaws.com"},
    "commands": "aws iam one\naws iam two",
}
VAULT = {"title": "Vault", "audience": "ADDRESS", "values": {"bound_subject": SUBJECT}, "commands": "vault write it"}
ANSWER: dict[str, Any] = {
    "issuer": "https://crews.example.com",
    "discovery_url": "https://crews.example.com/.well-known/openid-configuration",
    "jwks_url": "https://crews.example.com/oauth2/jwks",
    "organization_id": "5b0c4b6e",
    "subject": SUBJECT,
    "warning": None,
    "keys": [KEY],
    "providers": {"aws": AWS, "vault": VAULT},
}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    server.open()
    server.answers |= {"GET identity": ANSWER, "POST identity/rotate": ANSWER | {"keys": [KEY, NEXT]}}
    yield server
    server.close()


@pytest.fixture
def run(windlass: Command, server: FakeServer) -> Command:
    windlass.environment |= server.variables
    return windlass


def lines(ended: Ended) -> list[str]:
    assert ended.code == 0, ended.err
    return [" ".join(line.split()) for line in ended.out.splitlines()]


def test_the_identity_has_what_to_paste_at_each_provider(run: Command) -> None:
    shown = lines(run("admin", "identity"))
    assert "Issuer https://crews.example.com" in shown
    assert f"Subject {SUBJECT}" in shown
    assert "Signing key first-key (signing)" in shown
    assert shown[shown.index("AWS Secrets Manager") + 1 :] == [
        "Provider URL https://crews.example.com",
        "Audience sts.amazonaws.com",
        "Commands:",
        "aws iam one",
        "aws iam two",
        "",
        "Vault",
        "Audience ADDRESS",
        f"bound_subject {SUBJECT}",
        "Commands:",
        "vault write it",
    ]
    assert lines(run("admin", "identity", "show")) == shown


def test_one_provider_is_chosen_and_an_unknown_one_is_an_error(run: Command) -> None:
    shown = lines(run("admin", "identity", "--provider", "vault"))
    assert "Vault" in shown
    assert "AWS Secrets Manager" not in shown
    unknown = run("admin", "identity", "show", "--provider", "gcp")
    assert (unknown.code, "aws, vault" in unknown.err) == (2, True)
    assert json.loads(run("admin", "identity", "--json").out) == ANSWER


def test_an_issuer_that_cloud_providers_refuse_is_warned_of(run: Command, server: FakeServer) -> None:
    server.answers["GET identity"] = ANSWER | {"warning": "The issuer http://x is no https address."}
    assert "warning: The issuer http://x is no https address. Set OIDC_ISSUER" in run("admin", "identity").err


def test_a_server_with_a_key_that_can_not_sign_does_not_start(windlass: Command) -> None:
    ended = windlass("serve", "--port", "0", OIDC_PRIVATE_KEY="hunter2")
    assert (ended.code, "OIDC_PRIVATE_KEY holds no PEM private key" in ended.err) == (1, True), ended.err
    assert "openssl genpkey" in ended.err
    assert "hunter2" not in ended.err


def test_the_start_warns_of_an_issuer_that_cloud_providers_refuse() -> None:
    warnings: list[str] = []
    for url in ("http://crews.example.com", "https://crews.example.com"):
        assert signing_keys_of(Settings(OIDC_ISSUER=url), warnings.append) == []
    assert [warning.partition(".")[0] for warning in warnings] == ["warning: The issuer http://crews"]


def test_a_rotation_prints_when_the_new_key_signs(run: Command, server: FakeServer) -> None:
    shown = lines(run("admin", "identity", "rotate"))
    assert shown == ["Signing key first-key (signing)", "Signing key next-key (signs from 2026-11-24 07:00:00 UTC on)"]
    assert server.sent("POST identity/rotate") == {"now": False, "compromised": False}
    server.seen.clear()
    assert "signs from now on" in run("admin", "identity", "rotate", "--compromised").err
    assert server.sent("POST identity/rotate") == {"now": False, "compromised": True}
