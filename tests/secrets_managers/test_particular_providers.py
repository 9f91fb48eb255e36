"""What is particular to one provider, and what of the server's environment its client must not use."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from secrets_managers.azure_server import Held
from secrets_managers.google_server import PROJECT, Version
from secrets_managers.network_watch import other_hosts
from secrets_managers.serving import certificates, served
from secrets_managers.token_issuer import ORGANIZATION, subject_of, token_issuer
from windlass.secrets.provider import (
    AccessDenied,
    CredentialRefused,
    ProviderUnavailable,
    SecretError,
    SecretNotFound,
    UnusableSecret,
)
from windlass.secrets.providers import NAMES, network, provider
from windlass.secrets.providers.endpoints import Endpoints
from windlass.secrets.providers.network import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from secrets_managers.conftest import Connect
    from secrets_managers.managers_of_tests import ManagerOfTests
    from secrets_managers.token_issuer import TokenIssuer

    ServerOf = Callable[[str], Any]

pytestmark = pytest.mark.xdist_group("secrets_managers")

SECRET = "marked-secret-7f3a"
AWS_METHODS = list(provider("aws").methods)


@contextmanager
def refused(error: type[SecretError], because: str) -> Iterator[None]:
    with pytest.raises(error, match=because):
        yield


def test_binary_secrets_are_text_or_an_error(connect: Connect, server_of: ServerOf) -> None:
    server_of("aws").put_binary("binary", b"\xff\xfe")
    server_of("aws").put_binary("binary-text", "ü".encode())
    server_of("google").put_bytes("binary", b"\xff\xfe")
    for name in ("aws", "google"):
        with refused(UnusableSecret, "binary data"):
            connect(name).read("binary")
    assert connect("aws").read("binary-text") == "ü"


def test_a_secret_of_aws_that_is_marked_for_deletion(connect: Connect, server_of: ServerOf) -> None:
    server_of("aws").put("deleted", "{}")
    server_of("aws").mark_for_deletion("deleted")
    with refused(SecretNotFound, "marked for deletion"):
        connect("aws").read("deleted")


def test_google_reads_the_newest_enabled_version(connect: Connect, server_of: ServerOf) -> None:
    versions = server_of("google").versions
    versions[f"projects/{PROJECT}/secrets/versions"] = [Version(b"1"), Version(b"2"), Version(b"3", "DISABLED")]
    versions["projects/another-project/secrets/versions"] = [Version(b"1", "DESTROYED")]
    assert connect("google").read("versions") == "2"
    with refused(SecretNotFound, "no enabled version"):
        connect("google").read("projects/another-project/secrets/versions")


def test_google_without_its_api_names_the_command(
    connect: Connect, server_of: ServerOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_of("google"), "api_enabled", False)
    with refused(AccessDenied, "gcloud services enable"):
        connect("google").read("any")


def test_names_of_google_come_from_several_pages(connect: Connect, server_of: ServerOf) -> None:
    for number in range(600):
        server_of("google").put(f"page-{number:03}", "{}")
    found = connect("google").names("page-", 600)
    assert len(found) == 600
    server_of("google").versions.clear()


def test_the_address_in_a_pasted_key_is_not_used(connect: Connect, server_of: ServerOf) -> None:
    server = server_of("google")
    server.put("app-db", "{}")
    manager = connect("google", "service_account")
    manager.check()
    manager.read("app-db")
    assert "pasted-address" in server.configuration("service_account")["service_account_json"]
    assert not [one for one in server.faults.requests if "pasted-address" in one]


def test_an_unusable_private_key_is_not_quoted(connect: Connect, server_of: ServerOf) -> None:
    key = json.loads(server_of("google").configuration("service_account")["service_account_json"])
    with pytest.raises(SecretError, match="private key") as error:
        connect("google", "service_account", service_account_json=json.dumps({**key, "private_key": SECRET}))
    assert SECRET not in str(error.value)
    assert error.value.__suppress_context__


def test_an_underscore_stands_for_a_hyphen_in_azure(connect: Connect, server_of: ServerOf) -> None:
    server_of("azure").put("under-score", '{"a": 1}')
    assert connect("azure").read("under_score") == '{"a": 1}'
    assert connect("azure").names("under_s", 5) == ["under-score"]


def test_a_disabled_secret_of_azure(connect: Connect, server_of: ServerOf) -> None:
    server_of("azure").secrets["off"] = Held("off", SECRET, enabled=False)
    with refused(AccessDenied, "The secret is disabled"):
        connect("azure").read("off")
    assert connect("azure").names("off", 5) == []


def test_a_key_vault_of_another_tenant(connect: Connect, server_of: ServerOf, monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.keyvault.secrets._shared import http_challenge_cache  # noqa: PLC0415 - for this test alone

    http_challenge_cache.clear()
    monkeypatch.setattr(server_of("azure"), "tenant_of_vault", "00000000-0000-4000-8000-000000000000")
    with refused(CredentialRefused, "another tenant"):
        connect("azure").read("app-db")
    http_challenge_cache.clear()


def test_paths_of_vault(connect: Connect, server_of: ServerOf) -> None:
    server = server_of("vault")
    for path in ("folder/db", "folder/sub/db", "folder/ü b"):
        server.put(path, '{"a": 1}')
    manager = connect("vault")
    assert [json.loads(manager.read(path)) for path in ("folder/db", "folder/ü b")] == [{"a": 1}] * 2
    assert manager.names("folder/", 10) == ["folder/db", "folder/sub/", "folder/ü b"]
    server.delete("folder/db")
    with refused(SecretNotFound, "deleted"):
        manager.read("folder/db")


def test_vault_over_tls_with_a_ca_of_its_own(connect: Connect, server_of: ServerOf, tmp_path: Path) -> None:
    ca, tls = certificates(tmp_path)
    server_of("vault").put("app-db", '{"a": 1}')
    with served(server_of("vault").faults, tls) as address:
        manager = connect("vault", "token", address=address, ca_certificate=ca.read_text())
        assert manager.read("app-db") == '{"a": 1}'
        with refused(ProviderUnavailable, "ConnectError"):
            connect("vault", "token", address=address).read("app-db")


@pytest.mark.parametrize("name", NAMES)
def test_an_issuer_that_the_provider_cannot_reach(
    name: str, connect: Connect, server_of: ServerOf, issuer: TokenIssuer
) -> None:
    server: ManagerOfTests = server_of(name)
    with token_issuer() as stopped:
        server.trust(stopped.url, subject_of(ORGANIZATION))
        manager = connect(name, subject=stopped.token)
        stopped.rotate()
    try:
        with pytest.raises(CredentialRefused) as error:
            manager.check()
        assert name == "azure" or "issuer" in str(error.value)
    finally:
        server.trust(issuer.url, subject_of(ORGANIZATION))


@pytest.fixture
def _hostile_environment(server_of: ServerOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Variables and files of a server's user that would lead a client to other identities and addresses."""
    from windlass.secrets.providers.aws import manager  # noqa: PLC0415 - imports boto3

    server_of("aws")  # it reads them too when it starts

    elsewhere = "http://198.51.100.7"
    config = f"[default]\nregion = us-west-1\nendpoint_url = {elsewhere}\naws_access_key_id = AKIAOFTHESERVER\n"
    (tmp_path / "config").write_text(config + "aws_secret_access_key = of-the-server\n")
    (tmp_path / "netrc").write_text("default login someone password of-the-server\n")
    values = {
        "AWS_ACCESS_KEY_ID": "AKIAOFTHESERVER",
        "AWS_SECRET_ACCESS_KEY": "of-the-server",
        "AWS_SESSION_TOKEN": "of-the-server",
        "AWS_PROFILE": "absent",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "config"),
        "AWS_ENDPOINT_URL": elsewhere,
        "AWS_ENDPOINT_URL_STS": elsewhere,
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/of-the-server",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "config"),
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "config"),
        "GOOGLE_CLOUD_PROJECT": "of-the-server",
        "AZURE_CLIENT_ID": "of-the-server",
        "AZURE_TENANT_ID": "of-the-server",
        "AZURE_AUTHORITY_HOST": "198.51.100.7",
        "VAULT_TOKEN": "of-the-server",
        "VAULT_ADDR": elsewhere,
        "NETRC": str(tmp_path / "netrc"),
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    manager._boto.cache_clear()
    yield
    manager._boto.cache_clear()


@pytest.mark.usefixtures("_hostile_environment")
@pytest.mark.parametrize(("name", "method"), [(name, method) for name in NAMES for method in provider(name).methods])
def test_the_environment_of_the_server_changes_nothing(
    name: str, method: str, connect: Connect, server_of: ServerOf
) -> None:
    server_of(name).put("app-db", '{"a": 1}')
    manager = connect(name, method)
    assert "of-the-server" not in manager.check().lower()
    assert json.loads(manager.read("app-db")) == {"a": 1}


PUBLIC = {
    "aws": {"sts.eu-central-1.amazonaws.com", "secretsmanager.eu-central-1.amazonaws.com"},
    "google": {"sts.googleapis.com", "secretmanager.googleapis.com"},
    "azure": {"login.microsoftonline.com", "of-tests.vault.azure.net"},
}


@pytest.mark.parametrize(("name", "method"), [(name, method) for name in PUBLIC for method in provider(name).methods])
def test_only_the_hosts_of_the_provider_are_contacted(
    name: str, method: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = connect(name, method, endpoints=Endpoints())
    with other_hosts(monkeypatch) as found:
        for call in (manager.check, lambda: manager.read("app-db")):
            with pytest.raises(ProviderUnavailable):
                call()
    assert found
    assert found <= PUBLIC[name]


def test_clouds_are_reached_by_the_proxy_and_vault_directly(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://proxy.invalid:3128")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    for name in PUBLIC:
        manager = connect(name, endpoints=Endpoints())
        with other_hosts(monkeypatch) as found, pytest.raises(ProviderUnavailable):
            manager.read("app-db")
        assert found == {"proxy.invalid"}
    with other_hosts(monkeypatch) as found:
        assert connect("vault").check()
    assert not found


def test_a_session_sends_the_token_that_it_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("default login someone password of-the-server\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    import requests  # noqa: PLC0415 - a part of the clients

    with session() as made:
        prepared = made.prepare_request(requests.Request("GET", "http://127.0.0.1/", {"Authorization": "Bearer token"}))
    assert prepared.headers["Authorization"] == "Bearer token"


@pytest.mark.parametrize(("name", "module"), [("aws", "boto3"), ("google", "google.auth"), ("azure", "azure.identity")])
def test_a_client_that_is_not_installed_is_named_with_its_command(name: str, module: str) -> None:
    code = f"""
import sys
sys.modules[{module!r}] = None
from windlass.secrets.provider import MissingPackage
from windlass.secrets.providers import provider
found = provider({name!r})
for _ in range(2):
    try:
        found.connect(found.methods["workload_identity"].model_construct(), str)
    except MissingPackage as error:
        print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.count(f"pip install --python .venv/bin/python -e '.[{name}]'") == 2


def test_a_certificate_file_that_is_not_there_is_an_error_in_words(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE"):
        monkeypatch.setenv(variable, "/absent")
    for name in PUBLIC:
        manager = connect(name, endpoints=Endpoints())
        with other_hosts(monkeypatch):
            for call in (manager.check, lambda: manager.read("app-db"), lambda: manager.names("", 5)):  # noqa: B023
                with pytest.raises(ProviderUnavailable):
                    call()


@pytest.mark.parametrize("name", ["google", "azure"])
def test_a_long_list_of_names_ends_in_time(
    name: str, connect: Connect, server_of: ServerOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "LISTING_TIME", 0.0)
    for number in range(60):
        server_of(name).put(f"many-{number:02}", "{}")
    assert len(connect(name).names("many-", 60)) <= 60
