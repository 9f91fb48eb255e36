"""Every provider, with each of its methods, behaves in the same way: against real or faithful servers of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from secrets_managers.token_issuer import OTHER_ORGANIZATION
from windlass.secrets.provider import (
    AccessDenied,
    BadCredential,
    CredentialRefused,
    ProviderUnavailable,
    SecretError,
    SecretNotFound,
    extract,
)
from windlass.secrets.providers import NAMES, network, provider
from windlass.secrets.providers.renewal import Renewed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from secrets_managers.conftest import Connect
    from secrets_managers.managers_of_tests import ManagerOfTests
    from secrets_managers.serving import Fault
    from secrets_managers.token_issuer import TokenIssuer
    from windlass.secrets.provider import Subject

pytestmark = pytest.mark.xdist_group("secrets_managers")

METHODS = [(name, method) for name in NAMES for method in provider(name).methods]
LASTING = {("aws", "access_keys"), ("google", "service_account"), ("vault", "token")}
RENEWABLE = [one for one in METHODS if one not in LASTING]
SECRET = "marked-secret-7f3a"

ServerOf = Callable[[str], "ManagerOfTests"]

each_method = pytest.mark.parametrize(("name", "method"), METHODS)
each_provider = pytest.mark.parametrize("name", NAMES)


@contextmanager
def refused(error: type[SecretError], *, because: str | None = None) -> Iterator[None]:
    with pytest.raises(SecretError, match=because) as found:
        yield
    assert type(found.value) is error, found.value
    assert found.value.hint
    assert SECRET not in str(found.value)
    assert found.value.__cause__ is None
    assert found.value.__suppress_context__ or found.value.__context__ is None


def value(**members: object) -> str:
    return json.dumps({"password": SECRET, "port": 5432, **members})


@each_method
def test_a_secret_and_its_members_are_read(name: str, method: str, connect: Connect, server_of: ServerOf) -> None:
    server_of(name).put("app-db", value(note='ünï "quoted"'))
    read = connect(name, method).read("app-db")
    assert json.loads(read) == {"password": SECRET, "port": 5432, "note": 'ünï "quoted"'}
    assert extract(read, "password") == SECRET
    assert extract(read, "port") == "5432"


@each_method
def test_no_part_of_a_manager_prints_a_secret(name: str, method: str, connect: Connect, server_of: ServerOf) -> None:
    server_of(name).put("app-db", value())
    manager = connect(name, method)
    manager.read("app-db")
    held = vars(manager).values()
    current = [one.current for one in held if isinstance(one, Renewed) and name == "aws"]
    parts = [manager, *held, *current, *(part for one in current for part in vars(one).values())]
    printed = " ".join(map(repr, parts))
    configured = {**server_of(name).configuration(method)}
    secret_members = ("secret_access_key", "service_account_json", "client_secret", "token", "secret_id")
    assert not [one for one in secret_members if one in configured and configured[one] in printed]
    assert SECRET not in printed


@each_method
def test_a_rotated_secret_is_read_at_once_with_the_same_tokens(
    name: str, method: str, connect: Connect, server_of: ServerOf
) -> None:
    server = server_of(name)
    server.put("rotated", value(version=1))
    manager = connect(name, method)
    assert extract(manager.read("rotated"), "version") == "1"
    server.put("rotated", value(version=2))
    before = len(server.faults.requests)
    assert extract(manager.read("rotated"), "version") == "2"
    assert len(server.faults.requests) == before + 1


@each_method
def test_a_secret_that_is_not_there(name: str, method: str, connect: Connect) -> None:
    with refused(SecretNotFound):
        connect(name, method).read("no-such-secret")


@each_method
def test_names_are_completed(name: str, method: str, connect: Connect, server_of: ServerOf) -> None:
    for one in ("names-a", "names-b", "names-c", "other-names-a"):
        server_of(name).put(one, value())
    manager = connect(name, method)
    assert manager.names("names-", 10) == ["names-a", "names-b", "names-c"]
    assert len(manager.names("names-", 2)) == 2
    assert manager.names("no-such", 10) == []
    assert "other-names-a" in manager.names("", 1000)


@pytest.mark.parametrize("prefix", ["../../auth/token/accessors/", "app/../../../sys/", "./a", "/sys/"])
def test_names_are_only_those_below_the_mount_of_vault(connect: Connect, prefix: str) -> None:
    with pytest.raises(BadCredential):
        connect("vault", "token").names(prefix, 10)


@each_method
def test_a_check_names_who_the_server_is_there(name: str, method: str, connect: Connect) -> None:
    assert connect(name, method).check()


@each_method
def test_a_credential_without_permission_is_known_and_may_not_read(
    name: str, method: str, connect: Connect, server_of: ServerOf
) -> None:
    server_of(name).put("forbidden", value())
    manager = connect(name, method)
    with server_of(name).forbidden():
        assert manager.check()
        with refused(AccessDenied):
            manager.read("forbidden")
        with refused(AccessDenied):
            manager.names("forbidden", 10)
    assert extract(manager.read("forbidden"), "password") == SECRET


@pytest.mark.parametrize(("name", "method"), RENEWABLE)
def test_a_token_that_the_provider_has_ended_is_renewed_once(
    name: str, method: str, connect: Connect, server_of: ServerOf
) -> None:
    server_of(name).put("renewed", value())
    manager = connect(name, method)
    manager.read("renewed")
    server_of(name).end_tokens()
    assert extract(manager.read("renewed"), "password") == SECRET


@pytest.mark.parametrize(
    ("name", "method", "change"),
    [
        ("aws", "access_keys", {"access_key_id": "AKIAXXXXXXXXXXXXXXXX"}),
        ("aws", "access_keys", {"secret_access_key": SECRET}),
        ("aws", "assume_role", {"external_id": "another"}),
        ("aws", "assume_role", {"role_arn": "arn:aws:iam::123456789012:role/absent"}),
        ("azure", "client_secret", {"client_secret": SECRET}),
        ("azure", "client_secret", {"client_id": "00000000-0000-4000-8000-000000000000"}),
        ("azure", "client_secret", {"tenant_id": "00000000-0000-4000-8000-000000000000"}),
        ("vault", "approle", {"secret_id": SECRET}),
        ("vault", "workload_identity", {"role": "absent"}),
        ("vault", "workload_identity", {"auth_path": "absent"}),
        ("aws", "workload_identity", {"role_arn": "arn:aws:iam::123456789012:role/absent"}),
        (
            "google",
            "workload_identity",
            {"provider": "projects/1/locations/global/workloadIdentityPools/none/providers/absent"},
        ),
        ("azure", "workload_identity", {"client_id": "00000000-0000-4000-8000-000000000000"}),
    ],
)
def test_a_wrong_credential_is_refused_in_words(
    name: str, method: str, change: dict[str, Any], connect: Connect
) -> None:
    manager = connect(name, method, **change)
    for call in (manager.check, lambda: manager.read("app-db"), lambda: manager.names("", 1)):
        with refused(CredentialRefused):
            call()


def test_a_wrong_token_of_vault_is_not_distinguished_from_a_missing_permission(connect: Connect) -> None:
    manager = connect("vault", "token", token=SECRET)
    with refused(AccessDenied, because="its token has ended"):
        manager.read("app-db")
    with refused(CredentialRefused, because="refuses the token"):
        manager.check()


def test_a_removed_key_of_google_is_refused(connect: Connect, server_of: ServerOf) -> None:
    key = json.loads(server_of("google").configuration("service_account")["service_account_json"])
    another = json.dumps({**key, "client_email": "removed@project-of-tests.iam.gserviceaccount.com"})
    manager = connect("google", "service_account", service_account_json=another)
    with refused(CredentialRefused):
        manager.check()
    with refused(CredentialRefused):
        manager.read("app-db")


TOKENS: dict[str, tuple[str | None, Callable[[TokenIssuer], Subject]]] = {
    "expired": ("expired", lambda issuer: lambda audience: issuer.token(audience, age=9000)),
    "forged": (None, lambda issuer: lambda audience: issuer.token(audience, forged=True)),
    "of another audience": ("audience", lambda issuer: lambda _: issuer.token("another-audience")),
    "of another organization": (
        None,
        lambda issuer: lambda audience: issuer.token(audience, organization=OTHER_ORGANIZATION),
    ),
    "of nobody": (None, lambda _: lambda _: "not.a.token"),
}


@each_provider
@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_that_is_not_right_is_refused(
    name: str, kind: str, connect: Connect, issuer: TokenIssuer, server_of: ServerOf
) -> None:
    server_of(name).put("app-db", value())
    because, subject = TOKENS[kind]
    manager = connect(name, subject=subject(issuer))
    if (name, kind) == ("google", "of another organization"):  # its pool accepts every organization of the issuer
        with refused(AccessDenied):
            manager.read("app-db")
        return
    with refused(CredentialRefused, because=because):
        manager.check()
    with refused(CredentialRefused, because=because):
        manager.read("app-db")


@each_provider
def test_a_signing_key_may_be_replaced(name: str, connect: Connect, issuer: TokenIssuer, server_of: ServerOf) -> None:
    server_of(name).put("app-db", value())
    assert connect(name).read("app-db")
    issuer.rotate()
    manager = connect(name)
    assert manager.check()
    assert extract(manager.read("app-db"), "password") == SECRET


@each_provider
def test_an_error_of_the_servers_own_identity_passes_through(name: str, connect: Connect) -> None:
    def subject(_: str) -> str:
        raise CredentialRefused("This server has no issuer.", "Set OIDC_ISSUER.")

    manager = connect(name, subject=subject)
    for call in (manager.check, lambda: manager.read("app-db")):
        with pytest.raises(CredentialRefused, match="has no issuer"):
            call()


@each_provider
def test_threads_share_one_handshake(name: str, connect: Connect, issuer: TokenIssuer, server_of: ServerOf) -> None:
    server = server_of(name)
    server.put("app-db", value())
    signed: list[str] = []

    def subject(audience: str) -> str:
        signed.append(audience)
        return issuer.token(audience)

    manager = connect(name, subject=subject)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda _: manager.read("app-db"), range(8)))
    assert len(set(read)) == 1
    assert len(signed) == 1 or name == "azure"  # Microsoft's client shares a token only once it has one


@each_method
def test_a_provider_that_is_not_there(name: str, method: str, connect: Connect, server_of: ServerOf) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        change = {"address": f"http://127.0.0.1:{port}"} if name == "vault" else {}
        manager = connect(name, method, endpoints=server_of(name).unreachable(port), **change)
        for call in (manager.check, lambda: manager.read("app-db"), lambda: manager.names("", 1)):
            with refused(ProviderUnavailable):
                call()


@each_method
@pytest.mark.parametrize("fault", ["throttle", "server_error"])
def test_a_provider_that_is_overloaded(
    name: str, method: str, fault: Fault, connect: Connect, server_of: ServerOf
) -> None:
    server = server_of(name)
    server.put("app-db", value())
    manager = connect(name, method)
    for _ in range(2):  # without a token, and with one
        before = len(server.faults.requests)
        with server.faults.during(fault), refused(ProviderUnavailable):
            manager.read("app-db")
        assert len(server.faults.requests) == before + 1, "a request is sent once"
        assert extract(manager.read("app-db"), "password") == SECRET


@each_method
def test_a_provider_that_is_slow(
    name: str,
    method: str,
    connect: Connect,
    server_of: ServerOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "READ_TIMEOUT", 0.3)
    manager = connect(name, method)
    with server_of(name).faults.during("slow"), refused(ProviderUnavailable):
        manager.read("app-db")


@each_method
@pytest.mark.parametrize("fault", ["broken", "huge", "redirect"])
def test_an_answer_that_is_none_of_the_provider(
    name: str, method: str, fault: Fault, connect: Connect, server_of: ServerOf
) -> None:
    server = server_of(name)
    manager = connect(name, method)
    for _ in range(2):
        with server.faults.during(fault), pytest.raises(SecretError) as error:
            manager.read("app-db")
        assert "elsewhere" not in " ".join(server.faults.requests)
        assert SECRET not in str(error.value)
        server.put("app-db", value())
        manager.read("app-db")
