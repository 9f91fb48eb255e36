"""The control API over the shared server: its errors, the lists of deployments and kickoffs, pause and resume."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from api.control import Person
from api.serving import unknown_id, until
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def developer(server: Server) -> Person:
    return await Person.of(server, Role.DEVELOPER)


async def test_a_person_learns_who_they_are(server: Server) -> None:
    for role in Role:
        person = await Person.of(server, role)
        found = await person.value("GET", "/me")
        assert (found["user"], found["role"], found["token"]["name"]) == (person.name, role, "test")


async def test_a_user_without_a_role_gets_403(server: Server, developer: Person) -> None:
    await server.tokens.set_role(developer.name, None)
    assert (await developer.get("/me")).status_code == 403


async def test_another_role_counts_when_its_change_has_returned(server: Server, developer: Person) -> None:
    assert (await developer.value("GET", "/me"))["role"] == Role.DEVELOPER
    await server.tokens.set_role(developer.name, Role.VIEWER)
    assert (await developer.value("GET", "/me"))["role"] == Role.VIEWER


async def test_a_disabled_user_is_refused(server: Server, developer: Person) -> None:
    await server.tokens.disable_user(developer.name)
    assert (await developer.get("/me")).status_code == 401


async def test_deployments_are_listed_in_pages_in_each_order(server: Server, developer: Person) -> None:
    slugs = [(await server.crew(f"paged-{number}")).deployment.slug for number in (2, 1, 3)]
    orders = {"slug": sorted(slugs), "-slug": sorted(slugs)[::-1], "created_at": slugs, "-created_at": slugs[::-1]}
    for order, expected in orders.items():
        query = {"search": "PAGED", "order": order, "limit": 2}
        first = await developer.value("GET", "/deployments", params=query)
        second = await developer.value("GET", "/deployments", params={**query, "cursor": first["next_cursor"]})
        assert [one["slug"] for one in first["items"] + second["items"]] == expected, order
        assert second["next_cursor"] is None


async def test_a_deployment_shows_its_state_and_its_load(crew: Crew, developer: Person) -> None:
    slug = crew.deployment.slug
    found = await developer.value("GET", f"/deployments/{slug}")
    assert found | {"created_at": None, "id": None} == {
        "id": None,
        "slug": slug,
        "state": "online",
        "base_url": f"/crews/{slug}",
        "version": 1,
        "concurrency": None,
        "weight": 1.0,
        "paused_at": None,
        "running": 0,
        "waiting": 0,
        "last_kickoff_at": None,
        "created_at": None,
        "visible_to": "everybody",
        "latest_build": None,
        "warnings": [],
    }
    await crew.kickoff()
    found = await developer.value("GET", f"/deployments/{slug}")
    assert (found["waiting"], found["last_kickoff_at"] is not None) == (1, True)


async def test_pause_and_resume_change_the_state_and_are_in_the_logs(
    crew: Crew, developer: Person, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    path = f"/deployments/{crew.deployment.slug}"
    paused = await developer.value("POST", f"{path}/pause")
    assert paused["state"] == "paused"
    again = await developer.value("POST", f"{path}/pause")
    assert again["paused_at"] == paused["paused_at"]
    listed = await developer.value("GET", "/deployments", params={"state": "paused", "search": crew.deployment.slug})
    assert [one["slug"] for one in listed["items"]] == [crew.deployment.slug]
    assert (await developer.value("POST", f"{path}/resume"))["state"] == "online"
    entries = await crew.server.database.rows(
        'SELECT action, "user", address, token_id FROM audit_log WHERE target = %(slug)s ORDER BY id',
        {"slug": crew.deployment.slug},
    )
    assert [row["action"] for row in entries] == ["deployment.pause", "deployment.pause", "deployment.resume"]
    told = [record for record in caplog.records if record.message.startswith("deployment.")]
    assert [record.message for record in told] == ["deployment.paused", "deployment.paused", "deployment.resumed"]
    assert {record.__dict__["event_fields"]["deployment"] for record in told} == {crew.deployment.slug}
    assert {(row["user"], row["address"]) for row in entries} == {(developer.name, "127.0.0.1")}
    assert all(row["token_id"] for row in entries)


async def test_the_shown_tokens_open_the_crew(crew: Crew, developer: Person) -> None:
    found = await developer.value("GET", f"/deployments/{crew.deployment.slug}/tokens")
    assert found == {"organization_token": crew.token, "user_token": crew.user_token, "user": "owner"}


@pytest.mark.parametrize("slug", ["nowhere", "%00", "..%2e", "A", "x" * 3000, "%F0%9F%98%80"])
async def test_an_unknown_deployment_is_not_there(developer: Person, slug: str) -> None:
    assert (await developer.get(f"/deployments/{slug}")).status_code in {400, 404}
    assert (await developer.request("POST", f"/deployments/{slug}/pause")).status_code in {400, 404}


async def test_kickoffs_of_all_crews_are_listed_and_found(server: Server, crew: Crew, developer: Person) -> None:
    other = await server.crew()
    ids = [await crew.kickoff(), await other.kickoff(token=other.user_token), await crew.kickoff()]
    listed = await developer.value("GET", "/kickoffs", params={"limit": 3})
    assert [one["kickoff_id"] for one in listed["items"]] == ids[::-1]
    assert [one["user"] for one in listed["items"]] == [None, "owner", None]
    mine = await developer.value("GET", "/kickoffs", params={"deployment": crew.deployment.slug, "state": "PENDING"})
    assert [one["kickoff_id"] for one in mine["items"]] == [ids[2], ids[0]]
    shown = await developer.value("GET", f"/kickoffs/{ids[1]}")
    assert (shown["deployment"], shown["version"], shown["state"]) == (other.deployment.slug, 1, "PENDING")
    since = {"since": listed["items"][1]["created_at"], "until": listed["items"][0]["created_at"]}
    for first in ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"):
        assert (await developer.value("GET", "/kickoffs", params={"since": first, "limit": 1}))["items"]
        await developer.value("GET", "/kickoffs", params={"until": "9999-12-31T23:59:59-14:00", "limit": 1})
    between = await developer.value("GET", "/kickoffs", params=since)
    assert ids[1] in [one["kickoff_id"] for one in between["items"]]
    assert ids[2] not in [one["kickoff_id"] for one in between["items"]]
    second = await developer.value("GET", "/kickoffs", params={"limit": 1, "cursor": ids[2]})
    assert [one["kickoff_id"] for one in second["items"]] == [ids[1]]
    for unknown in (unknown_id(), "x", ids[0].replace("-", "")):
        await developer.refused("GET", f"/kickoffs/{unknown}", status=404)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "state=nothing",
        "stat=online",
        "order=id",
        "order=created_at&cursor=x",
        "search=%00",
        "cursor=%00",
    ],
)
async def test_an_invalid_query_is_refused(developer: Person, query: str) -> None:
    error = await developer.refused("GET", f"/deployments?{query}", status=400)
    assert error["message"]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1969-01-01T00:00:00-14:00"])
async def test_the_most_distant_times_select_kickoffs_too(developer: Person, time: str) -> None:
    for member in ("since", "until"):
        await developer.value("GET", "/kickoffs", params={member: time})


@pytest.mark.parametrize("time", ["0.5", "2026-01-01", "2026-01-01T00:00:00", "yesterday", ""])
async def test_a_time_needs_a_zone(developer: Person, time: str) -> None:
    await developer.refused("GET", "/kickoffs", status=400, params={"until": time})


async def test_errors_of_the_control_api_have_the_one_form(server: Server, developer: Person) -> None:
    missing = await developer.refused("GET", "/nothing", status=404)
    assert "openapi.json" in missing["message"]
    method = await developer.request("DELETE", "/me")
    assert (method.status_code, method.headers["allow"]) == (405, "GET")
    method = await developer.request("PUT", "/deployments/x")
    assert (method.status_code, method.headers["allow"]) == (405, "DELETE, GET")
    nobody = await server.http.get(f"{server.url}/api/v1/me")
    assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")


async def test_failures_of_the_control_api_count_for_the_address(server: Server) -> None:
    before = server.access.failures._counted.total()
    for token in ("wlp_x", "wlp_" + "0" * 36):
        answer = await server.http.get(f"{server.url}/api/v1/me", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
    assert server.access.failures._counted.total() == before + 2


async def test_the_documents_of_the_control_api_need_no_token(server: Server) -> None:
    document = (await server.http.get(f"{server.url}/api/v1/openapi.json")).json()
    assert document["servers"] == [{"url": "/api/v1"}]
    page = await server.http.get(f"{server.url}/api/v1/docs")
    assert "<title>Control API · Windlass</title>" in page.text
    assert 'href="../../ui/"' in page.text
    assert "http" not in page.text.replace("http-equiv", "")
    assert (await server.http.get(f"{server.url}/api/v1/docs/docs.js")).status_code == 200


async def test_a_personal_token_opens_every_crew_by_the_role_of_its_user(server: Server, crew: Crew) -> None:
    kickoff = await crew.kickoff(token=crew.user_token)
    allowed = {Role.VIEWER: (200, 403, 403), Role.DEVELOPER: (200, 200, 403), Role.OWNER: (200, 200, 409)}
    for role, expected in allowed.items():
        token = (await Person.of(server, role)).token
        found = (
            (await crew.get(f"/status/{kickoff}", token=token)).status_code,
            (await crew.post({"inputs": {"topic": "x", "audience": "y"}}, token=token)).status_code,
            (await crew.request("DELETE", f"/kickoffs/{kickoff}", token=token)).status_code,
        )
        assert found == expected, role


async def test_a_personal_token_of_a_user_without_a_role_reads_no_crew(server: Server, crew: Crew) -> None:
    person = await Person.of(server, Role.VIEWER)
    await server.tokens.set_role(person.name, None)

    async def is_refused() -> bool:
        return (await crew.get("/inputs", token=person.token)).status_code == 403

    await until(is_refused, "the lost role is known")


async def test_the_token_of_the_command_line_is_one_also_when_many_ask_at_once(server: Server) -> None:
    tokens = await asyncio.gather(*(server.tokens.command_line_token() for _ in range(4)))
    assert len(set(tokens)) == 1
    found = await Person(server, "owner", tokens[0].reveal()).value("GET", "/me")
    assert (found["user"], found["role"], found["token"]["name"]) == ("owner", "owner", "command line")
