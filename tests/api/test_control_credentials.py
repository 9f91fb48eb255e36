"""Credentials for secret managers over the control API, and variables that take their values from them."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from api.control import Person
from api.fake_vault import SECRET, FakeVault, running
from api.serving import KEY_RING
from patience import DEADLINE
from windlass.deployments import credentials
from windlass.deployments.configurations import open_configuration
from windlass.rights import Role
from windlass.store.credentials import CredentialStore
from windlass.store.variables import ReadValues, VariableStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
_numbers = itertools.count(1)
KEYS = {"region": "eu-central-1", "access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": SECRET}
BY_IDENTITY = {"region": "eu-central-1", "role_arn": "arn:aws:iam::123456789012:role/windlass"}


@pytest_asyncio.fixture(loop_scope="session")
async def owner(server: Server) -> Person:
    return await Person.of(server, Role.OWNER)


@pytest_asyncio.fixture(loop_scope="session")
async def developer(server: Server) -> Person:
    return await Person.of(server, Role.DEVELOPER)


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    with running(FakeVault()) as server:
        yield server


async def added(person: Person, **members: Any) -> dict[str, Any]:
    given = {"name": f"c{next(_numbers)}", "provider": "aws", "method": "access_keys", "configuration": KEYS}
    given |= {"roles": ["developer"]}
    found: dict[str, Any] = await person.value("POST", "/credentials", status=201, json={**given, **members})
    return found


async def of_vault(person: Person, vault: FakeVault, token: str = SECRET) -> str:
    made = await added(
        person, provider="vault", method="token", configuration={"address": vault.address, "token": token}
    )
    return str(made["name"])


async def stored(server: Server, name: str) -> dict[str, Any]:
    """Returns the configuration with its secret members."""
    row = await CredentialStore(server.database).get(name)
    assert row is not None
    return open_configuration(KEY_RING, row)


async def test_a_credential_is_added_shown_and_removed_without_its_secret(
    server: Server, owner: Person, developer: Person
) -> None:
    made = await added(owner)
    name = made["name"]
    assert made["configuration"] == {one: KEYS[one] for one in ("region", "access_key_id")}
    assert (made["read"], made["is_default"], made["variables"], made["created_by"]) == (
        "at deploy",
        False,
        0,
        owner.name,
    )
    assert await developer.value("GET", f"/credentials/{name}") == made
    assert made in (await developer.value("GET", "/credentials"))["items"]
    assert await stored(server, name) == KEYS
    (row,) = await server.database.rows("SELECT * FROM credentials WHERE name = %(name)s", {"name": name})
    assert SECRET not in str(row)
    await owner.refused("POST", "/credentials", status=409, json={**body_of(made), "configuration": KEYS})
    assert (await owner.request("DELETE", f"/credentials/{name}")).status_code == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/secrets")):
        await owner.refused(method, f"/credentials/{name}{path}", status=404)
    entries = await owner.value("GET", "/audit", params={"target": name})
    assert [one["action"] for one in entries["items"]] == ["credential.remove", "credential.add"]
    assert SECRET not in json.dumps(entries)


def body_of(made: dict[str, Any]) -> dict[str, Any]:
    return {one: made[one] for one in ("name", "provider", "method", "configuration")}


async def test_members_that_are_left_out_and_empty_secrets_are_kept(server: Server, owner: Person) -> None:
    name = (await added(owner))["name"]
    for empty in ("", None):
        changes = {"region": "us-east-1", "secret_access_key": empty}
        found = await owner.value("PATCH", f"/credentials/{name}", json={"configuration": changes})
        assert found["configuration"]["region"] == "us-east-1"
        assert (await stored(server, name))["secret_access_key"] == SECRET
    await owner.value("PATCH", f"/credentials/{name}", json={"configuration": {"secret_access_key": "another"}})
    assert (await stored(server, name))["secret_access_key"] == "another"
    found = await owner.value("PATCH", f"/credentials/{name}", json={"name": f"{name}-new", "is_default": False})
    assert (found["name"], found["configuration"]["region"]) == (f"{name}-new", "us-east-1")


async def test_another_method_keeps_the_members_that_it_has(server: Server, owner: Person) -> None:
    name = (await added(owner))["name"]
    role = {"role_arn": BY_IDENTITY["role_arn"], "external_id": "acme"}
    await owner.value("PATCH", f"/credentials/{name}", json={"method": "assume_role", "configuration": role})
    assert await stored(server, name) == {**KEYS, **role}
    for empty in (None, ""):
        await owner.value("PATCH", f"/credentials/{name}", json={"configuration": {"external_id": empty}})
        assert "external_id" not in await stored(server, name)
        await owner.value("PATCH", f"/credentials/{name}", json={"configuration": {"external_id": "acme"}})
    found = await owner.value("PATCH", f"/credentials/{name}", json={"method": "workload_identity"})
    assert found["read"] == "at each kickoff"
    assert await stored(server, name) == BY_IDENTITY


async def test_a_kept_secret_is_not_sent_to_another_address(owner: Person, vault: FakeVault) -> None:
    path = f"/credentials/{await of_vault(owner, vault)}"
    with running(FakeVault()) as other:
        change = {"configuration": {"address": other.address}}
        error = await owner.refused("PATCH", path, status=400, json=change)
        assert error["details"]["invalid"] == {"token": "must be given again with another address"}
        change["configuration"]["token"] = "mine"
        await owner.value("PATCH", path, json=change)
        assert not (await owner.value("POST", f"{path}/test"))["ok"]
        assert other.tokens == ["mine"]


@pytest.mark.parametrize(
    "members",
    [
        {"name": "Upper"},
        {"name": "a/b"},
        {"name": "-a"},
        {"name": "a" * 64},
        {"name": "providers"},
        {"name": "test"},
        {"provider": "nobody"},
        {"method": "token"},
        {"configuration": {**KEYS, "region": "evil.com/#"}},
        {"configuration": {**KEYS, "secret_access_key": ""}},
        {"configuration": {**KEYS, "secret_access_key": 5}},
        {"configuration": {**KEYS, "session_token": SECRET}},
        {"configuration": {"region": SECRET}},
        {"configuration": []},
        {"unknown": 1},
    ],
)
async def test_a_bad_credential_is_refused_and_no_error_quotes_a_value(owner: Person, members: dict[str, Any]) -> None:
    given = {"name": "refused", "provider": "aws", "method": "access_keys", "configuration": KEYS, **members}
    answer = await owner.request("POST", "/credentials", json=given)
    assert answer.status_code == 400, answer.text
    assert SECRET not in answer.text


async def test_a_credential_that_cannot_be_decrypted_does_not_hide_the_others(server: Server, owner: Person) -> None:
    name, other = (await added(owner))["name"], (await added(owner))["name"]
    await server.database.execute(
        "UPDATE credentials SET configuration = (SELECT configuration FROM credentials WHERE name = %(other)s) "
        "WHERE name = %(name)s",
        {"name": name, "other": other},
    )
    found = {one["name"]: one["configuration"] for one in (await owner.value("GET", "/credentials"))["items"]}
    assert (found[name], found[other]["region"]) == (None, KEYS["region"])
    answer = await owner.request("POST", f"/credentials/{name}/test")
    assert (answer.status_code, answer.json()["ok"], answer.json()["code"]) == (200, False, "bad_credential")
    found = await owner.value("PATCH", f"/credentials/{name}", json={"configuration": KEYS})
    assert found["configuration"]["region"] == KEYS["region"]


async def test_the_members_that_are_wrong_are_named(owner: Person) -> None:
    body = {
        "name": "x",
        "provider": "aws",
        "method": "assume_role",
        "configuration": {"region": "moon", "colour": "red"},
    }
    error = await owner.refused("POST", "/credentials", status=400, json=body)
    assert error["details"]["invalid"].keys() == {"region", "access_key_id", "secret_access_key", "role_arn", "colour"}


async def test_each_provider_has_one_default_and_variables_follow_it(
    crew: Crew, owner: Person, developer: Person
) -> None:
    path = f"/deployments/{crew.deployment.slug}/variables"
    azure = {
        "vault_url": "https://acme.vault.azure.net",
        "tenant_id": "00000000-0000-0000-0000-000000000001",
        "client_id": "00000000-0000-0000-0000-000000000002",
    }
    given = {"name": "KEY", "source": {"type": "default", "provider": "azure"}, "secret_name": "db-password"}
    error = await developer.refused("PUT", path, status=400, json={"variables": [given]})
    assert error["details"] == {"code": "no_credential"}
    first = await added(
        owner,
        provider="azure",
        method="client_secret",
        configuration={**azure, "client_secret": SECRET},
        is_default=True,
    )
    (item,) = (await developer.value("PUT", path, json={"variables": [given]}))["items"]
    assert item["source"] == {"type": "default", "provider": "azure", "credential": None}
    assert (item["read"], item["read_at"], item["secret"], item["value"]) == ("at deploy", None, True, None)
    assert (await owner.value("GET", f"/credentials/{first['name']}"))["variables"] == 1
    for method, more in (("DELETE", {}), ("PATCH", {"json": {"is_default": False}})):
        error = await owner.refused(method, f"/credentials/{first['name']}", status=409, **more)
        assert error["details"]["variables"] == [f"{crew.deployment.slug}/KEY"]
    second = await added(owner, provider="azure", method="workload_identity", configuration=azure)
    await owner.value("PATCH", f"/credentials/{second['name']}", json={"is_default": True})
    (item,) = (await developer.value("GET", path))["items"]
    assert item["read"] == "at each kickoff"
    assert not (await owner.value("GET", f"/credentials/{first['name']}"))["is_default"]
    assert (await owner.request("DELETE", f"/credentials/{first['name']}")).status_code == 204


async def test_a_variable_takes_its_value_from_a_credential_and_back(
    crew: Crew, owner: Person, developer: Person
) -> None:
    path, name = f"/deployments/{crew.deployment.slug}/variables/KEY", (await added(owner))["name"]
    source = {"type": "credential", "provider": None, "credential": name}
    item = await developer.value("PUT", path, json={"source": source, "secret_name": "app/db#password"})
    assert item["source"] == {**source, "provider": "aws"}
    assert (item["secret_name"], item["read"]) == ("app/db#password", "at deploy")
    again = {"source": item["source"], "secret_name": "app/db#user"}  # as it was shown, with another secret
    assert (await developer.value("PUT", path, json=again))["secret_name"] == "app/db#user"
    viewer = await Person.of(crew.server, Role.VIEWER)
    assert (await viewer.value("GET", path.rpartition("/")[0]))["items"][0]["secret_name"] == "app/db#user"
    for without in ({}, {"value": None, "secret": False}):
        error = await developer.refused("PUT", path, status=400, json=without)
        assert "no value of its own" in error["message"]
    item = await developer.value("PUT", path, json={"value": "direct"})
    assert item["source"] == {"type": "value", "provider": None, "credential": None}
    assert (item["secret_name"], item["read"]) == (None, None)
    assert (await owner.request("DELETE", f"/credentials/{name}")).status_code == 204
    entries = await owner.value("GET", "/audit", params={"target": crew.deployment.slug, "limit": 10})
    assert [one["details"]["variables"][0].get("secret_name") for one in entries["items"]] == [
        None,
        "app/db#user",
        "app/db#password",
    ]


async def test_an_empty_value_keeps_the_old_one_and_shows_no_secret(crew: Crew, developer: Person) -> None:
    path = f"/deployments/{crew.deployment.slug}/variables/KEY"
    await developer.refused("PUT", path, status=400, json={"secret": False})
    await developer.value("PUT", path, json={"value": "visible", "secret": False})
    assert (await developer.value("PUT", path, json={"value": None, "secret": False}))["value"] == "visible"
    assert (await developer.value("PUT", path, json={"secret": True}))["value"] is None
    error = await developer.refused("PUT", path, status=400, json={"secret": False})
    assert "is secret" in error["message"]
    (row,) = await crew.server.database.rows(
        "SELECT value, secret FROM variables WHERE deployment_id = %(id)s", {"id": crew.deployment.id}
    )
    assert row["secret"]


async def test_a_variable_that_is_read_at_deploy_keeps_its_value_until_then(
    crew: Crew, owner: Person, developer: Person
) -> None:
    path = f"/deployments/{crew.deployment.slug}/variables/KEY"
    static, store = (await added(owner))["name"], VariableStore(crew.server.database)
    await developer.value("PUT", path, json={"value": "direct"})
    (before,) = await store.sealed(crew.deployment.id)
    await developer.value("PUT", path, json=bound(static))
    (now,) = await store.sealed(crew.deployment.id)
    assert (now.value, now.secret_name) == (before.value, "app")
    at = (await developer.value("PUT", path, json=bound(static)))["updated_at"]
    await store.store_read(crew.deployment.id, ReadValues(datetime.fromisoformat(at), (now,)))
    item = await developer.value("PUT", path, json=bound(static, "other"))
    assert datetime.fromisoformat(item["read_at"]) == datetime.fromisoformat(at)
    dynamic = (await added(owner, method="workload_identity", configuration=BY_IDENTITY))["name"]
    item = await developer.value("PUT", path, json=bound(dynamic))
    assert (item["read"], item["read_at"]) == ("at each kickoff", None)
    (now,) = await store.sealed(crew.deployment.id)
    assert now.value is None, "a value that is read at each kickoff is not stored"


def bound(credential: str, secret: str = "app") -> dict[str, Any]:
    return {"source": {"type": "credential", "credential": credential}, "secret_name": secret}


@pytest.mark.parametrize(
    "members",
    [
        {"secret_name": None},
        {"secret_name": ""},
        {"secret_name": "#key"},
        {"secret_name": "name#"},
        {"secret_name": "name\n"},
        {"secret_name": "a b"},
        {"secret_name": "x" * 1001},
        {"value": SECRET},
        {"secret": False},
        {"source": {"type": "credential"}},
        {"source": {"type": "credential", "credential": "nowhere"}},
        {"source": {"type": "default"}},
        {"source": {"type": "default", "provider": "nobody"}},
        {"source": {"type": "default", "provider": "aws", "credential": "static"}},
        {"source": {"type": "value"}},
        {"source": {"type": "value", "credential": "static"}, "value": SECRET, "secret_name": None},
        {"source": {"type": "other"}},
        {"source": "aws"},
    ],
)
async def test_a_bad_source_is_refused(crew: Crew, owner: Person, developer: Person, members: dict[str, Any]) -> None:
    name = (await added(owner))["name"]
    given = {"name": "KEY", **bound(name), **members}
    path = f"/deployments/{crew.deployment.slug}/variables"
    answer = await developer.request("PUT", path, json={"variables": [given]})
    assert answer.status_code == 400, answer.text
    assert SECRET not in answer.text
    assert (await developer.value("GET", path))["items"] == []


async def test_a_credential_of_another_provider_than_the_named_one_is_refused(
    crew: Crew, owner: Person, developer: Person
) -> None:
    source = {"type": "credential", "provider": "vault", "credential": (await added(owner))["name"]}
    body = {"source": source, "secret_name": "x"}
    error = await developer.refused("PUT", f"/deployments/{crew.deployment.slug}/variables/A", status=400, json=body)
    assert "provider aws" in error["message"]


async def test_a_handshake_says_who_the_server_is_or_why_it_failed(
    owner: Person, developer: Person, vault: FakeVault
) -> None:
    name = await of_vault(owner, vault)
    found = await developer.value("POST", f"/credentials/{name}/test")
    assert found == {"ok": True, "message": "tester", "hint": "", "code": None}
    refused = await of_vault(owner, vault, "wrong-token-5678")
    found = await developer.value("POST", f"/credentials/{refused}/test")
    assert (found["ok"], found["code"]) == (False, "credential_refused")
    assert found["hint"]
    assert "5678" not in str(found)
    unsaved = {"provider": "vault", "method": "token", "configuration": {"address": vault.address, "token": SECRET}}
    assert (await owner.value("POST", "/credentials/test", json=unsaved))["ok"]
    unsaved["configuration"] = {"address": "http://169.254.169.254", "token": SECRET}
    found = await owner.value("POST", "/credentials/test", json=unsaved)
    assert (found["ok"], SECRET in str(found)) == (False, False)


async def test_names_of_secrets_are_completed(owner: Person, developer: Person, vault: FakeVault) -> None:
    name = await of_vault(owner, vault)
    found = await developer.value("GET", f"/credentials/{name}/secrets?prefix=d")
    assert found["items"] == ["db", "draft"]
    assert (await developer.value("GET", f"/credentials/{name}/secrets"))["items"] == ["db", "draft", "mail"]
    refused = await of_vault(owner, vault, "wrong")
    error = await developer.refused("GET", f"/credentials/{refused}/secrets", status=400)
    assert error["details"] == {"code": "access_denied"}
    await developer.refused("GET", f"/credentials/{name}/secrets?prefix=a%00", status=400)


async def test_a_provider_that_cannot_be_reached_is_503_with_a_time_to_retry(owner: Person, developer: Person) -> None:
    with running(FakeVault()) as gone:
        name = await of_vault(owner, gone)
    answer = await developer.request("GET", f"/credentials/{name}/secrets")
    assert (answer.status_code, answer.json()["details"]) == (503, {"code": "provider_unavailable"})
    assert answer.headers["retry-after"]


async def test_a_slow_provider_holds_four_requests_and_no_other_part_of_the_server(
    server: Server, owner: Person, vault: FakeVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await of_vault(owner, vault)
    vault.gate.clear()
    asked = [asyncio.create_task(owner.value("POST", f"/credentials/{name}/test")) for _ in range(credentials.AT_ONCE)]
    for _ in asked:
        assert await asyncio.to_thread(vault.waiting.acquire, timeout=DEADLINE)
    other = await Person.of(server, Role.DEVELOPER)
    answer = await other.request("POST", f"/credentials/{name}/test")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert (await other.value("GET", f"/credentials/{name}"))["name"] == name
    vault.gate.set()
    found = await asyncio.gather(*asked)
    assert all(one["ok"] for one in found)
    monkeypatch.setattr(credentials, "SECONDS", 0.2)
    vault.gate.clear()
    found = await other.value("POST", f"/credentials/{name}/test")
    assert (found["ok"], found["code"]) == (False, "provider_unavailable")


async def test_a_person_who_asks_too_often_is_refused_and_others_are_not(
    server: Server, owner: Person, vault: FakeVault
) -> None:
    name = await of_vault(owner, vault)
    answers = [await owner.request("POST", f"/credentials/{name}/test") for _ in range(int(credentials.BURST) + 1)]
    assert [answer.status_code for answer in answers] == [200] * int(credentials.BURST) + [429]
    other = await Person.of(server, Role.DEVELOPER)
    assert (await other.value("POST", f"/credentials/{name}/test"))["ok"]


async def test_the_providers_are_described_for_forms(developer: Person) -> None:
    found = {one["name"]: one for one in (await developer.value("GET", "/credentials/providers"))["items"]}
    assert found.keys() == {"aws", "google", "azure", "vault"}
    methods = {one["name"]: one for one in found["vault"]["methods"]}
    assert {name: one["read"] for name, one in methods.items()} == {
        "token": "at deploy",
        "approle": "at deploy",
        "workload_identity": "at each kickoff",
    }
    members = {one["name"]: one for one in methods["approle"]["members"]}
    assert (members["secret_id"]["secret"], members["role_id"]["secret"]) == (True, False)
    assert (members["address"]["required"], members["mount"]["default"]) == (True, "secret")
    assert all(one["description"] for of in found.values() for method in of["methods"] for one in method["members"])
    assert all(method["description"] for of in found.values() for method in of["methods"])
