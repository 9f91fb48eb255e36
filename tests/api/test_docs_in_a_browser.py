from __future__ import annotations

from typing import TYPE_CHECKING

from api.serving import INPUTS_SCHEMA
from dashboard.browser import needs_a_browser

if TYPE_CHECKING:
    from api.serving import Crew
    from dashboard.browser import Tabs

pytestmark = needs_a_browser


async def test_the_page_shows_every_operation_and_an_example_that_can_be_sent(crew: Crew, tabs: Tabs) -> None:
    tab = await tabs(crew.server.url)
    await tab.go(f"{crew.path}/docs#/crew/kickoff")
    operation = tab.page.locator("#operations-crew-kickoff")
    await operation.locator(".example").first.wait_for()
    text = await operation.inner_text()
    assert all(f'"{name}": "some {name}"' in text for name in INPUTS_SCHEMA["required"])
    shown = await tab.page.locator("[data-path]").evaluate_all("all => all.map(one => one.dataset.path)")
    assert set(shown) == {*crew.document["paths"], *crew.document["webhooks"]}
    title = await tab.page.locator(".info .title").first.inner_text()
    assert title.split()[0] == crew.path.removeprefix("/crews/")
