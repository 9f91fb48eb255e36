"""The frame of all pages, in a browser: signing in, the menu, keys, the theme, and a page without JavaScript."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.browser import needs_a_browser
from dashboard.people import PASSWORD, link, signed_in, user
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.browser import Tabs

pytestmark = needs_a_browser


async def test_a_person_signs_in_with_a_password_and_out_again(server: Server, tabs: Tabs) -> None:
    name = await user(server, Role.OWNER, PASSWORD)
    tab = await tabs(server.url)
    await tab.go("/")
    page = tab.page
    await page.get_by_label("User name").fill(name)
    await page.get_by_label("Password").fill("not the password")
    await tab.assert_accessible()
    with tab.expecting("status of 403"):
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_text("The name or the password is wrong.").wait_for()
    await page.get_by_label("Password").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Crews").wait_for()
    await tab.assert_accessible()
    await tab.picture("crews")
    await page.get_by_text(name).first.click()
    await tab.assert_accessible()
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_text("You are signed out.").wait_for()
    await tab.go("/ui/")
    assert page.url.endswith("/ui/sign-in")


async def test_a_session_is_ended_from_another_browser(server: Server, tabs: Tabs) -> None:
    one = await signed_in(tabs, server)
    await one.go("/ui/account")
    name = (await one.page.locator("h1 + p").inner_text()).split(",")[0]
    other = await tabs(server.url)
    await other.go(await link(server, name))
    await other.go("/ui/account")
    await other.page.get_by_label("New password", exact=True).fill(PASSWORD)
    await other.page.get_by_label("New password again").fill(PASSWORD)
    await other.assert_accessible()
    await other.picture("account")
    await other.page.get_by_role("button", name="End session").click()
    await other.page.get_by_text("The session has ended.").wait_for()
    await one.go("/ui/account")
    assert one.page.url.endswith("/ui/sign-in?next=/ui/account")


async def test_the_frame_works_by_keyboard_and_remembers_the_theme(server: Server, crew: Crew, tabs: Tabs) -> None:
    tab = await signed_in(tabs, server)
    page = tab.page
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
    await page.keyboard.press("/")
    await page.keyboard.type(crew.deployment.slug)
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name=crew.deployment.slug, exact=True).wait_for()
    assert "search=" in page.url
    menu = page.locator("details.menu > summary")
    await menu.press("Enter")
    await page.get_by_role("button", name="Dark").press("Enter")
    await page.wait_for_function("getComputedStyle(document.body).backgroundColor === 'rgb(15, 18, 22)'")
    assert "search=" in page.url, "the person is where they were"
    await menu.press("Enter")
    await page.keyboard.press("Escape")
    assert await page.locator("details.menu[open]").count() == 0
    await tab.go("/ui/no-such-page", 404)
    await page.get_by_text("There is no page at this address.").wait_for()
    await tab.assert_accessible()


async def test_a_person_signs_in_and_sees_the_crews_without_javascript(server: Server, crew: Crew, tabs: Tabs) -> None:
    name = await user(server, Role.VIEWER, PASSWORD)
    tab = await tabs(server.url, java_script_enabled=False)
    page = tab.page
    await tab.go("/ui/account")
    await page.get_by_label("User name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    assert await page.title() == "Your account · Windlass"
    await page.get_by_role("link", name="Crews").click()
    await page.get_by_label("Search crews").fill(crew.deployment.slug)
    await page.get_by_role("button", name="Search", exact=True).click()
    await page.get_by_role("link", name=crew.deployment.slug, exact=True).wait_for()
    assert "Deploy a crew" not in await tab.text(), "a viewer may not"
    await page.locator("details.menu > summary").click()
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_text("You are signed out.").wait_for()
