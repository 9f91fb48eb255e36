"""What people come to the dashboard for, on a whole server: each test walks through one story in a browser."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx

from dashboard.browser import needs_a_browser
from patience import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Page

    from dashboard.browser import Tab, Tabs
    from dashboard.live import LiveServer

pytestmark = needs_a_browser

CREW = "/ui/crews/tea"


async def owner(tabs: Tabs, live: LiveServer, **settings: object) -> Tab:
    tab = await tabs(live.url, permissions=["clipboard-read", "clipboard-write"], **settings)
    await tab.go(await asyncio.to_thread(live.link))
    return tab


async def run(page: Page, leaf: str, wait_for: Path | None = None) -> None:
    """Fills the form of the crew, and sends it."""
    await page.get_by_label("leaf required").fill(leaf)
    if wait_for:
        await page.get_by_label("wait_for").fill(str(wait_for))
    await page.locator(".run-form .form-end").get_by_role("button", name="Run crew").click()
    await page.wait_for_url("**/executions/*")


async def state(page: Page, word: str) -> None:
    await page.locator(".run-facts .state", has_text=word).wait_for()


async def answer(live: LiveServer, token: str) -> int:
    """The status with which the crew's API answers a program that has this token."""
    async with httpx.AsyncClient(timeout=DEADLINE) as http:
        found = await http.get(f"{live.url}/crews/tea/inputs", headers={"Authorization": f"Bearer {token}"})
        return found.status_code


async def copied(page: Page) -> str:
    """The Bearer Token, by its button."""
    await page.evaluate("navigator.clipboard.writeText('')")
    await page.get_by_role("button", name="Copy Bearer Token", exact=True).click()
    async with asyncio.timeout(DEADLINE):
        while not (text := str(await page.evaluate("navigator.clipboard.readText()"))).startswith("wlo_"):
            await page.wait_for_timeout(20)
    return text


async def test_a_program_gets_its_token_and_a_rotated_one_is_refused(live: LiveServer, tabs: Tabs) -> None:
    tab = await owner(tabs, live)
    page = tab.page
    await page.get_by_role("link", name="tea", exact=True).click()
    await tab.assert_accessible()
    await tab.picture("status")
    assert "wlo_" in await tab.text()
    token = await copied(page)
    assert token not in await page.content(), "the page does not hold it"
    assert await answer(live, token) == 200
    await page.get_by_role("button", name="Show Bearer Token", exact=True).click()
    await page.get_by_text(token).wait_for()
    row = page.locator("[data-token-row]", has=page.get_by_text("Bearer Token", exact=True)).first
    await row.get_by_role("button", name="Rotate", exact=True).first.click()
    await tab.assert_accessible()
    await row.locator("form.ask").get_by_role("button", name="Rotate").click()
    await page.locator(".notice").wait_for()
    async with asyncio.timeout(DEADLINE):
        while await answer(live, token) != 401:
            await page.wait_for_timeout(50)
    assert await answer(live, await copied(page)) == 200


async def test_a_crew_is_run_from_its_form_and_watched_to_its_end(live: LiveServer, tabs: Tabs) -> None:
    tab = await owner(tabs, live)
    page = tab.page
    await tab.go(f"{CREW}/run")
    await tab.assert_accessible()
    gate = live.folder / "gate of the first"
    await page.get_by_label("minutes").fill("5")
    await page.get_by_label("kind").select_option("black")
    await run(page, "assam", gate)
    await state(page, "Running")
    await page.evaluate("window.stayed = true")
    await tab.assert_accessible()
    gate.touch()
    await state(page, "Succeeded")
    await page.get_by_role("heading", name="5 minutes").wait_for()
    assert await page.locator("strong", has_text="black").count() == 1
    assert await page.evaluate("window.stayed"), "the page was not loaded again"
    await tab.picture("execution")
    await tab.go(page.url.partition("?")[0].removeprefix(live.url) + "?tab=log")
    await page.get_by_text("the water boils").wait_for()


async def test_the_reason_of_a_failure_is_on_the_first_screen(live: LiveServer, tabs: Tabs) -> None:
    tab = await owner(tabs, live)
    page = tab.page
    await tab.go(f"{CREW}/run")
    await run(page, "nettle")
    await state(page, "Failed")
    await tab.assert_accessible()
    await page.get_by_text("ValueError: nettle is no tea; use a leaf of Camellia").first.wait_for()
    await page.get_by_text('File "steep.py", line 12, in steep').first.wait_for()
    await tab.go("/ui/")
    row = page.locator("tr", has=page.get_by_role("link", name="tea", exact=True))
    await row.get_by_role("link", name="ago").click()
    await state(page, "Failed")
    await page.get_by_role("link", name="Run again").click()
    assert await page.get_by_label("leaf required").input_value() == "nettle", "with the same inputs"


async def test_an_earlier_version_is_taken_back_and_the_newer_promoted_again(live: LiveServer, tabs: Tabs) -> None:
    tab = await owner(tabs, live)
    page = tab.page
    await tab.go(f"{CREW}/versions")
    await tab.assert_accessible()
    await page.get_by_role("button", name="Roll back", exact=True).first.click()
    await page.locator("form.ask:visible").get_by_role("button", name="Roll back").click()
    await page.locator(".timeline li.current", has_text="Version 1").wait_for()
    await tab.go(f"{CREW}/run")
    await run(page, "assam")
    await page.get_by_role("heading", name="3 minutes").wait_for()
    assert await page.locator("strong", has_text="green").count() == 0
    await tab.go(f"{CREW}/versions")
    await page.locator("li", has_text="Version 2").get_by_role("button", name="Promote", exact=True).first.click()
    await page.locator("form.ask:visible").get_by_role("button", name="Promote").click()
    await page.locator(".timeline li.current", has_text="Version 2").wait_for()


async def test_a_crew_is_run_and_its_result_read_without_javascript(live: LiveServer, tabs: Tabs) -> None:
    tab = await owner(tabs, live, java_script_enabled=False)
    page = tab.page
    await page.get_by_role("link", name="tea", exact=True).click()
    await page.get_by_role("link", name="Run", exact=True).click()
    await run(page, "sencha")
    async with asyncio.timeout(DEADLINE):
        while "Succeeded" not in await page.locator(".run-facts").inner_text():
            await page.reload()
    assert await page.locator("strong", has_text="green").count() == 1
    assert "sencha tea" in await tab.text()


async def test_a_crew_is_run_by_keyboard_alone(live: LiveServer, tabs: Tabs) -> None:
    tab = await owner(tabs, live)
    page = tab.page
    await press_until(page, "Tab", "tea")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{CREW}")
    await press_until(page, "Tab", "Run")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{CREW}/run")
    while await page.evaluate("document.activeElement.labels?.[0]?.textContent.trim().startsWith('leaf')") is not True:
        await page.keyboard.press("Tab")
    await page.keyboard.type("oolong")
    await page.keyboard.press("Control+Enter")
    await state(page, "Succeeded")
    await press_until(page, "Tab", "Timeline")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**tab=timeline")


async def press_until(page: Page, key: str, words: str) -> None:
    """Moves the focus to the link or button that is called so, and can be seen to have it."""
    for _ in range(60):
        await page.keyboard.press(key)
        found = await page.evaluate("document.activeElement.innerText.trim()")
        if found == words:
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", words
            return
    raise AssertionError(f"{words} can't be reached by {key}")
