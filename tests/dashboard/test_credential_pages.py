"""Credentials and workload identity in the dashboard."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from dashboard.people import Visitor
from windlass.deployments.variables import GivenVariable, ValueSource
from windlass.rights import Role
from windlass.store.audit import COMMAND_LINE

if TYPE_CHECKING:
    import httpx

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
PATH = "/ui/credentials"
TOKEN = "hvs.that-nobody-sees-again"
CLOSED = "http://127.0.0.1:9"
"""An address at which nobody answers."""
_numbers = itertools.count(1)


async def add(owner: Visitor, **more: str) -> tuple[str, httpx.Response]:
    name = f"team-{next(_numbers)}"
    fields = {"name": name, "member.address": CLOSED, "member.token": TOKEN, "member.mount": "kv", **more}
    return name, await owner.post(f"{PATH}/providers/vault/token", **fields)


async def test_a_credential_is_added_changed_and_removed(server: Server, crew: Crew, owner: Visitor) -> None:
    name, answer = await add(owner)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PATH}/{name}")
    page = (await owner.get(f"{PATH}/{name}")).text
    assert ('value="kv"' in page, TOKEN in page, "Leave empty to keep the value" in page) == (True, False, True)

    fields = {"member.address": CLOSED, "member.mount": "apps", "member.token": ""}
    assert (await owner.post(f"{PATH}/{name}", name=f"{name}-new", **fields)).status_code == 303
    found = await server.dashboard.control.credentials.get(f"{name}-new")
    assert found.configuration == {"address": CLOSED, "mount": "apps"}
    moved = {**fields, "member.address": "http://127.0.0.1:10"}
    refused = await owner.post(f"{PATH}/{name}-new", name=f"{name}-new", **moved)
    assert (refused.status_code, "Must be given again with another address." in refused.text) == (400, True)

    slug = crew.deployment.slug
    source = ValueSource("credential", credential=f"{name}-new")
    given = GivenVariable("DB", source=source, secret_name="app/db")
    await server.dashboard.control.management.set_variables(slug, [given], COMMAND_LINE)
    in_use = await owner.post(f"{PATH}/{name}-new/remove")
    assert (in_use.status_code, f"{slug}/DB" in in_use.text) == (400, True)
    assert f"/ui/crews/{slug}/environment" in in_use.text
    await server.dashboard.control.management.unset_variable(slug, "DB", COMMAND_LINE)
    assert (await owner.post(f"{PATH}/{name}-new/remove")).status_code == 303
    assert (await owner.get(f"{PATH}/{name}-new")).status_code == 404


async def test_wrong_members_are_marked_and_secrets_not_repeated(owner: Visitor) -> None:
    name, answer = await add(owner, **{"member.address": "ftp://nowhere"})
    assert (answer.status_code, answer.text.count("is-invalid"), TOKEN in answer.text) == (400, 1, False)
    assert "Must be the address of a Vault" in answer.text
    assert f'value="{name}"' in answer.text
    taken, _ = await add(owner)
    again = await add(owner, name=taken)
    assert (again[1].status_code, "There is a credential" in again[1].text) == (400, True)
    assert (await owner.get(f"{PATH}/providers/vault/unknown")).status_code == 404


async def test_a_connection_is_tested_and_a_refusal_explained(owner: Visitor) -> None:
    fields = {"member.address": CLOSED, "member.token": TOKEN}
    unsaved = await owner.post(f"{PATH}/providers/vault/token/test", **fields)
    assert (unsaved.status_code, "The check did not succeed." in unsaved.text, TOKEN in unsaved.text) == (
        200,
        True,
        False,
    )
    assert "refuses this server" not in unsaved.text, "it can't be reached"
    incomplete = await owner.post(f"{PATH}/providers/vault/token/test", **{"member.address": CLOSED})
    assert "Field required" in incomplete.text
    name, _ = await add(owner)
    stored = await owner.post(f"{PATH}/{name}/test")
    assert (stored.status_code, "provider_unavailable" in stored.text) == (200, True)


async def test_the_list_has_who_may_use_a_credential(crew: Crew, owner: Visitor) -> None:
    slug = crew.deployment.slug
    names = [
        (await add(owner, **more))[0]
        for more in ({}, {"for_developers": "on"}, {"deployments": slug}, {"for_developers": "on", "deployments": slug})
    ]
    page = (await owner.get(PATH)).text
    found = [
        re.search(rf'/{name}">.*?<td data-label="Who may use it">(.*?)</td>', page, re.DOTALL)[1]  # type: ignore[index]
        for name in names
    ]
    assert found == ["owner", "developer", "1 crew", "developer, 1 crew"]


async def test_one_credential_of_a_provider_is_the_default(server: Server, owner: Visitor) -> None:
    (first, _), (second, _) = await add(owner, is_default="on"), await add(owner)
    assert (await owner.post(f"{PATH}/{second}/default", is_default="on")).status_code == 303
    credentials = server.dashboard.control.credentials
    assert [(await credentials.get(name)).is_default for name in (first, second)] == [False, True]
    assert (await owner.post(f"{PATH}/{second}/default")).status_code == 303
    assert not (await credentials.get(second)).is_default


async def test_identity_has_what_to_paste_and_rotates_its_key(server: Server, owner: Visitor) -> None:
    page = (await owner.get("/ui/identity?provider=azure")).text
    assert server.identity.subject_name in page
    assert "api://AzureADTokenExchange" in page
    of_aws = (await owner.get(f"{PATH}/providers/aws/workload_identity")).text
    assert "aws iam create-open-id-connect-provider" in of_aws
    before = {key.id for key in server.identity.key_states()}
    assert (await owner.post("/ui/identity/rotate", when="later")).status_code == 303
    assert len({key.id for key in server.identity.key_states()} - before) == 1
    waits = await owner.post("/ui/identity/rotate", when="later")
    assert waits.status_code == 409
    assert (await owner.post("/ui/identity/rotate", when="now")).status_code == 303


async def test_each_page_and_action_asks_for_its_role(owner: Visitor, server: Server) -> None:
    name, _ = await add(owner, for_developers="on")
    viewer, developer = await Visitor.of(server, Role.VIEWER), await Visitor.of(server, Role.DEVELOPER)
    listed = await developer.get(PATH)
    assert (listed.status_code, name in listed.text, "/providers" in listed.text) == (200, True, False)
    shown = (await developer.get(f"{PATH}/{name}")).text
    assert (CLOSED in shown, "Save credential" in shown) == (True, False)
    for page in (PATH, f"{PATH}/{name}"):
        assert (await viewer.get(page)).status_code == 403
    assert 'href="/ui/credentials"' not in (await viewer.get("/ui/account")).text
    new = f"{PATH}/providers/vault/token"
    for page in (f"{PATH}/providers", new, "/ui/identity"):
        assert (await developer.get(page)).status_code == 403
    for action in (new, f"{new}/test", *(f"{PATH}/{name}{one}" for one in ("", "/default", "/remove"))):
        assert (await developer.post(action, name="other")).status_code == 403
    assert (await developer.post("/ui/identity/rotate")).status_code == 403
    assert (await viewer.post(f"{PATH}/{name}/test")).status_code == 403
    assert (await developer.post(f"{PATH}/{name}/test")).status_code == 200
    await viewer.close()
    await developer.close()
