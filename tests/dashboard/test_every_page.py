"""What holds for every page, over all routes that have one: a title, what axe asks for, and room on a phone."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest

from dashboard.browser import PHONE, SCHEMES, WIDE, needs_a_browser
from windlass.dashboard.pages import PAGES

if TYPE_CHECKING:
    from dashboard.browser import Tab, Tabs
    from dashboard.live import LiveServer

pytestmark = needs_a_browser

PATHS = sorted({path for group in PAGES for method, path, _, _ in group.table if method == "GET"})
NO_PAGES = re.compile(
    r"\.csv$|\.zip$|/changes$|/downloads/|/files/|/sign-in/openid|/preview$|/tokens/\{kind\}|^/executions/\{kickoff\}$"
    r"|^/approvals/\{question\}$|/webhooks/.*/(show|test)$"
)
"""Downloads, streams, paths that lead to another one, and the question that test_approvals_in_a_browser.py looks at."""
QUERIES = {"/people/user": "?name=owner", "/tokens/crew": "?crew=tea"}
POOR_BUTTONS = """() => {
  const poor = [];
  const check = (root) => {
    for (const one of root.querySelectorAll("button, .btn, summary")) {
      const box = one.getBoundingClientRect();
      if (!box.width || one.closest(".visually-hidden") || !one.checkVisibility({ visibilityProperty: true })) continue;
      const name = one.textContent.trim() || one.getAttribute("aria-label");
      if (box.left < 0 || box.right > innerWidth) { poor.push(`the button ${name} is off the screen`); continue; }
      one.scrollIntoView({ block: "center", inline: "nearest" });
      const { left, top, width, height } = one.getBoundingClientRect();
      const hit = document.elementFromPoint(left + width / 2, top + height / 2);
      if (!one.disabled && !one.contains(hit)) poor.push(`the button ${name} is below ${hit?.outerHTML.slice(0, 80)}`);
    }
  };
  check(document.body);
  for (const panel of document.querySelectorAll("[popover]")) {
    panel.showPopover();
    check(panel);
    panel.hidePopover();
  }
  for (const one of document.querySelectorAll("details:not([open])")) { one.open = true; check(one); one.open = false; }
  return poor;
}"""
"""Finds buttons that a person can't press: off the screen to a side, or below another element. Opens each panel."""
STILL_A_TABLE = """() => [...document.querySelectorAll("table.stacked tbody td")]
  .filter((one) => one.getBoundingClientRect().width && getComputedStyle(one).display === "table-cell")
  .map((one) => one.textContent.trim())"""
"""Finds cells of tables that stand below each other on a phone, and don't on this page."""
TABS = ("timeline", "inputs", "files", "log", "attempts", "webhooks")


async def values(live: LiveServer) -> dict[str, str]:
    """What stands for the parameters of the paths."""

    def made() -> dict[str, str]:
        def read(*arguments: str, typed: str = "") -> str:
            ended = live.windlass(*arguments, typed=typed)
            assert ended.code == 0, ended
            return ended.out.strip()

        read("env", "set", "tea", "HOW=hot", "SECRET_KEY=hidden")
        vault = ("--method", "token", "--address", "http://127.0.0.1:9", "--mount", "secret", "--from-file", "-")
        if "team" not in read("credentials", "list"):
            read("credentials", "add", "vault", "team", *vault, typed="hvs.example\n")
        kickoff = read("kickoff", "--deployment", "tea", "-i", "leaf=assam")
        read("status", kickoff, "--watch")
        (build, *_) = json.loads(read("deployments", "builds", "tea", "--json"))["builds"]
        shown = {"slug": "tea", "kickoff": kickoff, "build": build["id"]}
        return {**shown, "provider": "vault", "method": "token", "hook": "events"}

    return await asyncio.to_thread(made)


def pages(known: dict[str, str]) -> list[str]:
    found = []
    for path in PATHS:
        if NO_PAGES.search(path):
            continue
        names = {**known, "name": "HOW" if "/variables/" in path else "team"}
        found.append(f"/ui{path.replace('{name:path}', '{name}').format(**names)}{QUERIES.get(path, '')}")
    run = f"/ui/crews/{known['slug']}/executions/{known['kickoff']}"
    return [*found, *(f"{run}?tab={one}" for one in TABS)]


@pytest.mark.timeout(600)  # a minute on a machine with nothing else to do
async def test_each_page_has_a_title_is_accessible_and_fits_a_phone(live: LiveServer, tabs: Tabs) -> None:
    known = await values(live)
    tab = await tabs(live.url)
    await tab.go(await asyncio.to_thread(live.link))
    found: dict[str, list[str]] = {}
    for path in pages(known):
        if poor := await findings(tab, path):
            found[path] = poor
    assert not found, json.dumps(found, indent=1)
    assert len(pages(known)) > 30


async def test_the_pages_of_the_apis_are_accessible(live: LiveServer, tabs: Tabs) -> None:
    tab = await tabs(live.url)
    await tab.go(await asyncio.to_thread(live.link))
    # Both have one stylesheet, and the first one has several times as many elements: it is looked at in light alone.
    pages = ("/api/v1/docs", "Control API", SCHEMES[:1]), ("/crews/tea/docs", "API of the crew tea", SCHEMES)
    for path, title, schemes in pages:
        for scheme in schemes:
            await tab.page.emulate_media(color_scheme=scheme)
            await tab.go(path)
            await tab.page.locator(".opblock").first.wait_for()
            for one in (await tab.page.locator(".opblock-summary-control").all())[:3]:
                await one.click()
            await tab.assert_accessible((scheme,), only_colours=scheme == "dark")
        assert await tab.page.title() == f"{title} · Windlass"
        await tab.page.get_by_role("link", name="Dashboard").click()
        await tab.page.get_by_role("heading", name="Crews").wait_for()


async def findings(tab: Tab, path: str) -> list[str]:
    answer = await tab.page.goto(tab.url + path)
    if answer is None or answer.status != 200:
        return [f"answers {answer and answer.status}"]
    found = []
    if await tab.page.locator("h1").count() != 1 or not (await tab.page.title()).endswith(" · Windlass"):
        found.append(f"has the title {await tab.page.title()!r} and {await tab.page.locator('h1').count()} h1")
    try:
        await tab.assert_accessible()
    except AssertionError as error:
        found.append(str(error))
    await tab.page.set_viewport_size(PHONE)
    found += await tab.page.evaluate(POOR_BUTTONS)
    if cells := await tab.page.evaluate(STILL_A_TABLE):
        found.append(f"has a table that is not stacked: {cells}")
    wide = await tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 0:
        found.append(f"is {wide} px too wide for a phone")
    await tab.page.set_viewport_size(WIDE)
    return found
