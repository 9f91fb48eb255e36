"""Settings and variables of a deployment over the control API."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from api.control import Person
from api.serving import KEY_RING, raw
from windlass.deployments.variables import open_value
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
SECRET = "sk-never-shown-1234"


@pytest_asyncio.fixture(loop_scope="session")
async def developer(server: Server) -> Person:
    return await Person.of(server, Role.DEVELOPER)


def settings_of(crew: Crew) -> str:
    return f"/deployments/{crew.deployment.slug}/settings"


def variables_of(crew: Crew) -> str:
    return f"/deployments/{crew.deployment.slug}/variables"


async def change(person: Person, crew: Crew, patch: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = await person.value("PATCH", settings_of(crew), json=patch)
    return found


async def test_without_own_settings_the_defaults_of_project_and_server_count(crew: Crew, developer: Person) -> None:
    found = await developer.value("GET", settings_of(crew))
    assert found["own"] == dict.fromkeys(found["own"])
    assert found["settings"] == found["defaults"]
    assert found["settings"]["limits"]["timeout"] == 3600
    assert found["settings"]["retention"] == {"kickoffs": 30, "events": 7, "deliveries": 14, "journal": 1}
    assert found["settings"]["max_waiting"] == 10_000
    assert found["settings"]["retries"]["attempts"] == 1


async def test_a_patch_merges_and_null_resets(crew: Crew, developer: Person) -> None:
    await change(developer, crew, {"concurrency": 2, "limits": {"timeout": 60, "memory_limit": "512 MB"}})
    found = await change(developer, crew, {"weight": 2.5, "limits": {"timeout": None, "file_limit": 3}})
    own = {name: value for name, value in found["own"].items() if value is not None}
    assert own == {"concurrency": 2, "weight": 2.5, "limits": {"memory_limit": 512 << 20, "file_limit": 3}}
    assert (found["settings"]["limits"]["timeout"], found["settings"]["limits"]["memory_limit"]) == (3600, 512 << 20)
    assert (found["settings"]["concurrency"], found["defaults"]["concurrency"]) == (2, None)
    found = await change(developer, crew, {"concurrency": None, "weight": None, "limits": None})
    assert found["settings"] == found["defaults"]


async def test_settings_act_on_the_queue_and_the_status_at_once(crew: Crew, developer: Person) -> None:
    await change(developer, crew, {"concurrency": 3, "weight": 4, "max_waiting": 1, "profile": "live"})
    columns = "SELECT concurrency, weight, max_waiting, profile FROM deployments WHERE slug = %(slug)s"
    row = await crew.server.database.row(columns, {"slug": crew.deployment.slug})
    assert row == {"concurrency": 3, "weight": 4, "max_waiting": 1, "profile": "live"}
    await crew.kickoff()
    assert (await crew.post({"inputs": {"topic": "x", "audience": "y"}})).status_code == 429


async def test_a_deployment_has_the_warnings_of_its_version_and_of_its_newest_kickoffs(
    crew: Crew, developer: Person
) -> None:
    version, slug = crew.deployment.version, crew.deployment.slug
    assert version is not None
    of_version = {"code": "secret_in_prompt", "message": "The value of A is in a prompt."}
    manifest = replace(version.manifest, warnings=(of_version,))
    await crew.server.deployments.register(slug, digest="1" * 64, source=version.source, manifest=manifest)
    ids = [await crew.kickoff() for _ in range(3)]
    again = [of_version, {"code": "unstable_task_description", "message": "The description differs."}]
    large = [{"code": "large", "message": os.urandom(50_000).hex()}]
    for kickoff, warnings in zip(ids, [again, again, large], strict=True):
        values = {"id": kickoff, "warnings": json.dumps(warnings)}
        await crew.server.database.execute("UPDATE kickoffs SET warnings = %(warnings)s WHERE id = %(id)s", values)
    found = await developer.value("GET", f"/deployments/{slug}")
    assert [(one["code"], one["kickoff_id"], one["kickoffs"]) for one in found["warnings"]] == [
        ("secret_in_prompt", None, 2),
        ("unstable_task_description", str(ids[1]), 2),
    ]


async def test_settings_stay_when_a_new_version_is_registered(crew: Crew, developer: Person) -> None:
    await change(developer, crew, {"concurrency": 3})
    version = crew.deployment.version
    assert version is not None
    source = {**version.source, "options": {"concurrency": 9, "weight": 2}}
    await crew.server.deployments.register(
        crew.deployment.slug, digest="1" * 64, source=source, manifest=version.manifest
    )
    found = await developer.value("GET", settings_of(crew))
    assert (found["settings"]["concurrency"], found["defaults"]["concurrency"]) == (3, 9)
    assert found["settings"]["weight"] == 2
    assert found["project"] == {"concurrency": 9, "weight": 2}
    columns = "SELECT concurrency, weight FROM deployments WHERE slug = %(slug)s"
    assert await crew.server.database.row(columns, {"slug": crew.deployment.slug}) == {"concurrency": 3, "weight": 2}


async def test_no_change_is_lost_when_many_are_made_at_once(crew: Crew, developer: Person) -> None:
    limits = ["timeout", "memory_limit", "process_limit", "output_limit", "file_limit", "event_limit"]
    await asyncio.gather(*(change(developer, crew, {"limits": {name: 7}}) for name in limits))
    found = await developer.value("GET", settings_of(crew))
    assert found["own"]["limits"] == dict.fromkeys(limits, 7)


@pytest.mark.parametrize(
    ("patch", "member"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": "2"}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"reuse": 0}, "reuse"),
        ({"reuse": 1001}, "reuse"),
        ({"weight": 0}, "weight"),
        ({"weight": 10**400}, "weight"),
        ({"max_waiting": 2**31}, "max_waiting"),
        ({"profile": "other"}, "profile"),
        ({"nothing": 1}, "nothing"),
        ({"limits": {"timeout": -1}}, "limits"),
        ({"limits": {"nothing": 1}}, "limits"),
        ({"limits": [1]}, "limits"),
        ({"retries": {"attempts": 101}}, "retries"),
        ({"retention": {"kickoffs": "soon"}}, "retention"),
        ({"cors_origins": ["https://a.example/path"]}, "cors_origins"),
        ({"cors_origins": ["javascript:alert(1)"]}, "cors_origins"),
        ({"cors_origins": ["https://a.example\r\nx: y"]}, "cors_origins"),
        ({"cors_origins": ["https://a.example"] * 101}, "cors_origins"),
        ({"rate_limit": 0}, "rate_limit"),
    ],
)
async def test_an_invalid_setting_is_named_and_nothing_changes(
    crew: Crew, developer: Person, patch: dict[str, Any], member: str
) -> None:
    before = await developer.value("GET", settings_of(crew))
    error = await developer.refused("PATCH", settings_of(crew), status=400, json={"preload": "project", **patch})
    assert [name for name in error["details"]["invalid"] if name.startswith(member)], error
    assert await developer.value("GET", settings_of(crew)) == before


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"x", b"{", b'{"weight": NaN}', b"[" * 100_000, b'{"profile": "\\ud800"}']
)
async def test_a_body_that_is_no_object_is_refused(crew: Crew, developer: Person, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    error = await developer.refused("PATCH", settings_of(crew), status=400, content=body, headers=headers)
    assert error["message"]


async def test_a_body_that_is_too_large_is_refused(crew: Crew, developer: Person) -> None:
    body = json.dumps({"cors_origins": ["https://" + "a" * 1_100_000]})
    assert (await developer.request("PATCH", settings_of(crew), content=body)).status_code == 413


async def test_a_stranger_is_refused_before_the_body_is_read(crew: Crew) -> None:
    head = f"PATCH /api/v1{settings_of(crew)} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    status, _, _ = await raw(crew.server.port, head.encode())
    assert status == 401


async def test_variables_are_set_kept_changed_and_unset(crew: Crew, developer: Person) -> None:
    path = variables_of(crew)
    given = [{"name": "MODEL", "value": "gpt", "secret": False}, {"name": "KEY", "value": SECRET, "secret": True}]
    first = await developer.value("PUT", path, json={"variables": given})
    assert [(one["name"], one["value"], one["secret"]) for one in first["items"]] == [
        ("KEY", None, True),
        ("MODEL", "gpt", False),
    ]
    assert {one["updated_by"] for one in first["items"]} == {developer.name}
    await developer.value("PUT", path, json={"variables": [{"name": "EMPTY", "value": "", "secret": False}]})
    one = await developer.value("PUT", f"{path}/MODEL", json={"value": "other", "secret": False})
    assert (one["name"], one["value"]) == ("MODEL", "other")
    found = await developer.value("GET", path)
    assert [(one["name"], one["value"]) for one in found["items"]] == [("EMPTY", ""), ("KEY", None), ("MODEL", "other")]
    assert (await developer.request("DELETE", f"{path}/MODEL")).status_code == 204
    assert (await developer.request("DELETE", f"{path}/MODEL")).status_code == 404
    assert [one["name"] for one in (await developer.value("GET", path))["items"]] == ["EMPTY", "KEY"]


async def test_a_viewer_sees_names_and_no_values(crew: Crew, developer: Person) -> None:
    await developer.value("PUT", f"{variables_of(crew)}/PLAIN", json={"value": "visible", "secret": False})
    viewer = await Person.of(crew.server, Role.VIEWER)
    found = await viewer.value("GET", variables_of(crew))
    assert [(one["name"], one["value"]) for one in found["items"]] == [("PLAIN", None)]


async def test_no_value_is_in_plain_text_in_the_database_and_in_the_audit_log(crew: Crew, developer: Person) -> None:
    for name, secret in (("A", True), ("B", False)):
        await developer.value("PUT", f"{variables_of(crew)}/{name}", json={"value": SECRET, "secret": secret})
    rows = await crew.server.database.rows(
        "SELECT name, value FROM variables WHERE deployment_id = %(id)s", {"id": crew.deployment.id}
    )
    assert [open_value(KEY_RING, crew.deployment.id, row["name"], row["value"]) for row in rows] == [SECRET] * 2
    assert not [row for row in rows if SECRET in row["value"]]
    entries = await crew.server.database.rows(
        "SELECT details::text AS details FROM audit_log WHERE target = %(slug)s", {"slug": crew.deployment.slug}
    )
    assert len(entries) == 2
    assert not [entry for entry in entries if SECRET in entry["details"]]


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "", "value": SECRET},
        {"name": "1A", "value": SECRET},
        {"name": "A B", "value": SECRET},
        {"name": "A\n", "value": SECRET},
        {"name": "WINDLASS_HOME", "value": SECRET},
        {"name": "A" * 256, "value": SECRET},
        {"name": "NUL", "value": f"{SECRET}\0"},
        {"name": "LARGE", "value": SECRET * 4000},
        {"name": "NUMBER", "value": 5},
        {"name": "TYPO", "value": SECRET, "secrt": True},
        {"name": "NONE"},
    ],
)
async def test_an_invalid_variable_sets_none_and_no_error_quotes_a_value(
    crew: Crew, developer: Person, variable: dict[str, Any]
) -> None:
    body = {"variables": [{"name": "GOOD", "value": SECRET}, variable]}
    answer = await developer.request("PUT", variables_of(crew), json=body)
    assert answer.status_code == 400, answer.text
    assert SECRET not in answer.text
    assert (await developer.value("GET", variables_of(crew)))["items"] == []


async def test_a_variable_that_is_given_twice_is_refused(crew: Crew, developer: Person) -> None:
    body = {"variables": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}
    assert "twice" in (await developer.refused("PUT", variables_of(crew), status=400, json=body))["message"]


async def test_too_many_variables_are_refused_and_none_is_set(crew: Crew, developer: Person) -> None:
    large = [{"name": f"V{number}", "value": "x" * 60_000} for number in range(16)]
    await developer.refused("PUT", variables_of(crew), status=409, json={"variables": large})
    small = [{"name": f"V{number}", "value": "x"} for number in range(500)]
    await developer.value("PUT", variables_of(crew), json={"variables": small})
    await developer.refused("PUT", f"{variables_of(crew)}/ONE_MORE", status=409, json={"value": "x"})
    assert len((await developer.value("GET", variables_of(crew)))["items"]) == 500


async def test_two_who_set_the_same_variables_in_another_order_do_not_block_each_other(
    crew: Crew, developer: Person
) -> None:
    names = [f"V{number}" for number in range(30)]
    bodies = [
        {"variables": [{"name": name, "value": str(turn), "secret": False} for name in (names, names[::-1])[turn % 2]]}
        for turn in range(6)
    ]
    answers = await asyncio.gather(*(developer.request("PUT", variables_of(crew), json=body) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}
    values = {one["value"] for one in (await developer.value("GET", variables_of(crew)))["items"]}
    assert len(values) == 1


async def test_only_an_owner_changes_the_egress(crew: Crew, developer: Person) -> None:
    owner = await Person.of(crew.server, Role.OWNER)
    patch = {"egress": ["unrestricted"], "weight": 2}
    refused = await developer.refused("PATCH", settings_of(crew), status=403, json=patch)
    assert refused["message"].startswith("Only a person with the role owner may change egress.")
    found = await change(owner, crew, {"egress": "api.openai.com:443, *.serper.dev"})
    assert found["settings"]["egress"] == ["api.openai.com:443", "*.serper.dev"]
    assert found["own"]["weight"] is None
    assert (await change(developer, crew, {"weight": 2}))["own"]["egress"] == ["api.openai.com:443", "*.serper.dev"]
    assert (await change(owner, crew, {"egress": None}))["own"]["egress"] is None


async def test_only_an_owner_opens_files_of_the_server(crew: Crew, developer: Person) -> None:
    owner = await Person.of(crew.server, Role.OWNER)
    await developer.refused("PATCH", settings_of(crew), status=403, json={"files": ["/data:ro"]})
    found = await change(owner, crew, {"files": ["/data/models:ro"]})
    assert found["settings"]["files"] == ["/data/models:ro"]
    refused = await owner.refused("PATCH", settings_of(crew), status=400, json={"files": ["/:rw"]})
    assert "must be an absolute path" in json.dumps(refused)


async def test_an_egress_that_is_none_is_refused_with_the_reason(crew: Crew) -> None:
    owner = await Person.of(crew.server, Role.OWNER)
    patch = {"egress": ["https://api.openai.com"]}
    refused = await owner.refused("PATCH", settings_of(crew), status=400, json=patch)
    assert "is a URL: name its host alone" in json.dumps(refused)
