"""Every route of the dashboard: who may call it, and the headers of its answer. Over plain HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from dashboard.people import Visitor
from windlass.dashboard.dashboard import Dashboard
from windlass.dashboard.pages import PAGES
from windlass.dashboard.templating import Templates
from windlass.kickoffs.ids import new_id
from windlass.rights import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.serving import Crew, Server

in_session = pytest.mark.asyncio(loop_scope="session")

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
PUBLIC = {"/sign-in", "/sign-in/openid", "/sign-in/openid/callback", "/sign-out", "/theme", "/times"}
TABLE = [route for group in PAGES for route in group.table]


@dataclass
class Asked:
    method: str
    path: str
    role: Role | None

    @property
    def url(self) -> str:
        """The path with made-up parameters: who may not call it must not learn whether they exist."""
        parts = ["no-such-one" if part == "{slug}" else part for part in self.path.split("/")]
        return "/ui" + "/".join(str(new_id()) if part.startswith("{") else part for part in parts)


ROUTES = [Asked(method, path, role) for method, path, role, _ in TABLE]
POSTS = [one for one in ROUTES if one.method == "POST"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def people(server: Server) -> AsyncIterator[dict[Role, Visitor]]:
    found = {role: await Visitor.of(server, role) for role in Role}
    yield found
    for visitor in found.values():
        await visitor.close()


def test_only_the_sign_in_is_public() -> None:
    assert {one.path for one in ROUTES if one.role is None} == PUBLIC


def test_no_get_changes_anything_and_each_change_needs_more_than_a_viewer() -> None:
    mine = ("/account", "/sign-out", "/sign-in", "/theme", "/times", "/tokens/personal", "/tokens/{token}/revoke")
    # the setting `approvers` may name a viewer, and each member may leave a crew
    allowed = (*mine, "/approvals/{question}", "/crews/{slug}/members/remove")
    weak = [one.path for one in POSTS if one.role is Role.VIEWER and not one.path.startswith(allowed)]
    assert not weak
    assert {one.method for one in ROUTES} == {"GET", "POST"}


@in_session
async def test_each_route_refuses_who_has_a_lesser_role_and_who_is_not_signed_in(
    server: Server, people: dict[Role, Visitor]
) -> None:
    nobody = await Visitor.of(server)
    csrf = {role: await visitor.csrf() for role, visitor in people.items()}
    refused = 0
    for one in ROUTES:
        if one.role is None:
            continue
        answer = await nobody.http.request(one.method, one.url, data={"csrf": csrf[Role.OWNER]})
        assert (answer.status_code, answer.headers["location"].startswith("/ui/sign-in")) == (303, True), one
        for role, visitor in people.items():
            if not role.includes(one.role):
                answer = await visitor.http.request(one.method, one.url, data={"csrf": csrf[role]})
                assert answer.status_code == 403, (one, role)
                assert f"needs the role {one.role}" in answer.text
                refused += 1
    assert refused >= len([one for one in POSTS if one.role in (Role.DEVELOPER, Role.OWNER)])
    await nobody.close()


@in_session
async def test_each_post_refuses_a_form_without_the_token_of_the_session(people: dict[Role, Visitor]) -> None:
    owner = people[Role.OWNER]
    csrf = await owner.csrf()
    for one in POSTS:
        if one.path == "/sign-in":
            continue
        answers = [
            await owner.http.post(one.url, data={"csrf": ""}),
            await owner.http.post(one.url, data={"csrf": "0" * 64}),
            await owner.http.post(one.url, files={"file": b"x"}),
            await owner.http.post(f"{one.url}?csrf={csrf}", data={"name": "x"}),
            await owner.http.post(f"{one.url}?csrf={csrf}", files={"file": b"x"}),
        ]
        assert [answer.status_code for answer in answers] == [403] * 5, one
        assert all("older session" in answer.text for answer in answers), one


@in_session
async def test_no_address_on_a_page_has_the_token_of_the_session(
    server: Server, crew: Crew, people: dict[Role, Visitor]
) -> None:
    owner, seen = people[Role.OWNER], 0
    csrf = await owner.csrf()
    places = (f'name="csrf" value="{csrf}"', f'"X-CSRF-Token": "{csrf}"')
    for one in ROUTES:
        if one.method == "GET" and not re.search(r"/sign-in|\.csv|\.zip|downloads|/files|changes", one.path):
            text = (await owner.get(one.url.replace("no-such-one", crew.deployment.slug))).text
            seen += csrf in text
            for place in places:
                text = text.replace(place, "")
            assert csrf not in text, one
    assert seen > 20


ODD = ("/ui/people?after=a%00b", "/ui/audit?until=9999-12-31", "/ui/audit.csv?until=9999-12-31", "/ui/?search=%00")
LONG_NUMBERS = ("00000000000" + "9" * 30, "0" * 11 + "9" * 5000)


@in_session
async def test_odd_texts_in_addresses_and_forms_fail_no_route(
    server: Server, crew: Crew, people: dict[Role, Visitor]
) -> None:
    owner, slug = people[Role.OWNER], crew.deployment.slug
    csrf = await owner.csrf()
    for one in ROUTES:
        if "{" not in one.path:
            continue
        path = "/ui" + re.sub("{[^}]+}", "a%00b", one.path)
        answer = await (owner.get(path) if one.method == "GET" else owner.post(path, csrf=csrf))
        assert answer.status_code == 404, path
    for path in ODD:
        assert (await owner.get(path)).status_code == 200, path
    for number in LONG_NUMBERS:
        answer = await owner.post(f"/ui/crews/{slug}/promote", csrf=csrf, version=number, current="1")
        assert answer.status_code == 400


MISSING = {
    "/ui/crews/none": "There is no crew with this name.",
    "/ui/builds/none": "There is no such build.",
    "/ui/credentials/none": "There is no credential with this name.",
    "/ui/people/user?name=none": "There is no user with this name.",
    "/ui/crews/none/pause": "This address only takes forms.",
}


@in_session
async def test_what_is_missing_is_told_in_words_for_people(people: dict[Role, Visitor]) -> None:
    for path, words in MISSING.items():
        page = (await people[Role.OWNER].get(path)).text
        assert words in page
        assert "GET" not in page


@in_session
async def test_below_the_path_of_a_public_url_each_address_has_it_once(
    server: Server, crew: Crew, people: dict[Role, Visitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the templates first: those of the server may be made only now, and keep the addresses that they are made with
    monkeypatch.setattr(server.dashboard, "templates", Templates(lambda path: f"/below{path}"))
    monkeypatch.setattr(Dashboard, "url", lambda _, path: f"/below{path}")
    slug, owner = crew.deployment.slug, people[Role.OWNER]
    pages = [one.path.replace("{slug}", slug) for one in ROUTES if one.method == "GET"]
    shown = 0
    for path in pages:
        answer = await owner.get(f"/ui{path}")
        if answer.headers.get("content-type", "").startswith("text/html"):
            found = re.findall(r' (?:href|src|action|formaction|hx-get|hx-post|sse-connect)="(/[^"]*)"', answer.text)
            assert [one for one in found if not re.match("/below/(?!below)", one)] == [], path
            shown += answer.status_code == 200
        elif answer.is_redirect:
            assert answer.headers["location"].startswith("/below/ui/"), path
    assert shown > 20


@in_session
async def test_the_headers_of_pages_errors_and_redirects_keep_the_browser_in_bounds(
    server: Server, people: dict[Role, Visitor]
) -> None:
    owner = people[Role.OWNER]
    for path, status in (("/ui/", 200), ("/ui/no-such-page", 404), ("/ui/sign-in", 303), ("/ui/account", 200)):
        answer = await owner.get(path)
        assert answer.status_code == status
        given = dict(one.strip().split(" ", 1) for one in answer.headers["content-security-policy"].split(";"))
        assert given == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "no-store" in answer.headers["cache-control"], path
