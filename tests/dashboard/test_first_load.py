"""What a person waits for at the first visit: the bytes that cross the network, as the browser counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.runs import begin
from dashboard.browser import needs_a_browser
from dashboard.people import link, user

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.browser import Tab, Tabs

pytestmark = needs_a_browser

MOST = 150 * 1024
TRANSFERRED = """() => ["navigation", "resource"].flatMap(kind =>
    performance.getEntriesByType(kind).map(one => [new URL(one.name).pathname, one.transferSize]))"""
"""Bytes with headers of each load, 0 for one from the browser's cache."""


async def transferred(tab: Tab) -> dict[str, int]:
    """Bytes by path."""
    await tab.page.wait_for_load_state("networkidle")
    found: list[tuple[str, int]] = await tab.page.evaluate(TRANSFERRED)
    return {path: sum(size for one, size in found if one == path) for path, _ in found}


async def test_the_first_page_is_light_and_the_next_loads_no_file_again(server: Server, crew: Crew, tabs: Tabs) -> None:
    run = await begin(crew, await crew.kickoff())
    await run.succeed("# Tides")
    for path in ("/ui/", f"/ui/crews/{crew.deployment.slug}/executions/{run.claimed.id}"):
        tab = await tabs(server.url)
        await tab.go(f"{await link(server, await user(server))}&next={path}")
        assert tab.page.url == f"{server.url}{path}"
        first = await transferred(tab)
        assert {"/ui/static/build/htmx.js", "/ui/static/build/inter.woff2", "/ui/static/dashboard.css"} < set(first)
        assert all(first.values()), "nothing was in the cache"
        assert sum(first.values()) < MOST, first
        await tab.go("/ui/account")
        second = await transferred(tab)
        assert [path for path, size in second.items() if size] == ["/ui/account"]
