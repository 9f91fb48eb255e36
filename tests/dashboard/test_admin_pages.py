"""The pages that administer, in a browser, by keyboard alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.browser import needs_a_browser
from dashboard.people import signed_in

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.browser import Tabs

pytestmark = needs_a_browser


async def test_a_variable_is_edited_and_removed_by_keyboard(server: Server, crew: Crew, tabs: Tabs) -> None:
    management, slug = server.dashboard.control.management, crew.deployment.slug
    tab = await signed_in(tabs, server)
    page = tab.page
    await tab.go(f"/ui/crews/{slug}/environment/add")
    await page.get_by_label("Key", exact=True).fill("DEPTH")
    await page.get_by_label("Value", exact=True).fill("2")
    await page.get_by_role("checkbox").press("Space")
    await page.get_by_role("button", name="Add variable").press("Enter")
    await page.get_by_text("DEPTH is set. The next kickoff gets it.").wait_for()
    assert [(one.name, one.value) for one in await management.variables(slug)] == [("DEPTH", "2")]
    await page.get_by_role("link", name="Edit DEPTH").press("Enter")
    await page.get_by_role("button", name="Remove variable").press("Enter")
    dialog = page.get_by_role("dialog", name="Remove DEPTH")
    await dialog.wait_for()
    await page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")
    await page.get_by_role("button", name="Remove variable").press("Enter")
    await dialog.get_by_role("button", name="Remove variable").press("Enter")
    await page.get_by_text("DEPTH is removed.").wait_for()
    assert await management.variables(slug) == []


async def test_a_field_for_a_name_shows_underscores(server: Server, crew: Crew, tabs: Tabs) -> None:
    tab = await signed_in(tabs, server)
    await tab.go(f"/ui/crews/{crew.deployment.slug}/environment/add")
    field = tab.page.locator("#name")
    pictures = []
    for attribute in ("placeholder", "value"):
        for text in ("A_B", "A B"):
            await field.evaluate("(field, [name, text]) => (field[name] = text)", [attribute, text])
            pictures.append(await field.screenshot(caret="hide"))
    assert pictures[0] != pictures[1], "of the placeholder"
    assert pictures[2] != pictures[3], "of the value"
