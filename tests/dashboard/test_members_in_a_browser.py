"""The members of a crew, as people change them on its page of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.browser import needs_a_browser
from dashboard.people import link, user
from windlass.rights import Role
from windlass.store.audit import COMMAND_LINE

if TYPE_CHECKING:
    from api.serving import Server
    from dashboard.browser import Tabs

pytestmark = needs_a_browser


async def test_an_owner_of_a_crew_adds_a_member_who_then_sees_it(server: Server, tabs: Tabs) -> None:
    members = server.dashboard.control.members
    crew = await server.crew()
    slug, path = crew.deployment.slug, f"/ui/crews/{crew.deployment.slug}/settings"
    ann, bob = await user(server, Role.DEVELOPER), await user(server, Role.VIEWER)
    await members.put(slug, ann, COMMAND_LINE, is_owner=True)
    hers, his = await tabs(server.url), await tabs(server.url)
    await hers.go(await link(server, ann))
    await his.go(await link(server, bob))

    await hers.go(path)
    part = hers.page.get_by_role("region", name="Members")
    assert "All viewers and developers see this crew." in await part.inner_text()
    await part.get_by_label("Members", exact=True).check()
    await part.get_by_role("button", name="Save").click()
    await part.get_by_text("Only its members and the owners of the server see this crew.").wait_for()
    await his.go(path, 404)
    assert "There is no crew with this name." in await his.page.inner_text("main")

    await part.get_by_label("Name of the user").fill("nobody of this name")
    with hers.expecting("status of 400"):
        await part.get_by_role("button", name="Add member").click()
        await part.get_by_role("alert").get_by_text("There is no user 'nobody of this name'.").wait_for()
    await part.get_by_label("Name of the user").fill(bob)
    await part.get_by_role("button", name="Add member").click()
    await part.get_by_role("button", name=f"Make owner: {bob}").wait_for()
    await hers.picture("members")

    await his.go(path)
    part = his.page.get_by_role("region", name="Members")
    assert await part.get_by_role("button").all_inner_texts() == ["Leave"]
    await his.picture("members-of-a-viewer")
    await part.get_by_role("button", name=f"Leave: {bob}").click()
    await his.page.get_by_text(f"{bob} is no member of {slug} any more.").wait_for()
    assert f"/ui/crews/{slug}" not in await his.page.content()
    assert [one.user for one in (await members.of(slug)).members] == [ann]
    await hers.page.set_viewport_size({"width": 390, "height": 844})
    await hers.go(path)
    await hers.picture("members-phone")
    await hers.assert_accessible()


async def test_an_owner_of_the_server_sets_who_uses_a_credential(server: Server, tabs: Tabs) -> None:
    crew = await server.crew()
    tab = await tabs(server.url)
    await tab.go(await link(server, await user(server, Role.OWNER)))
    await tab.go("/ui/credentials/providers/vault/token")
    page = tab.page
    await page.get_by_label("Name", exact=True).fill("of-a-browser")
    await page.locator("[id='member.address']").fill("http://127.0.0.1:9")
    await page.locator("[id='member.token']").fill("hvs.word")
    await page.get_by_label("Crews whose variables may use it").fill("no-such-crew")
    await tab.picture("credential-new")
    with tab.expecting("status of 400"):
        await page.get_by_role("button", name="Add credential").click()
        await page.get_by_role("alert").get_by_text("There is no deployment 'no-such-crew'.").wait_for()
    assert await page.get_by_label("Crews whose variables may use it").input_value() == "no-such-crew"
    await page.get_by_label("Crews whose variables may use it").fill(crew.deployment.slug)
    await page.locator("[id='member.token']").fill("hvs.word")
    await page.get_by_role("button", name="Add credential").click()
    await page.get_by_role("heading", name="of-a-browser").wait_for()
    found = await server.dashboard.control.credentials.get("of-a-browser")
    assert (found.roles, found.deployments) == ([], [crew.deployment.slug])
    await page.get_by_label("Every developer").check()
    await page.get_by_role("button", name="Save credential").click()
    await page.get_by_text("The credential is saved.").wait_for()
    await tab.picture("credential")
    found = await server.dashboard.control.credentials.get("of-a-browser")
    assert (found.roles, found.deployments) == (["developer"], [crew.deployment.slug])
