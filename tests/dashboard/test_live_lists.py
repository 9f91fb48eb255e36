"""The list of crews and the System page in a browser: they refresh, fit a phone, and axe finds nothing in them."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from dashboard.browser import PHONE, needs_a_browser
from dashboard.people import signed_in
from dashboard.test_crews_and_system import ended
from patience import DEADLINE
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Server
    from dashboard.browser import Tabs
    from dashboard.live import LiveServer

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


async def test_a_run_is_seen_while_it_works_with_its_zygote_and_counted_at_its_end(
    live: LiveServer, tabs: Tabs
) -> None:
    ready = live.folder / "ready"
    started = await asyncio.to_thread(
        live.windlass, "kickoff", "--deployment", "tea", "-i", "leaf=assam", "-i", f"wait_for={ready}"
    )
    assert started.code == 0, started
    crews, system = await tabs(live.url), await tabs(live.url)
    for tab, path in ((crews, "/ui/"), (system, "/ui/system")):
        await tab.go(await asyncio.to_thread(live.link))
        await tab.go(path)
    within = DEADLINE * 1000
    row, worker = crews.page.locator("#crew-tea"), system.page.locator("table.workers tbody tr")
    await row.locator(".running", has_text="1").wait_for(timeout=within)
    await worker.filter(has_text=re.compile(r"1 of \d+\s+[1-9]\d[\d.]* MB")).wait_for(timeout=within)
    ready.touch()
    await row.locator(".running", has_text="0").wait_for(timeout=within)
    await row.locator(".total").wait_for(timeout=within)
    await worker.filter(has_text=re.compile(r"0 of \d+")).wait_for(timeout=within)
