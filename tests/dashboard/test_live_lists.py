"""The list of crews and the System page in a browser: they refresh, fit a phone, and axe finds nothing in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.browser import DEADLINE, PHONE, needs_a_browser
from dashboard.people import signed_in
from dashboard.test_crews_and_system import ended
from windlass.kickoffs.roles import Role

if TYPE_CHECKING:
    from api.serving import Server
    from dashboard.browser import Tabs

pytestmark = needs_a_browser


async def test_the_list_refreshes_under_a_person_who_types(server: Server, tabs: Tabs) -> None:
    crew = await server.crew("refreshed")
    tab = await signed_in(tabs, server, Role.VIEWER)
    await tab.go("/ui/?search=refreshed")
    row = tab.page.locator("#crew-refreshed")
    assert "No run yet" in await row.inner_text()
    search = tab.page.get_by_role("searchbox", name="Search crews")
    await search.fill("half a w")
    kickoff = await ended(crew, "FAILED", reason="error", error="no tea")
    await row.get_by_text("0 %").wait_for(timeout=DEADLINE * 1000)
    assert await search.input_value() == "half a w"
    await search.fill("refreshed")
    await search.press("Enter")
    await tab.page.wait_for_url("**search=refreshed**")
    await tab.page.get_by_label("Order").select_option("-created_at")
    await tab.page.wait_for_url("**order=-created_at**")
    await tab.page.get_by_role("navigation", name="State").get_by_text("Online").click()
    await tab.page.wait_for_url("**state=online**")
    assert "order=-created_at" in tab.page.url
    failure = await row.get_by_role("link", name="error").get_attribute("href")
    assert failure == f"/ui/crews/refreshed/executions/{kickoff}"


async def test_the_pages_are_accessible_and_fit_a_phone(server: Server, tabs: Tabs) -> None:
    crew = await server.crew("a-crew-with-quite-a-long-name-for-a-small-screen")
    await ended(crew, count=3)
    await ended(crew, "FAILED", reason="crashed")
    await crew.kickoff()
    for size in ({}, {"viewport": PHONE}):
        tab = await signed_in(tabs, server, Role.DEVELOPER, **size)
        for name, path in {"crews": "/ui/", "system": "/ui/system", "no-crew": "/ui/?search=none"}.items():
            await tab.go(path)
            await tab.picture(f"{name}-{'phone' if size else 'wide'}")
            await tab.assert_accessible()
            width = await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{path} scrolls sideways"
