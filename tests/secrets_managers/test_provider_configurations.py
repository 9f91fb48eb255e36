from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from windlass.errors import SettingsError
from windlass.secrets.provider import WORKLOAD_IDENTITY, BadCredential, KeyNotFound, UnusableSecret, extract
from windlass.secrets.providers import NAMES, provider
from windlass.secrets.providers.endpoints import Endpoints

GUID = "11111111-2222-4333-8444-555566667777"
KEYS = {"region": "eu-central-1", "access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "marked-secret"}
ROLE = "arn:aws:iam::123456789012:role/crews/windlass"
KEY_FILE = {
    "type": "service_account",
    "project_id": "my-project",
    "private_key_id": "1",
    "private_key": "marked-secret",
    "client_email": "reader@my-project.iam.gserviceaccount.com",
}
ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
POOL = "projects/123456/locations/global/workloadIdentityPools/windlass/providers/windlass"
OF_VAULT = {"vault_url": "https://my-vault.vault.azure.net", "tenant_id": GUID, "client_id": GUID}
VALID: dict[tuple[str, str], dict[str, Any]] = {
    ("aws", "access_keys"): KEYS,
    ("aws", "assume_role"): {**KEYS, "role_arn": ROLE, "external_id": "id:1"},
    ("aws", "workload_identity"): {"region": "us-gov-west-1", "role_arn": ROLE},
    ("google", "service_account"): {"service_account_json": json.dumps(KEY_FILE)},
    ("google", "workload_identity"): {"project": "my-project", "provider": POOL},
    ("azure", "client_secret"): {**OF_VAULT, "client_secret": "marked-secret"},
    ("azure", "workload_identity"): OF_VAULT,
    ("vault", "token"): {"address": "https://vault.example.com:8200", "token": "marked-secret"},
    ("vault", "approle"): {"address": "http://10.0.0.7:8200", "role_id": "role", "secret_id": "marked-secret"},
    ("vault", "workload_identity"): {"address": "https://[fd12::1]:8200", "role": "windlass", "namespace": "a/b"},
}
INVALID: list[tuple[str, str, dict[str, Any]]] = [
    *[("aws", "access_keys", {"region": one}) for one in ("evil.com/#", "", "us-east-1\n.evil", "us-east-1.evil.com")],
    *[("aws", "access_keys", {"access_key_id": one}) for one in ("", " ", "ASIAIOSFODNN7EXAMPLE", "short")],
    *[("aws", "access_keys", {"secret_access_key": one}) for one in ("", "  ", None, "x" * 40_000)],
    ("aws", "access_keys", {"endpoint_url": "https://evil.com"}),
    ("aws", "access_keys", {"role_arn": ROLE}),
    *[
        ("aws", "workload_identity", {"role_arn": one})
        for one in ("", "windlass", "arn:aws:iam::1:role/x", ROLE + "\nx")
    ],
    *[
        ("google", "service_account", {"service_account_json": one})
        for one in (
            "",
            "marked-secret",
            "[" * 30_000,
            json.dumps(
                {**KEY_FILE, "type": "external_account", "credential_source": {"executable": {"command": "id"}}}
            ),
            json.dumps({**KEY_FILE, "private_key": ""}),
            json.dumps([KEY_FILE]),
        )
    ],
    *[("google", "workload_identity", {"provider": one}) for one in ("", POOL + "/../x", "//evil.com/" + POOL)],
    *[("google", "workload_identity", {"project": one}) for one in ("", "a/b", "UPPER-CASE", "a?b=c-d")],
    *[
        ("azure", "workload_identity", {"vault_url": one})
        for one in (
            "https://169.254.169.254",
            "http://my-vault.vault.azure.net",
            "https://my-vault.vault.azure.net.evil.com",
            "https://evil.com/my-vault.vault.azure.net",
            "https://user@my-vault.vault.azure.net",
            "https://my-vault.vault.azure.net:8443",
            "https://my-vaultXvault.azure.net",
            "https://a.b.vault.azure.net",
        )
    ],
    ("azure", "workload_identity", {"tenant_id": "common"}),
    ("azure", "client_secret", {"client_secret": "  "}),
    *[
        ("vault", "token", {"address": one})
        for one in (
            "vault.example.com",
            "ftp://vault.example.com",
            "https://user:password@vault.example.com",
            "https://vault.example.com/v1",
            "https://vault.example.com?x=1",
            "https://evil.com\\@vault.example.com",
            "https://vault.example.com:99999",
            "https://",
            "file:///etc/passwd",
        )
    ],
    *[("vault", "token", {"mount": one}) for one in ("", "/secret", "secret/", "../sys", "a/../b", "a?b")],
    *[
        ("vault", "workload_identity", {"audience": one})
        for one in ("sts.amazonaws.com", "api://AzureADTokenExchange", f"//iam.googleapis.com/{POOL}", "")
    ],
    ("vault", "token", {"token": " "}),
    ("vault", "token", {"ca_certificate": "marked-secret"}),
]


@pytest.mark.parametrize(("name", "method"), VALID)
def test_a_valid_configuration_shows_no_secret(name: str, method: str) -> None:
    model = provider(name).methods[method]
    made = model.model_validate(VALID[name, method])
    assert "marked-secret" not in repr(made)
    secret = [one for one, field in model.model_fields.items() if field.annotation is SecretStr]
    assert bool(secret) == (method != WORKLOAD_IDENTITY)
    assert all(field.description for field in model.model_fields.values())


def test_every_method_has_a_valid_example_here() -> None:
    assert list(VALID) == [(name, method) for name in NAMES for method in provider(name).methods]


@pytest.mark.parametrize(("name", "method", "change"), INVALID, ids=lambda one: str(one)[:40])
def test_an_invalid_configuration_is_refused_without_quoting_it(name: str, method: str, change: dict[str, Any]) -> None:
    model = provider(name).methods[method]
    with pytest.raises(ValidationError) as error:
        model.model_validate({**VALID[name, method], **change})
    assert {one["loc"][0] for one in error.value.errors()} == set(change)
    assert "should match pattern" not in str(error.value)
    assert "marked-secret" not in str(error.value)


def test_addresses_are_brought_into_one_form() -> None:
    azure = provider("azure").methods["workload_identity"]
    made = azure.model_validate({**OF_VAULT, "vault_url": "My-Vault.vault.azure.cn/"})
    assert made.model_dump()["vault_url"] == "https://my-vault.vault.azure.cn"
    vault = provider("vault").methods["token"].model_validate({"address": "https://VAULT.example.com/", "token": "x"})
    assert vault.model_dump()["address"] == "https://vault.example.com"
    google = provider("google").methods["workload_identity"]
    for prefix in ("//iam.googleapis.com/", "https://iam.googleapis.com/"):
        made = google.model_validate({"project": "my-project", "provider": prefix + POOL})
        assert made.model_dump()["provider"] == POOL


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "aws",
            ["app/db", "a", ARN],
            ["", "a b", "ü", "x" * 513],
        ),
        (
            "google",
            ["app_db", "projects/my-project/secrets/db"],
            ["", "app/db", "../x", "projects/p/secrets/a"],
        ),
        ("azure", ["app-db", "app_db"], ["", "app/db", "x" * 128, "a\n"]),
        ("vault", ["app/db", "a b/ü"], ["", "/app", "app/", "a//b", "../sys", "a/../b", "a\nb", "x" * 513]),
    ],
)
def test_names_of_secrets(name: str, good: list[str], bad: list[str]) -> None:
    for one in good:
        provider(name).check_name(one)
    for one in bad:
        with pytest.raises(BadCredential):
            provider(name).check_name(one)


@pytest.mark.parametrize("name", NAMES)
def test_the_values_for_the_provider_have_issuer_and_subject(name: str) -> None:
    found = provider(name).identity_values("https://crews.example.com", f"organization:{GUID}")
    for text in (found.commands, " ".join(found.values.values())):
        assert "crews.example.com" in text
        assert f"organization:{GUID}" in text
    assert found.audience


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(BadCredential, match="no provider 'oracle'"):
        provider("oracle")


def test_importing_the_providers_imports_no_client() -> None:
    code = (
        "import sys, windlass.secrets.providers\nprint([one for one in sys.modules if one.split('.')[0] in sys.argv])"
    )
    clients = ["boto3", "botocore", "google", "azure", "msal", "requests", "httpx"]
    found = subprocess.run([sys.executable, "-c", code, *clients], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_endpoints_are_read() -> None:
    found = Endpoints.parsed(["aws.sts=https://sts.internal/", f"azure.ca={__file__}"])
    assert found == Endpoints(aws_sts="https://sts.internal", azure_ca=__file__)


@pytest.mark.parametrize(
    "entry",
    [
        "aws.ec2=https://x",
        "aws.sts",
        "aws.sts=",
        "aws.sts=internal",
        "aws.sts=https://a@b",
        "azure.ca=",
        "azure.ca=/no",
    ],
)
def test_a_wrong_endpoint_is_an_error_of_the_setting(entry: str) -> None:
    with pytest.raises(SettingsError, match="WINDLASS_SECRET_ENDPOINTS"):
        Endpoints.parsed([entry])


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        ("plain", None, "plain"),
        ('{"a": "text", "a#b": "c"}', "a", "text"),
        ('{"a#b": "c"}', "a#b", "c"),
        ('{"port": 5432, "tls": true, "none": null}', "port", "5432"),
        ('{"port": 5432, "tls": true}', "tls", "true"),
        ('{"a": {"b": ["ü"]}}', "a", '{"b":["ü"]}'),
        ("", None, ""),
    ],
)
def test_a_member_of_a_secret(value: str, key: str | None, expected: str) -> None:
    assert extract(value, key) == expected


@pytest.mark.parametrize("value", ["plain", "[1]", '"text"', '{"marked-secret": 1}', "[" * 100_000, "9" * 5_000])
def test_a_member_that_is_not_there_quotes_nothing(value: str) -> None:
    with pytest.raises(KeyNotFound) as error:
        extract(value, "password")
    assert "marked-secret" not in str(error.value)


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * (64 * 1024 + 1), "ü" * (40 * 1024)])
def test_a_value_that_no_variable_can_hold(value: str) -> None:
    with pytest.raises(UnusableSecret):
        extract(value, None)
    with pytest.raises(UnusableSecret):
        extract(json.dumps({"a": value}), "a")
