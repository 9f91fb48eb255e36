"""Signing in, and what a session is worth: over plain HTTP."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from dashboard.people import PASSWORD, Visitor, link, user
from windlass.access.openid import SignInRefused
from windlass.access.sessions import MOST_SESSIONS, TRIES_PER_MINUTE, Client
from windlass.rights import Role
from windlass.store.audit import COMMAND_LINE
from windlass.store.sessions import SignIn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from api.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def nobody(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server)
    yield visitor
    await visitor.close()


async def by_password(visitor: Visitor, name: str, password: str = PASSWORD, **more: str) -> httpx.Response:
    return await visitor.post("/ui/sign-in", csrf="", name=name, password=password, **more)


async def is_in(visitor: Visitor) -> bool:
    answer = await visitor.get("/ui/account")
    assert answer.status_code == 200 or answer.headers["location"].startswith("/ui/sign-in")
    return answer.status_code == 200


async def test_a_password_signs_in_and_leads_to_the_page_that_was_asked_for(server: Server, nobody: Visitor) -> None:
    name = await user(server, Role.VIEWER, PASSWORD)
    sent_away = await nobody.get("/ui/account?x=1")
    assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/ui/sign-in?next=/ui/account%3Fx%3D1")
    wrong = await by_password(nobody, name, "another password")
    assert (wrong.status_code, "The name or the password is wrong." in wrong.text) == (403, True)
    unknown = await by_password(nobody, "unknown to all", "another password")
    assert (unknown.status_code, "The name or the password is wrong." in unknown.text) == (403, True)
    answer = await by_password(nobody, name, next="/ui/account?x=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/account?x=1")
    assert await is_in(nobody)


async def test_no_sign_in_leads_elsewhere(server: Server, nobody: Visitor) -> None:
    name = await user(server, Role.VIEWER)
    for following in ("https://elsewhere.test/", "//elsewhere.test", "/ui/\\elsewhere", "/ui/\n", "/x", "/ui/sign-in"):
        nobody.http.cookies.clear()
        answer = await nobody.get(f"{await link(server, name)}&{urlencode({'next': following})}")
        assert answer.headers["location"] == "/ui/"


async def test_the_cookie_is_closed_to_scripts_and_other_sites_and_new_for_each_sign_in(
    server: Server, nobody: Visitor
) -> None:
    name = await user(server, Role.VIEWER, PASSWORD)
    nobody.http.cookies.set(server.dashboard.sessions.cookie, "planted", path="/ui")
    values = set()
    for _ in range(2):
        answer = await by_password(nobody, name)
        nobody.http.cookies.clear()
        (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "lax", "/ui")
        values.add(cookie.value)
    assert len(values - {"planted"}) == 2


async def test_signing_in_again_ends_the_session_of_before(server: Server, owner: Visitor) -> None:
    before = dict(owner.http.cookies)
    assert (await owner.get(await link(server, owner.name))).status_code == 303
    assert await is_in(owner)
    assert dict(owner.http.cookies) != before
    owner.http.cookies.update(before)
    assert not await is_in(owner)


async def test_a_link_is_not_used_up_by_a_program_or_another_site(
    server: Server, nobody: Visitor, owner: Visitor
) -> None:
    path = await link(server, owner.name)
    for site in ("cross-site", "same-site", ""):
        page = await nobody.get(path, headers={"Sec-Fetch-Site": site})
        assert (page.status_code, "set-cookie" in page.headers) == (200, False)
    answer = await nobody.post("/ui/sign-in", csrf="", code=path.partition("code=")[2])  # the button of that page
    assert (answer.status_code, await is_in(nobody)) == (303, True)


async def test_a_link_signs_in_once(server: Server, nobody: Visitor, owner: Visitor) -> None:
    path = await link(server, owner.name)
    assert (await nobody.get(path)).headers["location"] == "/ui/"
    assert await is_in(nobody)
    nobody.http.cookies.clear()
    again = await nobody.get(path)
    assert (again.status_code, "was used before" in again.text) == (403, True)
    assert not await is_in(nobody)


async def test_a_link_that_was_not_used_for_half_an_hour_is_refused(server: Server, nobody: Visitor) -> None:
    name = await user(server, Role.VIEWER)
    path = await link(server, name)
    await age(server, name, "sign_in_links SET expires_at = expires_at - interval '31 minutes'")
    answer = await nobody.get(path)
    assert (answer.status_code, "too old" in answer.text) == (403, True)


@pytest.mark.parametrize("older", ["seen_at = now() - interval '25 hours'", "created_at = now() - interval '15 days'"])
async def test_a_session_ends_a_day_after_its_last_use_and_two_weeks_after_its_beginning(
    server: Server, owner: Visitor, older: str
) -> None:
    assert await is_in(owner)
    await age(server, owner.name, f"sessions SET {older}")
    assert not await is_in(owner)


async def age(server: Server, name: str, change: str) -> None:
    """Lets time pass for the rows of a user."""
    query = f"UPDATE {change} WHERE user_id = (SELECT id FROM users WHERE name = %(name)s)"
    await server.database.execute(query, {"name": name})


async def test_signing_out_ends_this_session_and_everywhere_all_of_them(server: Server, owner: Visitor) -> None:
    others = [await Visitor.of(server) for _ in range(2)]
    for other in others:
        await other.get(await link(server, owner.name))
    kept = dict(others[0].http.cookies)
    await others[0].post("/ui/sign-out")
    others[0].http.cookies.update(kept)
    assert [await is_in(one) for one in (*others, owner)] == [False, True, True]
    unused = await link(server, owner.name)
    answer = await owner.post("/ui/account/sign-out-everywhere")
    assert answer.headers["location"] == "/ui/sign-in"
    assert [await is_in(one) for one in (*others, owner)] == [False, False, False]
    assert (await others[0].get(unused)).status_code == 403, "links end too"
    for other in others:
        await other.close()


async def test_a_new_password_ends_all_other_sessions(server: Server, owner: Visitor) -> None:
    other = await Visitor.of(server)
    await other.get(await link(server, owner.name))
    short = await owner.post("/ui/account/password", new="short", again="short")
    assert (short.status_code, "A password has 12 to 200 characters." in short.text) == (400, True)
    assert (await owner.post("/ui/account/password", new=PASSWORD, again=PASSWORD)).status_code == 303
    assert [await is_in(one) for one in (other, owner)] == [False, True]
    assert (await by_password(other, owner.name)).status_code == 303
    refused = await owner.post("/ui/account/password", current="not the one", new=PASSWORD, again=PASSWORD)
    assert (refused.status_code, "The current password is wrong." in refused.text) == (400, True)
    await other.close()


async def test_a_user_who_is_disabled_or_has_no_role_any_more_is_out_at_once(server: Server, nobody: Visitor) -> None:
    name = await user(server, Role.DEVELOPER, PASSWORD)
    await by_password(nobody, name)
    assert await is_in(nobody)
    await server.tokens.disable_user(name)
    assert not await is_in(nobody)
    assert (await by_password(nobody, name)).status_code == 403


async def test_a_session_and_a_link_of_a_user_who_was_disabled_never_work_again(
    server: Server, nobody: Visitor
) -> None:
    async def disabled(name: str) -> None:
        await server.tokens.disable_user(name)
        await server.tokens.enable_user(name)

    async def without_role(name: str) -> None:
        await server.tokens.set_role(name, None)
        await server.tokens.set_role(name, Role.DEVELOPER)

    for barred in (disabled, without_role):
        nobody.http.cookies.clear()
        name = await user(server, Role.DEVELOPER, PASSWORD)
        await by_password(nobody, name)
        unused = await link(server, name)
        await barred(name)
        assert not await is_in(nobody)
        assert (await nobody.get(unused)).status_code == 403
        assert (await by_password(nobody, name)).status_code == 303, "a new sign-in works"


async def test_a_sign_in_that_was_proved_before_a_change_begins_no_session(server: Server) -> None:
    sessions, client = server.dashboard.sessions, Client(None, None)
    name = await user(server, Role.DEVELOPER, PASSWORD)
    found = await sessions._store.password(name)
    assert found is not None
    await sessions.set_password(name, f"another {PASSWORD}")
    with pytest.raises(SignInRefused):
        await sessions.begin(found[0], "password", client, found[1])
    assert not await sessions._store.update_hash(found[0], found[1] or "", "the old password again")
    digest, given = b"of a cookie", SignIn(found[0], "link", None, None)
    await server.tokens.disable_user(name)
    assert not await sessions._store.add(digest, given, COMMAND_LINE, most=MOST_SESSIONS)


async def test_a_new_password_ends_the_links_that_were_not_used(server: Server, nobody: Visitor) -> None:
    name = await user(server, Role.DEVELOPER, PASSWORD)
    unused = await link(server, name)
    await server.dashboard.sessions.set_password(name, f"another {PASSWORD}")
    assert (await nobody.get(unused)).status_code == 403


async def test_guesses_of_a_password_are_limited(server: Server, nobody: Visitor) -> None:
    name = await user(server, Role.VIEWER, PASSWORD)
    tries = 1
    while (answer := await by_password(nobody, name, "a wrong password")).status_code == 403:
        tries += 1
        assert tries < 5 * TRIES_PER_MINUTE, "some come back while a slow machine tries"
    assert (answer.status_code, tries > TRIES_PER_MINUTE) == (429, True)
    assert (await by_password(nobody, name)).status_code == 429, "the right one is no way around"


async def test_the_names_of_guesses_take_little_memory(server: Server) -> None:
    failures = server.dashboard.sessions._tries
    for name in ("x" * 100_000, "x" * 200_000):
        with pytest.raises(SignInRefused):
            await server.dashboard.sessions.by_password(name, PASSWORD, Client(None, None))
    assert max(map(len, failures._empty_at)) <= 2 * 100


async def test_a_form_of_another_site_or_session_is_refused(server: Server, owner: Visitor) -> None:
    path = "/ui/account/sign-out-everywhere"
    another = await Visitor.of(server, Role.OWNER)
    for csrf in ("", "0" * 64, await another.csrf()):
        assert (await owner.post(path, csrf=csrf)).status_code == 403
    fields = {"csrf": await owner.csrf()}
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        assert (await owner.http.post(path, data=fields, headers=headers)).status_code == 403
    del owner.http.headers["Sec-Fetch-Site"]
    foreign = await owner.http.post(path, data=fields, headers={"Origin": "https://elsewhere.test"})
    assert foreign.status_code == 403, "a browser without Sec-Fetch-Site"
    assert await is_in(owner)
    await another.close()
