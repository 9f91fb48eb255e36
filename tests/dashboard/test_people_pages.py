"""Users, API tokens and the audit log in the dashboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from dashboard.people import Visitor, user
from windlass.rights import Role

if TYPE_CHECKING:
    import httpx

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


def token_in(answer: httpx.Response) -> str:
    """Returns the token that the page shows."""
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    found = re.search(r'data-copy="(wl[opu]_\w+)"', answer.text)
    assert found, answer.text
    return found[1]


async def may(server: Server, path: str, token: str) -> int:
    answer = await server.http.get(f"{server.url}{path}", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code


async def test_a_user_is_added_changed_and_removed(server: Server, owner: Visitor) -> None:
    name = f"Zoë & <b>{owner.name}</b>"
    answer = await owner.post("/ui/people", name=name, role="viewer")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/people/user?name={quote(name, safe='')}")
    page = (await owner.get(answer.headers["location"])).text
    assert (name in page, "Zoë &amp; &lt;b&gt;" in page) == (False, True)
    assert (await owner.post("/ui/people", name=name, role="viewer")).status_code == 409
    assert (await owner.post("/ui/people", name="", role="viewer")).status_code == 400
    assert (await owner.post("/ui/people", name="two\nlines", role="viewer")).status_code == 400

    assert (await owner.post("/ui/people/role", user=name, role="developer")).status_code == 303
    assert (await server.tokens.user(name)).role is Role.DEVELOPER
    assert (await owner.post("/ui/people/disable", user=name)).status_code == 303
    assert (await server.tokens.user(name)).disabled_at
    assert (await owner.post("/ui/people/link", user=name)).status_code == 409
    assert (await owner.post("/ui/people/enable", user=name)).status_code == 303
    assert not (await server.tokens.user(name)).disabled_at
    assert (await owner.post("/ui/people/remove", user=name)).status_code == 303
    assert (await server.tokens.user(name)).disabled_at
    assert (await owner.post("/ui/people/role", user="nobody of this name", role="owner")).status_code == 404


async def test_a_user_with_open_kickoffs_is_removed_when_they_are_stopped(
    server: Server, crew: Crew, owner: Visitor
) -> None:
    name = f"client of {crew.deployment.slug}"
    await crew.kickoff(token=await crew.token_of(name))
    assert "Stop 1 kickoff that has not ended" in (await owner.get(f"/ui/people/user?name={quote(name)}")).text
    refused = await owner.post("/ui/people/remove", user=name)
    assert (refused.status_code, "1 kickoffs of the user have not ended." in refused.text) == (409, True)
    assert not (await server.tokens.user(name)).disabled_at
    assert (await owner.post("/ui/people/remove", user=name, stop="on")).status_code == 303


async def test_a_sign_in_link_is_shown_once_and_noted(server: Server, owner: Visitor) -> None:
    name = await user(server, Role.VIEWER)
    answer = await owner.post("/ui/people/link", user=name)
    found = re.search(r'data-copy="[^"]*(/ui/sign-in\?code=[\w-]+)"', answer.text)
    assert found
    assert answer.headers["cache-control"] == "no-store"
    assert "sign-in?code=" not in (await owner.get(f"/ui/people/user?name={quote(name)}")).text
    new = await Visitor.of(server)
    assert (await new.get(found[1])).headers["location"] == "/ui/"
    assert (await new.get("/ui/account")).status_code == 200
    await new.close()
    log = (await owner.get(f"/ui/audit?action=user.make_link&target={quote(name)}")).text
    assert (log.count("<tr>") - 1, owner.name in log) == (1, True)


async def test_a_personal_token_is_shown_once_and_can_be_revoked(server: Server, viewer: Visitor) -> None:
    token = token_in(await viewer.post("/ui/tokens/personal", name="laptop", days="30"))
    assert await may(server, "/api/v1/me", token) == 200
    page = (await viewer.get("/ui/tokens")).text
    assert ("laptop" in page, token in page, f"…{token[-4:]}" in page) == (True, False, True)
    revoke = re.search(r'action="(/ui/tokens/[\w-]+/revoke)"', page)
    assert revoke
    assert (await viewer.post(revoke[1])).status_code == 303
    assert await may(server, "/api/v1/me", token) == 401
    assert "laptop" not in (await viewer.get("/ui/tokens")).text
    assert (await viewer.post("/ui/tokens/personal", name="", days="30")).status_code == 400
    assert (await viewer.post("/ui/tokens/personal", name="x", days="-1")).status_code == 400
    assert (await viewer.post("/ui/tokens/personal", name="x", days="nan")).status_code == 400


async def test_owners_create_and_revoke_tokens_of_others(server: Server, viewer: Visitor, owner: Visitor) -> None:
    token = token_in(await owner.post("/ui/tokens/personal", name="for the viewer", days="", user=viewer.name))
    assert await may(server, "/api/v1/me", token) == 200
    assert "for the viewer" in (await owner.get("/ui/tokens?all=1")).text
    assert "for the viewer" not in (await owner.get("/ui/tokens")).text
    assert "for the viewer" in (await viewer.get("/ui/tokens")).text
    assert (await viewer.post("/ui/tokens/personal", name="x", days="30", user=owner.name)).status_code == 403
    (row,) = await server.tokens.newest(user=(await server.tokens.user(viewer.name)).id, before=None, limit=1)
    other = await Visitor.of(server, Role.DEVELOPER)
    assert (await other.post(f"/ui/tokens/{row['id']}/revoke")).status_code == 404
    await other.close()
    assert (await owner.post(f"/ui/tokens/{row['id']}/revoke", all="1")).status_code == 303
    assert await may(server, "/api/v1/me", token) == 401


async def test_owners_create_tokens_of_crews_with_some_rights(server: Server, crew: Crew, owner: Visitor) -> None:
    slug, other = crew.deployment.slug, await server.crew()
    fields: dict[str, Any] = {"kind": "organization", "deployment": slug, "days": "30", "scopes[]": ["read"]}
    token = token_in(await owner.post("/ui/tokens/crew", **fields))
    assert token.startswith("wlo_")
    assert (await crew.get("/kickoffs", token=token)).status_code == 200
    assert (await crew.post({"inputs": {}}, token=token)).status_code == 403
    assert (await other.get("/kickoffs", token=token)).status_code == 401

    name = f"customer of {slug}"
    await server.tokens.add_user(name)
    of_user: dict[str, Any] = {
        "kind": "user",
        "deployment": "",
        "days": "",
        "user": name,
        "scopes[]": ["read", "run", "admin"],
    }
    user_token = token_in(await owner.post("/ui/tokens/crew", **of_user))
    assert user_token.startswith("wlu_")
    assert (await other.get("/kickoffs", token=user_token)).status_code == 200
    wrongs: list[dict[str, Any]] = [{"scopes[]": []}, {"deployment": "no-such-crew"}, {"kind": "user"}, {"days": "9"}]
    for wrong in wrongs:
        assert (await owner.post("/ui/tokens/crew", **{**fields, **wrong})).status_code == 400


async def test_the_audit_log_is_filtered_paged_and_downloaded(server: Server, owner: Visitor) -> None:
    name = f"of the audit {owner.name}"
    await owner.post("/ui/people", name=name, role="viewer")
    for role in ("developer", "viewer") * 26:
        await server.tokens.set_role(name, Role(role))
    first = (await owner.get(f"/ui/audit?target={quote(name)}")).text
    older = re.search(r'href="(/ui/audit\?[^"]*before=[^"]+)"', first)
    assert older
    second = (await owner.get(older[1].replace("&amp;", "&"))).text
    assert (first.count('title="user.set_role"'), second.count('title="user.set_role"')) == (50, 2)
    assert second.count('title="user.add"') == 1
    assert owner.name in second
    assert "No change matches" in (await owner.get(f"/ui/audit?target={quote(name)}&until=2020-01-01")).text
    assert (await owner.get("/ui/audit?since=yesterday")).status_code == 400

    file = await owner.get(f"/ui/audit.csv?target={quote(name)}&action=user")
    assert file.headers["content-type"].startswith("text/csv")
    assert len(file.text.splitlines()) == 54


async def test_pages_of_owners_are_closed_to_others(server: Server, viewer: Visitor) -> None:
    developer = await Visitor.of(server, Role.DEVELOPER)
    for page in ("/people", f"/people/user?name={quote(viewer.name)}", "/audit", "/audit.csv", "/tokens/crew"):
        assert (await developer.get(f"/ui{page}")).status_code == 403, page
    for action in ("", "/role", "/disable", "/enable", "/remove", "/link"):
        answer = await developer.post(f"/ui/people{action}", user=viewer.name, name=viewer.name, role="owner")
        assert answer.status_code == 403, action
    assert (await developer.post("/ui/tokens/crew", kind="organization", days="")).status_code == 403
    assert (await server.tokens.user(viewer.name)).role is Role.VIEWER
    await server.tokens.create_personal(viewer.name, "of the viewer")
    assert "of the viewer" not in (await developer.get("/ui/tokens?all=1")).text
    await developer.close()
