"""Who started, stopped and deleted a kickoff is recorded: on the kickoff, on its page and in the audit log."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from api.control import Person
from api.runs import begin
from windlass.rights import Role
from windlass.store.audit import AuditFilter, AuditStore

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.people import Visitor
    from windlass.store.audit import AuditEntry

pytestmark = pytest.mark.asyncio(loop_scope="session")

_numbers = itertools.count(1)
GOOD = {"topic": "tides", "audience": "sailors"}


async def somebody(server: Server, role: Role) -> Person:
    return await Person.of(server, role, f"anna {next(_numbers)}")


async def entries(server: Server, target: str, action: str = "kickoff") -> list[AuditEntry]:
    """The entries of a kickoff or a crew, the newest first."""
    return await AuditStore(server.database).listed(AuditFilter(target=target, action=action), limit=50)


async def facts(server: Server, target: str, action: str = "kickoff") -> list[tuple[str, str, dict[str, Any]]]:
    return [(one.action, one.user, one.details) for one in await entries(server, target, action)]


async def by(crew: Crew, kickoff: str) -> tuple[str | None, str | None]:
    row = await crew.row(kickoff)
    return row["started_by"], row["stopped_by"]


async def run_from_the_form(crew: Crew, visitor: Visitor) -> str:
    fields = {"as": "json", "inputs_json": json.dumps(GOOD)}
    answer = await visitor.post(f"/ui/crews/{crew.deployment.slug}/run", **fields)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].rpartition("/")[2]


def page_of(crew: Crew, kickoff: str) -> str:
    return f"/ui/crews/{crew.deployment.slug}/executions/{kickoff}"


async def test_what_a_person_does_on_the_dashboard(crew: Crew, server: Server, developer: Visitor) -> None:
    slug, name = crew.deployment.slug, developer.name
    kickoff = await run_from_the_form(crew, developer)
    assert await by(crew, kickoff) == (f"{name} (dashboard)", None)
    assert await facts(server, kickoff) == [("kickoff.start", name, {"deployment": slug})]
    (entry,) = await entries(server, kickoff)
    assert (entry.address, entry.token_id) == ("127.0.0.1", None)
    page = (await developer.get(page_of(crew, kickoff))).text
    assert f'<dt>Started by</dt><dd class="wrap">{name} (dashboard)</dd>' in page
    await developer.post(f"{page_of(crew, kickoff)}/stop")
    assert await by(crew, kickoff) == (f"{name} (dashboard)",) * 2
    assert (await facts(server, kickoff))[0] == ("kickoff.stop", name, {"deployment": slug})
    page = (await developer.get(page_of(crew, kickoff))).text
    assert f"It was stopped by {name} (dashboard)" in page
    again = await developer.post("/ui/executions/again", **{"ids[]": kickoff})
    assert again.status_code == 303
    newest = (await crew.get("/kickoffs?limit=1")).json()["kickoffs"][0]["kickoff_id"]
    assert await by(crew, newest) == (f"{name} (dashboard)", None)
    await developer.post("/ui/executions/stop", **{"ids[]": newest})
    assert [one[0] for one in await facts(server, newest)] == ["kickoff.stop", "kickoff.start"]


async def test_what_an_owner_deletes_on_the_dashboard(crew: Crew, server: Server, owner: Visitor) -> None:
    kickoff = await crew.kickoff()
    starter, _ = await by(crew, kickoff)
    await crew.stop(kickoff)
    answer = await owner.post(f"{page_of(crew, kickoff)}/delete")
    assert answer.status_code == 303
    details = {"deployment": crew.deployment.slug, "state": "CANCELLED", "started_by": starter}
    assert (await facts(server, kickoff))[0] == ("kickoff.delete", owner.name, details)


async def test_what_tokens_of_a_crew_do(crew: Crew, server: Server) -> None:
    """Their starts are on the kickoff alone: an entry of the audit log for each would cost too much."""
    organization, user = await crew.kickoff(), await crew.kickoff(token=crew.user_token)
    of_organization = f"Bearer Token …{crew.token[-4:]}"
    of_user = f"owner (User Bearer Token …{crew.user_token[-4:]})"
    assert await by(crew, organization) == (of_organization, None)
    assert await by(crew, user) == (of_user, None)
    assert await facts(server, organization) == await facts(server, user) == []
    await crew.stop(organization)
    await crew.stop(user, token=crew.user_token)
    assert (await by(crew, organization))[1] == of_organization
    assert (await by(crew, user))[1] == of_user
    ((_, by_organization, _),) = await facts(server, organization)
    ((_, by_user, _),) = await facts(server, user)
    assert (by_organization, by_user) == (of_organization, "owner")
    may_delete = await crew.organization_token()
    await crew.request("DELETE", f"/kickoffs/{user}", token=may_delete)
    action, actor, details = (await facts(server, user))[0]
    assert (action, actor, details["started_by"]) == ("kickoff.delete", f"Bearer Token …{may_delete[-4:]}", of_user)


async def test_what_a_personal_token_does(crew: Crew, server: Server) -> None:
    anna = await somebody(server, Role.OWNER)
    kickoff = await crew.kickoff(token=anna.token)
    words = f"{anna.name} (personal token test …{anna.token[-4:]})"
    assert await by(crew, kickoff) == (words, None)
    await crew.stop(kickoff, token=anna.token)
    item = await anna.value("GET", f"/kickoffs/{kickoff}")
    assert (item["started_by"], item["stopped_by"], item["user"]) == (words, words, None)
    listed = await anna.value("GET", f"/kickoffs?deployment={crew.deployment.slug}")
    assert listed["items"][0] == item
    await crew.request("DELETE", f"/kickoffs/{kickoff}", token=anna.token)
    found = await entries(server, kickoff)
    assert [one.action for one in found] == ["kickoff.delete", "kickoff.stop", "kickoff.start"]
    assert {one.user for one in found} == {anna.name}
    assert len({one.token_id for one in found} - {None}) == 1


async def test_the_words_stay_when_the_user_and_the_token_are_gone(crew: Crew, server: Server) -> None:
    anna = await somebody(server, Role.OWNER)
    kickoff = await crew.kickoff(token=anna.token)
    before = await by(crew, kickoff)
    user = (await server.tokens.user(anna.name)).id
    await server.database.execute("DELETE FROM tokens WHERE user_id = %(user)s", {"user": user})
    await server.database.execute("DELETE FROM users WHERE id = %(user)s", {"user": user})
    assert await by(crew, kickoff) == before


async def test_a_batch_of_a_person_has_an_entry_for_each_kickoff_that_was_accepted(crew: Crew, server: Server) -> None:
    anna = await somebody(server, Role.DEVELOPER)
    body = {"kickoffs": [{"inputs": GOOD}, {"inputs": {}}, {"inputs": GOOD, "concurrencyKey": "one"}]}
    answers = (await crew.request("POST", "/kickoffs", token=anna.token, json=body)).json()["kickoffs"]
    ids = [one.get("kickoff_id") for one in answers]
    assert [one is None for one in ids] == [False, True, False]
    for kickoff in (ids[0], ids[2]):
        assert [one[0] for one in await facts(server, kickoff)] == ["kickoff.start"]
    mine = await AuditStore(server.database).listed(AuditFilter(user=anna.name, action="kickoff"), limit=9)
    assert len(mine) == 2


async def test_the_same_request_again_is_no_second_start(crew: Crew, server: Server) -> None:
    anna = await somebody(server, Role.DEVELOPER)
    ids = {await crew.kickoff(token=anna.token, idempotencyKey="order-7") for _ in range(2)}
    (kickoff,) = ids
    assert len(await facts(server, kickoff)) == 1


async def test_of_many_stops_of_a_kickoff_the_first_is_recorded(crew: Crew, server: Server) -> None:
    anna = await somebody(server, Role.DEVELOPER)
    kickoff = await crew.kickoff()
    await begin(crew, kickoff)
    await crew.stop(kickoff, token=anna.token)
    await asyncio.gather(*(crew.stop(kickoff) for _ in range(5)))
    assert (await by(crew, kickoff))[1] == f"{anna.name} (personal token test …{anna.token[-4:]})"
    assert [one[:2] for one in await facts(server, kickoff)] == [("kickoff.stop", anna.name)]


async def test_a_stop_of_all_that_match(crew: Crew, server: Server) -> None:
    anna = await somebody(server, Role.DEVELOPER)
    running = await crew.kickoff()
    await begin(crew, running)
    waiting = [await crew.kickoff() for _ in range(3)]
    answer = await crew.request("POST", "/stop", token=anna.token, json={})
    assert answer.json()["stopped"] == 4
    words = f"{anna.name} (personal token test …{anna.token[-4:]})"
    assert {(await by(crew, one))[1] for one in (running, *waiting)} == {words}
    assert await facts(server, crew.deployment.slug) == [("kickoff.stop_all", anna.name, {"kickoffs": 3})]
    assert [one[0] for one in await facts(server, running)] == ["kickoff.stop"]
    assert (await crew.request("POST", "/stop", token=anna.token, json={})).json()["stopped"] == 0
    assert len(await facts(server, crew.deployment.slug)) == 1


async def test_who_started_the_newer_kickoff_has_stopped_the_older_one(crew: Crew) -> None:
    older = await crew.kickoff(token=crew.user_token, concurrencyKey="one")
    await crew.kickoff(concurrencyKey="one", concurrencyStrategy="cancel_running")
    assert (await by(crew, older))[1] == f"Bearer Token …{crew.token[-4:]}"


async def test_clients_of_a_crew_do_not_see_who_it_was(crew: Crew, viewer: Visitor) -> None:
    """A user of a crew must not learn of other tokens; a viewer of the dashboard may."""
    kickoff = await crew.kickoff(token=crew.user_token)
    await crew.stop(kickoff)
    ending = f"…{crew.token[-4:]}"
    for path in (f"/status/{kickoff}", f"/attempts/{kickoff}", f"/events/{kickoff}", "/kickoffs"):
        for token in (crew.user_token, crew.token):
            answer = await crew.get(path, token=token)
            assert answer.status_code == 200
            assert ending not in answer.text
            assert "_by" not in answer.text
    assert ending in (await viewer.get(page_of(crew, kickoff))).text
    stranger = await crew.token_of(f"stranger {crew.path}")
    assert (await crew.get(f"/status/{kickoff}", token=stranger)).status_code == 404


async def test_the_list_and_its_export_name_who_started_and_stopped(
    crew: Crew, server: Server, developer: Visitor
) -> None:
    kickoff = await run_from_the_form(crew, developer)
    await developer.post(f"{page_of(crew, kickoff)}/stop")
    words = f"{developer.name} (dashboard)"
    page = (await developer.get(f"/ui/crews/{crew.deployment.slug}/executions")).text
    assert words in page
    exported = (await developer.get(f"/ui/executions.csv?ids={kickoff}")).text
    assert exported.count(words) == 2
    nobody = (await server.http.get(f"{server.url}/ui/executions.csv?ids={kickoff}")).text
    assert words not in nobody


async def test_a_rotated_and_a_revoked_token_are_named(crew: Crew, server: Server, developer: Visitor) -> None:
    slug = crew.deployment.slug
    await developer.post(f"/ui/crews/{slug}/tokens/user/rotate")
    (rotated,) = await AuditStore(server.database).listed(
        AuditFilter(user=developer.name, action="token.rotate"), limit=9
    )
    found = {name: rotated.details[name] for name in ("kind", "deployment", "last_four", "user")}
    assert found == {"kind": "user", "deployment": slug, "last_four": crew.user_token[-4:], "user": "owner"}
    assert UUID(rotated.details["new_id"])
    token = await crew.organization_token()
    row = await server.database.row(
        "SELECT id FROM tokens WHERE last_four = %(end)s ORDER BY id DESC LIMIT 1", {"end": token[-4:]}
    )
    assert row is not None
    await server.tokens.revoke(str(row["id"]))
    revoked, created = await entries(server, str(row["id"]), "token")
    for entry, action in ((revoked, "token.revoke"), (created, "token.create")):
        assert entry.action == action
        assert (entry.details["kind"], entry.details["deployment"]) == ("organization", slug)
        assert entry.details["last_four"] == token[-4:]
        assert token not in str(entry)


async def test_the_tokens_that_developers_see_delete_nothing(crew: Crew, server: Server, developer: Visitor) -> None:
    anna = await somebody(server, Role.DEVELOPER)
    shown = await anna.value("GET", f"/deployments/{crew.deployment.slug}/tokens")
    await developer.post(f"/ui/crews/{crew.deployment.slug}/tokens/organization/rotate")
    on_the_page = await developer.http.post(
        f"/ui/crews/{crew.deployment.slug}/tokens/organization/show",
        data={"csrf": await developer.csrf()},
        headers={"Accept": "application/json"},
    )
    after = on_the_page.json()["token"]
    kickoff = await crew.kickoff(token=after)
    await crew.stop(kickoff, token=after)
    for token in (after, shown["user_token"]):
        refused = await crew.request("DELETE", f"/kickoffs/{kickoff}", token=token)
        assert (refused.status_code, refused.json()["details"]) == (403, {"required_scope": "admin"})
    assert (await crew.request("DELETE", f"/kickoffs/{kickoff}", token=shown["organization_token"])).status_code == 401
    assert (await crew.request("DELETE", f"/kickoffs/{kickoff}", token=anna.token)).status_code == 403
    may_delete = await crew.organization_token()
    assert (await crew.request("DELETE", f"/kickoffs/{kickoff}", token=may_delete)).status_code == 200
