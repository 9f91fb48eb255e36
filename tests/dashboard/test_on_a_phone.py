"""Results and files of executions on a phone, in a browser."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from api.test_files_of_a_kickoff import with_files
from dashboard.browser import PHONE, needs_a_browser
from dashboard.made_runs import started
from dashboard.people import signed_in
from dashboard.test_every_page import POOR_BUTTONS
from patience import DEADLINE

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.browser import Tabs

pytestmark = needs_a_browser

TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
COLUMNS = 24
HEBREW = "\u05e9\u05dc\u05d5\u05dd"
LEFT_OF_TEXT = """one => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return range.getBoundingClientRect().left;
}"""


async def test_long_words_break_and_a_wide_table_scrolls_by_keyboard(server: Server, crew: Crew, tabs: Tabs) -> None:
    row = "|" + " a value |" * COLUMNS
    table = "\n".join([row, "|" + "---|" * COLUMNS, row])
    run = (await started(crew)).run
    await run.succeed(f"{'w' * 500}\n\n{table}")
    tab = await signed_in(tabs, server, viewport=PHONE)
    page = tab.page
    await tab.go(f"/ui/crews/{crew.deployment.slug}/executions/{run.claimed.id}")
    assert await page.evaluate(TOO_WIDE) <= 0
    paper = page.locator(".paper")
    assert await paper.evaluate("one => one.scrollWidth > one.clientWidth")
    word = page.locator(".crew-text p").first
    assert await word.evaluate("one => one.getBoundingClientRect().right < innerWidth"), "the word is broken"
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await paper.evaluate("one => one === document.activeElement"):
            break
    await page.keyboard.press("ArrowRight")
    async with asyncio.timeout(DEADLINE):
        while await paper.evaluate("one => one.scrollLeft") == 0:
            await page.wait_for_timeout(50)
    await tab.assert_accessible()


async def test_a_paragraph_from_right_to_left_begins_at_the_right(server: Server, crew: Crew, tabs: Tabs) -> None:
    run = (await started(crew)).run
    await run.succeed(f"English\n\n{HEBREW}")
    tab = await signed_in(tabs, server, viewport=PHONE)
    for view, place in (("markdown", ".crew-text p"), ("raw", ".paper pre")):
        await tab.go(f"/ui/crews/{crew.deployment.slug}/executions/{run.claimed.id}?view={view}")
        text = tab.page.locator(place).last
        if view == "markdown":
            assert await text.evaluate(LEFT_OF_TEXT) > PHONE["width"] / 2
        else:
            assert await text.evaluate("one => getComputedStyle(one).unicodeBidi") == "plaintext"


async def test_files_with_long_paths_fit(server: Server, crew: Crew, tabs: Tabs) -> None:
    kickoff = await with_files(crew, {f"out/{'long-name-' * 12}{number}.md": b"tea" for number in range(3)})
    tab = await signed_in(tabs, server, viewport=PHONE)
    await tab.go(f"/ui/crews/{crew.deployment.slug}/executions/{kickoff}?tab=files")
    assert await tab.page.get_by_role("link", name="Download out").count() == 3
    assert await tab.page.evaluate(TOO_WIDE) <= 0
    assert await tab.page.evaluate(POOR_BUTTONS) == []
    boxes = [await one.bounding_box() for one in await tab.page.get_by_role("link", name="Download out").all()]
    assert all(box and box["x"] + box["width"] <= PHONE["width"] for box in boxes)
    await tab.assert_accessible()
