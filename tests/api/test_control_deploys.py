"""Deployments, builds, versions and removal over the control API. Tests do the builds through the store."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import zipfile
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import pytest_asyncio

from api.control import Person
from api.serving import manifest, raw, unknown_id, until
from patience import DEADLINE
from windlass.api.control_api.upload_limit import AT_ONCE
from windlass.lifecycle.accept import Stops
from windlass.lifecycle.deletion import Deletions, KickoffsStillOpen, UserDeletion
from windlass.lifecycle.removals import Removals
from windlass.rights import Role
from windlass.store.builds import BuildStore, NewLine, NewVersion
from windlass.store.managing import ManagingStore
from windlass.store.retention import RetentionStore

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
_numbers = itertools.count(1)
ZIP = {"Content-Type": "application/zip"}
JSON = {"Content-Type": "application/json"}


@pytest_asyncio.fixture(loop_scope="session")
async def developer(server: Server) -> Person:
    return await Person.of(server, Role.DEVELOPER)


def zipped(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in (files or {"main.py": f"number = {next(_numbers)}"}).items():
            archive.writestr(name, text)
    return content.getvalue()


def new_name() -> str:
    return f"deployed-{next(_numbers)}"


async def created(person: Person, name: str | None = None, content: bytes | None = None) -> dict[str, Any]:
    name = name or new_name()
    found: dict[str, Any] = await person.value(
        "POST", "/deployments", status=201, params={"name": name}, content=content or zipped(), headers=ZIP
    )
    return found


async def rebuilt(person: Person, slug: str, **more: Any) -> dict[str, Any]:
    answer = await person.value(
        "POST", f"/deployments/{slug}/builds", status=202, content=zipped(), headers=ZIP, **more
    )
    build: dict[str, Any] = answer["build"]
    return build


async def finish(server: Server, build: dict[str, Any]) -> None:
    """Ends the build as a worker does."""
    store = BuildStore(server.database)
    turn = await store.begin(UUID(build["id"]))
    assert turn is not None
    source = {"kind": "crew", "entrypoint": "main", "snapshot": turn.snapshot, "environment": None, "root": ""}
    await store.add_lines(turn, 0, [NewLine(0.0, "info", "building"), NewLine(1.0, "warning", "nearly done")])
    await store.publish(turn, NewVersion("1" * 64, source, manifest()), lambda *_: {"inputs": {"added": ["x"]}})


async def with_versions(server: Server, person: Person, count: int) -> str:
    """Returns the slug of a deployment with versions."""
    made = await created(person)
    slug: str = made["deployment"]["slug"]
    await finish(server, made["build"])
    for _ in range(count - 1):
        await finish(server, await rebuilt(person, slug))
    return slug


async def jobs(server: Server, name: str) -> list[dict[str, Any]]:
    return await server.database.rows(
        "SELECT args FROM procrastinate_jobs WHERE task_name = %(name)s ORDER BY id", {"name": name}
    )


async def test_a_zip_becomes_a_deployment_with_a_build(server: Server, developer: Person) -> None:
    found = await created(developer, "My first Crew!", zipped(**{"main.py": "x", "key.pem": "secret"}))
    deployment, build = found["deployment"], found["build"]
    assert (deployment["slug"], deployment["state"], deployment["version"]) == ("my-first-crew", "building", None)
    assert deployment["latest_build"] == {"id": build["id"], "state": "queued"}
    assert (build["deployment"], build["created_by"], build["origin"]["type"]) == (
        "my-first-crew",
        developer.name,
        "zip",
    )
    assert (build["origin"]["files"], build["origin"]["left_out"]) == (1, ["key.pem"])
    assert {"build": build["id"]} in [job["args"] for job in await jobs(server, "build")]
    await finish(server, build)
    shown = await developer.value("GET", "/deployments/my-first-crew")
    assert (shown["state"], shown["version"]) == ("online", 1)


async def test_a_name_cannot_keep_another_deployment_from_being_removed(server: Server, developer: Person) -> None:
    victim = (await created(developer))["deployment"]
    error = await developer.refused(
        "POST", "/deployments", status=400, params={"name": f"Removed {victim['id']}"}, content=zipped(), headers=ZIP
    )
    assert "must not be" in error["message"]
    await developer.value("DELETE", f"/deployments/{victim['slug']}", status=202)


async def test_a_failed_first_build_is_shown_as_such(server: Server, developer: Person) -> None:
    made = await created(developer)
    store = BuildStore(server.database)
    turn = await store.begin(UUID(made["build"]["id"]))
    assert turn is not None
    await store.fail(turn, "No module named 'x'.", "Add it to the dependencies.")
    assert (await developer.value("GET", f"/deployments/{made['deployment']['slug']}"))["state"] == "failed"
    build = await developer.value("GET", f"/builds/{made['build']['id']}")
    assert (build["state"], build["error"], build["hint"]) == (
        "failed",
        "No module named 'x'.",
        "Add it to the dependencies.",
    )


async def test_a_git_repository_becomes_a_deployment_with_a_build(developer: Person) -> None:
    git = {"url": "https://git.example.com/ann/crew.git", "ref": "main", "subfolder": "crews/one"}
    query = {"message": "first"}
    body = {"name": new_name(), "git": git}
    found = await developer.value("POST", "/deployments", status=201, params=query, json=body)
    assert found["build"]["origin"] == {"type": "git", "message": "first", **git}


async def test_a_deployment_without_a_source_waits_for_its_first_build(developer: Person) -> None:
    name = new_name()
    found = await developer.value("POST", "/deployments", status=201, json={"name": name})
    assert (found["build"], found["deployment"]["state"]) == (None, "building")
    await developer.value("PUT", f"/deployments/{name}/variables/KEY", json={"value": "x"})
    assert (await rebuilt(developer, name))["state"] == "queued"


@pytest.mark.parametrize(
    "git",
    [
        {"url": "file:///etc"},
        {"url": "/etc"},
        {"url": "ext::sh -c id"},
        {"url": "https://ann:secret@git.example.com/a/b.git"},
        {"url": "http://git.example.com/a/b.git"},
        {"url": "https://git.example.com/a/b.git", "ref": "--upload-pack=id"},
        {"url": "https://git.example.com/a/b.git", "subfolder": "../.."},
        {"url": "https://git.example.com/a/b.git", "depth": 5},
        {"url": ""},
        {},
    ],
)
async def test_a_refused_repository_makes_no_deployment_and_quotes_no_password(
    developer: Person, git: dict[str, Any]
) -> None:
    name = new_name()
    answer = await developer.request("POST", "/deployments", json={"name": name, "git": git})
    assert answer.status_code == 400, answer.text
    assert "secret" not in answer.text
    await developer.refused("GET", f"/deployments/{name}", status=404)


async def test_of_two_deploys_of_one_name_at_once_one_is_made(developer: Person) -> None:
    name = new_name()
    send = [
        developer.request("POST", "/deployments", params={"name": name}, content=zipped(), headers=ZIP)
        for _ in range(4)
    ]
    answers = await asyncio.gather(*send)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    assert {answer.json()["details"]["slug"] for answer in answers if answer.status_code == 409} == {name}
    assert len((await developer.value("GET", f"/deployments/{name}/builds"))["items"]) == 1


async def test_a_taken_name_is_refused_before_the_upload_is_read(crew: Crew, developer: Person) -> None:
    head = (
        f"POST /api/v1/deployments?name={crew.deployment.slug} HTTP/1.1\r\nHost: x\r\nContent-Type: application/zip\r\n"
        f"Authorization: Bearer {developer.token}\r\nContent-Length: 1000000\r\n\r\n"
    )
    status, _, _ = await raw(crew.server.port, head.encode())
    assert status == 409


@pytest.mark.parametrize("name", ["", "!!!", "\N{GREEK SMALL LETTER LAMDA}", "a\0b"])
async def test_a_name_without_a_letter_is_refused(developer: Person, name: str) -> None:
    await developer.refused("POST", "/deployments", status=400, params={"name": name}, content=zipped(), headers=ZIP)


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        pytest.param(b"", ZIP, 400, id="empty"),
        pytest.param(b"no zip", ZIP, 400, id="no zip"),
        pytest.param(zipped(**{"../evil.py": "x"}), ZIP, 400, id="parent folder"),
        pytest.param(zipped(**{"/etc/passwd": "x"}), ZIP, 400, id="absolute path"),
        pytest.param(zipped(**{"A.py": "x", "a.py": "y"}), ZIP, 400, id="names that differ in case"),
        pytest.param(zipped(), {"Content-Type": "multipart/form-data; boundary=x"}, 400, id="form"),
        pytest.param(zipped(), JSON, 400, id="zip as JSON"),
        pytest.param(b"[]", JSON, 400, id="list"),
        pytest.param(b'{"git": null}', JSON, 400, id="no repository"),
        pytest.param(b'{"git": {"url": 5}}', JSON, 400, id="no text"),
        pytest.param(b'{"name": "x"' + b" " * 1_100_000, JSON, 413, id="too large"),
    ],
)
async def test_a_bad_source_starts_no_build_and_leaves_no_file(
    server: Server, developer: Person, content: bytes, headers: dict[str, str], status: int
) -> None:
    made = (await created(developer))["deployment"]["slug"]
    await developer.refused("POST", f"/deployments/{made}/builds", status=status, content=content, headers=headers)
    assert len((await developer.value("GET", f"/deployments/{made}/builds"))["items"]) == 1
    assert not server.uploads.exists() or list(server.uploads.iterdir()) == []


async def test_a_declared_size_above_the_limit_is_refused_at_once(server: Server, developer: Person) -> None:
    slug = (await created(developer))["deployment"]["slug"]
    head = (
        f"POST /api/v1/deployments/{slug}/builds HTTP/1.1\r\nHost: x\r\nContent-Type: application/zip\r\n"
        f"Authorization: Bearer {developer.token}\r\nContent-Length: {101 << 20}\r\n\r\n"
    )
    status, _, body = await raw(server.port, head.encode())
    assert (status, json.loads(body)["details"]["limit"]) == (413, 100 << 20)


async def test_an_upload_that_breaks_off_leaves_nothing(server: Server, developer: Person) -> None:
    slug = (await created(developer))["deployment"]["slug"]
    head = (
        f"POST /api/v1/deployments/{slug}/builds HTTP/1.1\r\nHost: x\r\nContent-Type: application/zip\r\n"
        f"Authorization: Bearer {developer.token}\r\nContent-Length: 100000\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode() + b"x" * 1000)
    await writer.drain()

    async def has_begun() -> bool:
        return server.uploads.exists() and bool(list(server.uploads.iterdir()))

    async def is_gone() -> bool:
        return not list(server.uploads.iterdir())

    await until(has_begun, "the upload has begun")
    writer.transport.abort()
    await until(is_gone, "the file of the upload is removed")
    assert len((await developer.value("GET", f"/deployments/{slug}/builds"))["items"]) == 1
    del reader


async def test_more_uploads_at_once_than_a_server_receives_are_refused(server: Server, developer: Person) -> None:
    slug = (await created(developer))["deployment"]["slug"]
    head = (
        f"POST /api/v1/deployments/{slug}/builds HTTP/1.1\r\nHost: x\r\nContent-Type: application/zip\r\n"
        f"Authorization: Bearer {developer.token}\r\nContent-Length: 100000\r\n\r\n"
    )
    connections = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(AT_ONCE)]

    async def received() -> int:
        return len(list(server.uploads.iterdir())) if server.uploads.exists() else 0

    async def all_have_begun() -> bool:
        return await received() == AT_ONCE

    async def all_are_gone() -> bool:
        return await received() == 0

    try:
        for _, writer in connections:
            writer.write(head.encode() + b"x" * 1000)
            await writer.drain()
        await until(all_have_begun, "the uploads have begun")
        path = f"/deployments/{slug}/builds"
        refused = await developer.request("POST", path, content=zipped(), headers=ZIP)
        assert (refused.status_code, int(refused.headers["Retry-After"]) > 0) == (503, True)
    finally:
        for _, writer in connections:
            writer.transport.abort()
    await until(all_are_gone, "the files of the uploads are removed")
    await rebuilt(developer, slug)


async def test_builds_are_listed_newest_first_and_followed_by_their_log(server: Server, developer: Person) -> None:
    first = await created(developer)
    slug = first["deployment"]["slug"]
    second = await rebuilt(developer, slug, params={"message": "fixes the prompt"})
    listed = await developer.value("GET", f"/deployments/{slug}/builds", params={"limit": 1})
    assert [(one["id"], one["origin"]["message"]) for one in listed["items"]] == [(second["id"], "fixes the prompt")]
    query = {"cursor": listed["next_cursor"]}
    rest = await developer.value("GET", f"/deployments/{slug}/builds", params=query)
    assert [one["id"] for one in rest["items"]] == [first["build"]["id"]]

    waiting = asyncio.create_task(
        developer.value("GET", f"/builds/{second['id']}/log", params={"wait": 30}, timeout=DEADLINE)
    )
    await finish(server, second)
    log = await waiting
    assert [(line["seq"], line["level"], line["message"]) for line in log["items"]] == [
        (1, "info", "building"),
        (2, "warning", "nearly done"),
    ]
    query = {"after": log["next_after"], "wait": 30}
    end = await developer.value("GET", f"/builds/{second['id']}/log", params=query, timeout=DEADLINE)
    assert (end["items"], end["state"], end["next_after"]) == ([], "ready", 2)
    for path in (f"/builds/{unknown_id()}", "/builds/x", f"/builds/{unknown_id()}/log"):
        await developer.refused("GET", path, status=404)
    await developer.refused("GET", f"/builds/{second['id']}/log?wait=31", status=400)


async def test_versions_are_listed_and_shown_with_their_changes(server: Server, developer: Person) -> None:
    slug = await with_versions(server, developer, 3)
    listed = await developer.value("GET", f"/deployments/{slug}/versions", params={"limit": 2})
    assert [(one["number"], one["current"]) for one in listed["items"]] == [(3, True), (2, False)]
    assert listed["items"][0]["changes"] == {"inputs": {"added": ["x"]}}
    query = {"cursor": listed["next_cursor"]}
    rest = (await developer.value("GET", f"/deployments/{slug}/versions", params=query))["items"]
    assert [(one["number"], one["changes"]) for one in rest] == [(1, None)]
    shown = await developer.value("GET", f"/deployments/{slug}/versions/2")
    assert (shown["kind"], shown["build"] is not None, len(shown["snapshot"])) == ("crew", True, 64)
    assert shown["inputs"]["required"] == ["topic", "audience"]
    assert [task["name"] for task in shown["tasks"]] == ["research", None]
    for number in ("4", "0", "x", str(2**40)):
        assert (await developer.get(f"/deployments/{slug}/versions/{number}")).status_code in {400, 404}


async def test_promote_and_rollback_move_through_the_versions(server: Server, developer: Person) -> None:
    slug = await with_versions(server, developer, 3)
    path = f"/deployments/{slug}"
    assert await developer.value("POST", f"{path}/promote", json={"version": 1}) == {"version": 1}
    assert (await developer.value("GET", path))["version"] == 1
    assert await developer.value("POST", f"{path}/promote", json={"version": 1}) == {"version": 1}
    assert [(await developer.value("POST", f"{path}/rollback", json={}))["version"] for _ in range(3)] == [3, 2, 1]
    await developer.refused("POST", f"{path}/rollback", status=409, json={})
    await finish(server, await rebuilt(developer, slug))
    assert (await developer.value("GET", path))["version"] == 4
    assert (await developer.value("POST", f"{path}/rollback"))["version"] == 1
    for body in ({"version": 9}, {"version": 2, "current": 4}):
        await developer.refused("POST", f"{path}/promote", status=404 if body["version"] == 9 else 409, json=body)
    for bad in ({}, {"version": "1"}, {"version": 0}, {"version": 1, "x": 1}):
        await developer.refused("POST", f"{path}/promote", status=400, json=bad)
    owner = await Person.of(server, Role.OWNER)
    entries = await owner.value("GET", "/audit", params={"target": slug, "limit": 3})
    assert [one["action"] for one in entries["items"]] == [
        "deployment.rollback",
        "deployment.deploy",
        "deployment.rollback",
    ]


async def test_of_two_rollbacks_at_once_from_one_version_one_is_made(server: Server, developer: Person) -> None:
    slug = await with_versions(server, developer, 3)
    answers = await asyncio.gather(
        *(developer.request("POST", f"/deployments/{slug}/rollback", json={"current": 3}) for _ in range(3))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    assert (await developer.value("GET", f"/deployments/{slug}"))["version"] == 2


async def test_a_redeploy_builds_the_files_of_the_current_version(server: Server, developer: Person) -> None:
    slug = await with_versions(server, developer, 2)
    path = f"/deployments/{slug}"
    await developer.value("POST", f"{path}/promote", json={"version": 1})
    build = (await developer.value("POST", f"{path}/redeploy", status=202))["build"]
    assert (build["state"], build["created_by"], build["origin"]["type"]) == ("queued", developer.name, "zip")
    assert build["origin"]["message"] == "redeploy of version 1"
    assert {"build": build["id"]} in [job["args"] for job in await jobs(server, "build")]
    error = await developer.refused("POST", f"{path}/redeploy", status=409)
    assert error["details"] == {"build": build["id"]}
    await finish(server, build)
    shown = [await developer.value("GET", f"{path}/versions/{number}") for number in (1, 2, 3)]
    assert shown[2]["current"]
    assert shown[0]["snapshot"] == shown[2]["snapshot"] != shown[1]["snapshot"]
    owner = await Person.of(server, Role.OWNER)
    entries = await owner.value("GET", "/audit", params={"target": slug, "limit": 1})
    assert [one["action"] for one in entries["items"]] == ["deployment.redeploy"]


async def test_a_redeploy_never_replaces_a_deploy_that_waits(server: Server, developer: Person) -> None:
    slug = await with_versions(server, developer, 1)
    waiting = await rebuilt(developer, slug)
    answers = await asyncio.gather(*(developer.request("POST", f"/deployments/{slug}/redeploy") for _ in range(3)))
    assert {answer.status_code for answer in answers} == {409}
    await finish(server, waiting)
    answers = await asyncio.gather(*(developer.request("POST", f"/deployments/{slug}/redeploy") for _ in range(3)))
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409]


async def test_what_was_not_deployed_is_not_redeployed(server: Server, developer: Person, crew: Crew) -> None:
    error = await developer.refused("POST", f"/deployments/{crew.deployment.slug}/redeploy", status=404)
    assert "windlass dev" in error["message"]
    empty = await developer.value("POST", "/deployments", status=201, json={"name": new_name()}, headers=JSON)
    await developer.refused("POST", f"/deployments/{empty['deployment']['slug']}/redeploy", status=404)
    await developer.refused("POST", "/deployments/nowhere/redeploy", status=404)


def removals(server: Server) -> Removals:
    retention, stops = RetentionStore(server.database), Stops(server.kickoffs)
    users = UserDeletion(Deletions(retention), server.tokens, stops, server.deployments, patience=1)
    return Removals(retention, stops, ManagingStore(server.database), users)


async def test_a_removed_deployment_is_unknown_at_once_and_deleted_by_the_side_job(
    server: Server, developer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.lifecycle.removals.KNOWN_WITHIN", 0)
    slug = await with_versions(server, developer, 2)
    await developer.value("PUT", f"/deployments/{slug}/variables/KEY", json={"value": "x"})
    shown = await developer.value("GET", f"/deployments/{slug}/tokens")
    bearer = {"Authorization": f"Bearer {shown['organization_token']}"}
    crew = f"{server.url}/crews/{slug}"
    body = {"inputs": {"topic": "x", "audience": "y"}}
    kickoff = (await server.http.post(f"{crew}/kickoff", headers=bearer, json=body)).json()["kickoff_id"]
    (build, *_) = (await developer.value("GET", f"/deployments/{slug}/builds"))["items"]
    deployment = (await developer.value("GET", f"/deployments/{slug}"))["id"]

    error = await developer.refused("DELETE", f"/deployments/{slug}", status=409)
    assert f"windlass deployments remove {slug} --stop" in error["message"]
    answers = await asyncio.gather(
        *(developer.request("DELETE", f"/deployments/{slug}", params={"stop": "true"}) for _ in range(3))
    )
    assert sorted(answer.status_code for answer in answers) == [202, 404, 404]
    for path in (
        f"/deployments/{slug}",
        f"/builds/{build['id']}",
        f"/builds/{build['id']}/log",
        f"/kickoffs/{kickoff}",
    ):
        await developer.refused("GET", path, status=404)
    for method, path in (("GET", ""), ("POST", "/resume"), ("POST", "/pause"), ("DELETE", ""), ("GET", "/settings")):
        await developer.refused(method, f"/deployments/removed-{deployment}{path}", status=404)
    listed = (await developer.value("GET", "/kickoffs"))["items"]
    assert kickoff not in [one["kickoff_id"] for one in listed]

    async def is_unknown() -> bool:
        return (await server.http.get(f"{crew}/inputs", headers=bearer)).status_code == 401

    await until(is_unknown, "the crew is unknown")
    again = await created(developer, slug)
    assert again["deployment"]["id"] != deployment

    assert [job["args"] for job in await jobs(server, "remove_deployment")][-1:] == [{"deployment": deployment}]
    for _ in range(2):  # a side job may be done twice
        await removals(server).remove_deployment(deployment)
    for table in ("kickoffs", "versions", "builds", "tokens", "variables", "current_versions", "idempotency_keys"):
        rows = await server.database.rows(
            f"SELECT count(*) AS count FROM {table} WHERE deployment_id = %(id)s", {"id": deployment}
        )
        assert rows == [{"count": 0}], table
    assert await server.database.rows("SELECT FROM deployments WHERE id = %(id)s", {"id": deployment}) == []
    assert (await developer.value("GET", f"/deployments/{slug}"))["id"] == again["deployment"]["id"]


async def test_a_kickoff_that_does_not_end_delays_the_deletion(
    server: Server, crew: Crew, developer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.lifecycle.removals.KNOWN_WITHIN", 0)
    monkeypatch.setattr("windlass.lifecycle.removals.STOPPED_WITHIN", 0.1)
    kickoff = await crew.kickoff()
    (claimed,) = [one for one in await server.kickoffs.claim(UUID(unknown_id()), 1000, 60) if str(one.id) == kickoff]
    slug, deployment = crew.deployment.slug, str(crew.deployment.id)
    assert (await developer.request("DELETE", f"/deployments/{slug}?stop=true")).status_code == 202
    with pytest.raises(KickoffsStillOpen):
        await removals(server).remove_deployment(deployment)
    await server.database.execute(
        "UPDATE kickoffs SET state = 'CANCELLED', finished_at = now() WHERE id = %(id)s", {"id": claimed.id}
    )
    await removals(server).remove_deployment(deployment)
    assert await server.database.rows("SELECT FROM kickoffs WHERE id = %(id)s", {"id": claimed.id}) == []


async def test_a_removed_user_is_refused_at_once_and_deleted_by_the_side_job(
    server: Server, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.lifecycle.deletion.KNOWN_WITHIN", 0)
    owner, other = await Person.of(server, Role.OWNER), await Person.of(server, Role.VIEWER)
    user = await server.tokens.user(other.name)
    kickoff = await crew.kickoff(token=(await server.tokens.create(crew.deployment.id, user=user.id)).reveal())
    await owner.refused("DELETE", f"/users/{other.name}", status=409)
    assert (await owner.request("DELETE", f"/users/{other.name}", params={"stop": "true"})).status_code == 202
    assert (await other.get("/me")).status_code == 401
    assert [job["args"] for job in await jobs(server, "remove_user")][-1:] == [{"user": other.name}]
    for _ in range(2):
        await removals(server).remove_user(other.name)
    await owner.refused("PATCH", f"/users/{other.name}", status=404, json={"role": "viewer"})
    assert (await crew.get(f"/status/{kickoff}")).status_code == 404
    await owner.refused("DELETE", f"/users/{other.name}", status=404)


async def test_a_user_who_is_enabled_again_is_not_deleted(server: Server) -> None:
    owner, other = await Person.of(server, Role.OWNER), await Person.of(server, Role.VIEWER)
    await owner.value("DELETE", f"/users/{other.name}", status=202)
    await owner.value("PATCH", f"/users/{other.name}", json={"disabled": False})
    await removals(server).remove_user(other.name)
    assert (await server.tokens.user(other.name)).disabled_at is None
