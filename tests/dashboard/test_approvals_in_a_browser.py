"""A person answers from the inbox, also on a phone and without JavaScript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dashboard.browser import PHONE, needs_a_browser
from dashboard.people import signed_in
from dashboard.test_approvals import answer_of, asking, recounted
from dashboard.test_every_page import findings
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.browser import Tabs

pytestmark = needs_a_browser


@pytest.mark.parametrize("settings", [{}, {"java_script_enabled": False}, {"viewport": PHONE}], ids=str)
async def test_a_person_answers_in_a_browser(crew: Crew, server: Server, tabs: Tabs, settings: dict[str, Any]) -> None:
    kickoff, question = await asking(crew)
    await recounted(crew)
    tab = await signed_in(tabs, server, Role.DEVELOPER, **settings)
    await tab.go("/ui/approvals")
    await tab.page.click(f'a[href$="/ui/approvals/{question}"]')
    await tab.page.fill("#feedback", "shorter")
    await tab.page.click("text=Send feedback")
    await tab.page.wait_for_url(f"**/executions/{kickoff}")
    assert "Your feedback is sent" in await tab.text()
    assert await answer_of(crew, question) == (False, "shorter")


async def test_the_pages_are_accessible_and_fit_a_phone(crew: Crew, server: Server, tabs: Tabs) -> None:
    tab = await signed_in(tabs, server, Role.DEVELOPER)
    for choices in ([], ["good", "bad", "a choice of many words, which do not fit in one line of a phone at all"]):
        _, question = await asking(crew, choices=choices)
        for path in ("/ui/approvals", f"/ui/approvals/{question}"):
            assert not await findings(tab, path)
