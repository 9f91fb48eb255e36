"""Users, tokens and the audit log over the control API."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from api.control import Person
from api.serving import unknown_id, until
from windlass.kickoffs.boundary_parts import network
from windlass.kickoffs.ids import new_id
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
_numbers = itertools.count(1)


@pytest_asyncio.fixture(loop_scope="session")
async def owner(server: Server) -> Person:
    return await Person.of(server, Role.OWNER)


def new_name() -> str:
    return f"person {next(_numbers)}"


async def status_of(person: Person, path: str = "/me") -> int:
    return (await person.get(path)).status_code


async def test_an_owner_adds_changes_and_lists_users(owner: Person) -> None:
    name = new_name()
    added = await owner.value("POST", "/users", status=201, json={"name": name, "role": "viewer"})
    assert (added["name"], added["role"], added["disabled"]) == (name, "viewer", False)
    await owner.refused("POST", "/users", status=409, json={"name": name})
    changed = await owner.value("PATCH", f"/users/{name}", json={"role": "developer", "disabled": True})
    assert (changed["role"], changed["disabled"]) == ("developer", True)
    changed = await owner.value("PATCH", f"/users/{name}", json={"role": None, "disabled": False})
    assert (changed["role"], changed["disabled"]) == (None, False)
    users: list[dict[str, Any]] = []
    cursor = None
    for _ in range(100):
        page = await owner.value("GET", "/users", params={"limit": 3, **({"cursor": cursor} if cursor else {})})
        users += page["items"]
        if (cursor := page["next_cursor"]) is None:
            break
    assert name in [one["name"] for one in users]
    assert len({one["name"] for one in users}) == len(users)
    await owner.refused("PATCH", "/users/nobody", status=404, json={"role": "viewer"})


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""},
        {"name": " a"},
        {"name": "a\nb"},
        {"name": "\x00"},
        {"name": "a\u202eb"},
        {"name": "x" * 101},
        {"name": 5},
        {"name": "good", "role": "admin"},
        {"name": "good", "rôle": "owner"},
        {},
    ],
)
async def test_an_invalid_user_is_refused(owner: Person, body: dict[str, Any]) -> None:
    await owner.refused("POST", "/users", status=400, json=body)


async def test_one_owner_always_remains(server: Server, owner: Person) -> None:
    others = [row.name for row in await server.tokens.users() if row.role is Role.OWNER and row.name != owner.name]
    for name in others:
        await owner.value("PATCH", f"/users/{name}", json={"role": "viewer"})
    await owner.refused("PATCH", f"/users/{owner.name}", status=409, json={"role": "developer"})
    await owner.refused("PATCH", f"/users/{owner.name}", status=409, json={"role": None})
    await owner.refused("PATCH", f"/users/{owner.name}", status=409, json={"disabled": True})
    assert await status_of(owner, "/users") == 200


async def test_two_owners_who_demote_each_other_at_once_leave_one(server: Server, owner: Person) -> None:
    for row in await server.tokens.users():
        if row.role is Role.OWNER and row.name != owner.name:
            await server.tokens.set_role(row.name, None)
    other = await Person.of(server, Role.OWNER)
    answers = await asyncio.gather(
        owner.request("PATCH", f"/users/{other.name}", json={"role": "viewer"}),
        other.request("PATCH", f"/users/{owner.name}", json={"role": "viewer"}),
    )
    assert sorted(answer.status_code for answer in answers) in ([200, 409], [200, 403])
    assert len([row for row in await server.tokens.users() if row.role is Role.OWNER]) == 1


async def test_a_token_is_created_used_listed_and_revoked(server: Server) -> None:
    viewer = await Person.of(server, Role.VIEWER)
    made = await viewer.value("POST", "/tokens", status=201, json={"name": "laptop", "expires_in_days": 30})
    second = Person(server, viewer.name, made["token"])
    me = await second.value("GET", "/me")
    assert (me["user"], me["role"], me["token"]["name"]) == (viewer.name, "viewer", "laptop")
    assert me["token"]["expires_at"] == made["expires_at"] is not None
    listed = (await viewer.value("GET", "/tokens"))["items"]
    assert [one["name"] for one in listed] == ["test", "laptop"]
    assert {one["user"] for one in listed} == {viewer.name}
    assert made["token"] not in str(listed)
    assert (await viewer.request("DELETE", f"/tokens/{made['id']}")).status_code == 204
    assert await status_of(second) == 401
    both = (await viewer.value("GET", "/tokens?revoked=true"))["items"]
    assert [(one["name"], one["revoked_at"] is None) for one in both] == [("test", True), ("laptop", False)]
    assert [one["name"] for one in (await viewer.value("GET", "/tokens"))["items"]] == ["test"]
    assert (await viewer.request("DELETE", f"/tokens/{made['id']}")).status_code == 404


async def test_only_an_owner_makes_and_revokes_tokens_of_others(server: Server, owner: Person, crew: Crew) -> None:
    developer, other = await Person.of(server, Role.DEVELOPER), await Person.of(server, Role.VIEWER)
    await developer.refused("POST", "/tokens", status=403, json={"name": "x", "user": other.name})
    (token,) = (await other.value("GET", "/tokens"))["items"]
    assert (await developer.request("DELETE", f"/tokens/{token['id']}")).status_code == 404
    made = await owner.value("POST", "/tokens", status=201, json={"name": "x", "user": other.name})
    assert (await Person(server, other.name, made["token"]).value("GET", "/me"))["role"] == "viewer"
    listed = (await owner.value("GET", "/tokens", params={"limit": 1000}))["items"]
    of_crew = [one for one in listed if one["deployment"] == crew.deployment.slug]
    assert [one["kind"] for one in of_crew] == ["organization", "user"]
    assert (await owner.request("DELETE", f"/tokens/{of_crew[0]['id']}")).status_code == 204

    async def is_refused() -> bool:
        return (await crew.get("/inputs")).status_code == 401

    await until(is_refused, "the token of the crew is refused")


@pytest.mark.parametrize("token", ["x", "%00", "01a2068d-c97f-704c-99a7-ce5d0e3ba08a", "abcd"])
async def test_an_unknown_token_is_not_there(owner: Person, token: str) -> None:
    assert (await owner.request("DELETE", f"/tokens/{token}")).status_code in {400, 404}


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "expires_in_days": 0},
        {"name": "x", "expires_in_days": 3651},
        {"name": "x", "expires_in_days": "1"},
        {"name": ""},
        {},
        {"name": "x", "user": "a\0"},
    ],
)
async def test_an_invalid_token_is_refused(owner: Person, body: dict[str, Any]) -> None:
    await owner.refused("POST", "/tokens", status=400, json=body)


async def test_tokens_for_unknown_disabled_and_powerless_users_are_refused(server: Server, owner: Person) -> None:
    await owner.refused("POST", "/tokens", status=404, json={"name": "x", "user": "nobody at all"})
    powerless, disabled = new_name(), await Person.of(server, Role.VIEWER)
    await server.tokens.add_user(powerless)
    await server.tokens.disable_user(disabled.name)
    for name in (powerless, disabled.name):
        await owner.refused("POST", "/tokens", status=409, json={"name": "x", "user": name})


async def test_a_user_has_at_most_a_hundred_tokens(server: Server) -> None:
    viewer = await Person.of(server, Role.VIEWER)
    for _ in range(99):
        await server.tokens.create_personal(viewer.name, "x")
    await viewer.refused("POST", "/tokens", status=409, json={"name": "x"})


async def test_the_audit_log_has_who_what_when_and_from_where(owner: Person) -> None:
    name = new_name()
    await owner.value("POST", "/users", status=201, json={"name": name, "role": "viewer"})
    await owner.value("PATCH", f"/users/{name}", json={"role": "developer"})
    entries = (await owner.value("GET", "/audit", params={"target": name}))["items"]
    assert [(one["action"], one["user"], one["address"]) for one in entries] == [
        ("user.set_role", owner.name, "127.0.0.1"),
        ("user.add", owner.name, "127.0.0.1"),
    ]
    assert entries[0]["details"] == {"role": "developer", "before": "viewer"}
    first = await owner.value("GET", "/audit", params={"target": name, "limit": 1})
    second = await owner.value("GET", "/audit", params={"target": name, "limit": 1, "cursor": first["next_cursor"]})
    assert [one["action"] for one in first["items"] + second["items"]] == ["user.set_role", "user.add"]
    mine = {"user": owner.name, "action": "user.add", "since": entries[1]["at"], "until": entries[0]["at"]}
    assert [one["target"] for one in (await owner.value("GET", "/audit", params=mine))["items"]] == [name]
    below = (await owner.value("GET", "/audit", params={"target": name, "action": "user"}))["items"]
    assert len(below) == 2
    assert (await owner.value("GET", "/audit", params={"target": name, "action": "use"}))["items"] == []


async def test_a_refused_change_is_in_no_audit_log(owner: Person) -> None:
    name = new_name()
    for _ in range(2):
        await owner.request("POST", "/users", json={"name": name, "role": "viewer"})
    await owner.refused("PATCH", f"/users/{name}", status=400, json={"role": "king"})
    entries = (await owner.value("GET", "/audit", params={"target": name}))["items"]
    assert [one["action"] for one in entries] == ["user.add"]


async def test_the_audit_log_is_exported_as_csv_without_formulas(owner: Person) -> None:
    name = f"=cmd|' /C calc'!A{next(_numbers)}"
    await owner.value("POST", "/users", status=201, json={"name": name, "role": "viewer"})
    answer = await owner.get("/audit", params={"target": name}, headers={"Accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    head, row = csv.reader(io.StringIO(answer.text))
    assert head[:5] == ["id", "at", "user", "token_id", "action"]
    assert (row[4], row[5]) == ("user.add", f"'{name}")
    assert json.loads(row[head.index("details")])["role"] == "viewer"
    everything = await owner.get("/audit", headers={"Accept": "text/csv"})
    assert len(everything.text.splitlines()) > 2


async def test_workers_are_listed(server: Server, owner: Person) -> None:
    await server.database.execute(
        "INSERT INTO workers (id, host, pid, version, slots, alive_until) "
        "VALUES (%(id)s, 'here', 7, '1', 4, now() + interval '1 hour')",
        {"id": unknown_id()},
    )
    found = (await owner.value("GET", "/workers"))["items"]
    await server.kickoffs.workers.seen(worker := new_id(), slots=1, lease=60, boundary=[network("not permitted")])
    reported = (await owner.value("GET", "/workers"))["items"]
    await server.kickoffs.workers.leave(worker)
    await server.database.execute("DELETE FROM workers WHERE host = 'here'")  # other tests have no worker
    assert [(one["host"], one["pid"], one["slots"], one["alive"]) for one in found] == [("here", 7, 4, True)]
    assert [found[0][name] for name in ("version", "running", "zygotes", "zygote_memory")] == ["1", 0, 0, 0]
    assert found[0]["boundary"] == [], "a worker of a former release"
    (boundary,) = [one["boundary"] for one in reported if one["host"] != "here"]
    assert [(one["part"], one["holds"]) for one in boundary] == [("network", "no")]
    assert "not permitted" in boundary[0]["text"]
