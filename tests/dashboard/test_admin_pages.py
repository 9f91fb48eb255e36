"""The pages that administer, in a browser: accessible, within the width of a phone, and usable by keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from dashboard.browser import PHONE, needs_a_browser
from dashboard.people import signed_in, user
from windlass.deployments.credentials import GivenCredential
from windlass.deployments.variables import GivenVariable
from windlass.secrets.secret import Secret
from windlass.store.audit import COMMAND_LINE

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.browser import Tabs

pytestmark = needs_a_browser


async def test_the_pages_are_accessible_and_fit_a_phone(server: Server, crew: Crew, tabs: Tabs) -> None:
    control, name = server.dashboard.control, f"of-{crew.deployment.slug}"
    configuration = {"address": "http://127.0.0.1:9", "role": "windlass"}
    await control.credentials.add(GivenCredential(name, "vault", "workload_identity", configuration), COMMAND_LINE)
    await control.management.set_variables(
        crew.deployment.slug,
        [GivenVariable("KEY", Secret("k")), GivenVariable("DEPTH", Secret("2"), False)],
        COMMAND_LINE,
    )
    of_crew = f"/ui/crews/{crew.deployment.slug}"
    person = await user(server)
    tab = await signed_in(tabs, server, viewport=PHONE)
    for path in (
        f"{of_crew}/environment",
        f"{of_crew}/environment/variables/KEY",
        f"{of_crew}/settings",
        f"/ui/credentials/{name}",
        "/ui/identity?provider=google",
        f"/ui/people/user?name={quote(person)}",
        "/ui/tokens?all=1",
        "/ui/audit",
    ):
        await tab.go(path)
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        await tab.assert_accessible()


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
