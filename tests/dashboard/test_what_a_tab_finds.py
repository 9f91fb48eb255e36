"""What `Tab` is there to find in pages is found in a page that has all of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from dashboard.browser import Tab, needs_a_browser
from patience import DEADLINE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Route

pytestmark = needs_a_browser

URL = "http://127.0.0.1:9"
PAGE = """<!doctype html><html lang="en"><title>Poor</title><main>
<script src="/own.js"></script><script>document.title = 'injected'</script>
<img src="http://elsewhere.test/pixel.png" alt=""><h1>Poor</h1><p class="faint">Hardly to be read</p><input>
<link rel="stylesheet" href="/own.css"></main></html>"""
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src *"
FILES = {
    "/": ("text/html", PAGE),
    "/own.js": ("text/javascript", "console.error('a complaint'); setTimeout(() => { throw new Error('it broke') })"),
    "/own.css": ("text/css", "@media (prefers-color-scheme: dark) { p { color: #222; background: #000 } }"),
}


async def answer(route: Route) -> None:
    kind, body = FILES.get(route.request.url.removeprefix(URL), ("text/plain", ""))
    headers = {"Content-Type": kind, "Content-Security-Policy": POLICY}
    await route.fulfill(status=200 if body else 404, headers=headers, body=body)


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    tab = await Tab.opened(browser, URL)
    await tab.page.context.route("**/*", answer)
    yield tab
    await tab.close()


async def test_all_that_a_page_may_not_do_is_noted(tab: Tab) -> None:
    with tab.expecting("status of 404"):
        await tab.go("/")
        async with asyncio.timeout(DEADLINE):
            while len(tab.problems) < 4:
                await tab.page.wait_for_timeout(10)
    found = "\n".join(tab.problems)
    assert "a complaint" in found
    assert "it broke" in found
    assert "Content Security Policy" in found
    assert "a request went elsewhere: http://elsewhere.test/pixel.png" in found


async def test_what_axe_finds_in_light_and_in_dark_fails(tab: Tab) -> None:
    await tab.go("/")
    with pytest.raises(AssertionError) as found:
        await tab.assert_accessible()
    assert "light: label (critical)" in str(found.value)
    assert "dark: color-contrast (serious)" in str(found.value)
    assert "light: color-contrast" not in str(found.value)
