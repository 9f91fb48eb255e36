"""The pages of webhooks and deliveries: as plain HTTP, which is a browser without JavaScript, and in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from api.deliveries import deliver, ended
from dashboard.browser import PHONE, SCHEMES, needs_a_browser
from dashboard.people import Visitor, signed_in
from dashboard.test_every_page import POOR_BUTTONS
from dashboard.test_on_a_phone import TOO_WIDE
from webhooks.receiver import OK, Receiver, Reply
from windlass.rights import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.serving import Crew, Server
    from dashboard.browser import Tabs

pytestmark = needs_a_browser
SECRET = "never-on-a-page-1234"
URL = f"https://app.example.com/{SECRET}"
REFUSED = Reply(503, b"<script>not now</script>")


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


def path_of(crew: Crew) -> str:
    return f"/ui/crews/{crew.deployment.slug}/webhooks"


async def stored(server: Server, crew: Crew) -> dict[str, Any]:
    found = await server.dashboard.control.webhooks.of(crew.deployment.slug)
    return {str(hook): (one.endpoint.host, one.authentication, one.events, one.realtime) for hook, one in found.items()}


async def test_a_webhook_is_set_changed_and_removed(server: Server, crew: Crew, developer: Visitor) -> None:
    path = path_of(crew)
    assert (await developer.get(path)).text.count("Not set") == 5
    fields = {
        "url": URL,
        "strategy": "bearer",
        "secret": SECRET,
        "types": "task_completed\r\n agent_execution_error\r\n",
    }
    answer = await developer.post(f"{path}/set/events", realtime="on", **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    types = ["agent_execution_error", "task_completed"]
    assert await stored(server, crew) == {"events": ("app.example.com", "bearer", types, True)}
    form = await developer.get(f"{path}/set/events")
    assert "agent_execution_error\ntask_completed" in form.text
    for page in (form, await developer.get(path)):
        assert ("app.example.com" in page.text, SECRET in page.text) == (True, False)
    await developer.post(f"{path}/set/events", url=URL, strategy="", types="")
    await developer.post(f"{path}/set/crew", url=URL)
    await developer.post(f"{path}/set/human_input", url=URL, strategy="basic", username="ann", secret=SECRET)
    assert await stored(server, crew) == {
        "human_input": ("app.example.com", "basic", ["*"], False),
        "events": ("app.example.com", None, ["*"], False),
        "crew": ("app.example.com", None, ["*"], False),
    }
    assert (await developer.post(f"{path}/set/crew/remove")).status_code == 303
    assert set(await stored(server, crew)) == {"human_input", "events"}


@pytest.mark.parametrize(
    ("hook", "fields", "words"),
    [
        ("crew", {"url": f"ftp://{SECRET}"}, "Address: Input should be a URL"),
        ("events", {"url": SECRET}, "Address: Input should be a URL"),
        ("events", {"url": URL, "types": "no/type"}, "Types of events: String should match"),
        ("events", {"url": URL, "strategy": "bearer"}, "credentials are not complete"),
        ("human_input", {"url": URL, "strategy": "basic", "secret": SECRET}, "credentials are not complete"),
    ],
    ids=str,
)
async def test_a_wrong_field_is_named_and_no_secret_is_shown_again(
    server: Server, crew: Crew, developer: Visitor, hook: str, fields: dict[str, str], words: str
) -> None:
    answer = await developer.post(f"{path_of(crew)}/set/{hook}", **fields)
    assert (answer.status_code, words in answer.text, SECRET in answer.text) == (400, True, False)
    assert await stored(server, crew) == {}


async def test_a_test_shows_the_answer_of_the_receiver(crew: Crew, developer: Visitor, receiver: Receiver) -> None:
    path = path_of(crew)
    assert (await developer.post(f"{path}/set/crew/test")).status_code == 404
    await developer.post(f"{path}/set/crew", url=receiver.url())
    accepted = await developer.post(f"{path}/set/crew/test")
    assert re.search(r"127\.0\.0\.1 accepted the test with 200, in ", accepted.text)
    receiver.reply = lambda _: REFUSED
    refused = await developer.post(f"{path}/set/crew/test")
    assert "did not accept the test: it answered 503" in refused.text
    assert "&lt;script&gt;not now&lt;/script&gt;" in refused.text
    assert (await developer.get(f"{path}/set/crew/test")).headers["location"] == path


async def test_the_secret_is_shown_and_rotated(crew: Crew, developer: Visitor) -> None:
    path = path_of(crew)
    shown = await developer.post(f"{path}/secret/show")
    (secret,) = re.findall(r"whsec_[A-Za-z0-9+/=]+", shown.text)
    assert shown.headers["cache-control"] == "no-store"
    assert secret not in (await developer.get(path)).text
    assert (await developer.post(f"{path}/secret/rotate")).status_code == 303
    assert "within 24 hours" in (await developer.get(path)).text
    assert secret not in (await developer.post(f"{path}/secret/show")).text
    assert (await developer.get(f"{path}/secret/show")).headers["location"] == path


async def test_deliveries_are_filtered_and_sent_again(crew: Crew, developer: Visitor, receiver: Receiver) -> None:
    path = f"{path_of(crew)}/deliveries"
    assert "No deliveries yet" in (await developer.get(path)).text
    receiver.reply = lambda got: REFUSED if got.path == "/bad" else OK
    good = await ended(crew, crewWebhookUrl=receiver.url("/good"))
    bad = await ended(crew, crewWebhookUrl=receiver.url("/bad"))
    await deliver(crew)
    page = (await developer.get(path)).text
    assert (good[-4:] in page, bad[-4:] in page, page.count("/again")) == (True, True, 2)
    waiting = (await developer.get(f"{path}?state=waiting")).text
    assert f"{bad}?tab=webhooks" in waiting
    assert f"{good}?tab=webhooks" not in waiting
    assert "&lt;script&gt;not now&lt;/script&gt;" in waiting
    assert "No delivery matches" in (await developer.get(f"{path}?state=failed")).text

    execution = f"/ui/crews/{crew.deployment.slug}/executions/{bad}?tab=webhooks"
    (again,) = re.findall(r'action="(/ui/deliveries/[^"]+/again)"', (await developer.get(execution)).text)
    receiver.reply = lambda _: OK
    answer = await developer.post(again, back="execution")
    assert answer.headers["location"] == execution
    await deliver(crew)
    assert "Delivered" in (await developer.get(execution)).text
    answer = await developer.post(again, back="//elsewhere.example.com")
    assert answer.headers["location"] == path


async def test_an_address_that_is_off_or_paused_is_shown(crew: Crew, developer: Visitor, receiver: Receiver) -> None:
    await developer.post(f"{path_of(crew)}/set/crew", url=receiver.url("/gone"))
    await developer.post(f"{path_of(crew)}/set/task", url=receiver.url("/busy"))
    receiver.reply = lambda _: Reply(410)
    await ended(crew)
    await deliver(crew)
    await crew.server.database.execute(
        "UPDATE webhook_endpoints SET failures = 7, paused_until = now() + interval '1 minute'"
        " WHERE disabled_at IS NULL AND deployment_id = %(of)s",
        {"of": crew.deployment.id},
    )
    page = (await developer.get(path_of(crew))).text
    assert "Switched off" in page
    assert "7 failures in a row, tried again" in page
    assert "because it answered 410" in (await developer.get(f"{path_of(crew)}/deliveries")).text


async def test_viewers_see_hosts_and_deliveries_and_change_nothing(
    server: Server, crew: Crew, developer: Visitor, receiver: Receiver
) -> None:
    await developer.post(f"{path_of(crew)}/set/crew", url=receiver.url())
    kickoff = await ended(crew)
    await deliver(crew)
    viewer = await Visitor.of(server, Role.VIEWER)
    pages = [path_of(crew), f"{path_of(crew)}/deliveries", f"/ui/executions/{kickoff}"]
    for path in pages:
        page = (await viewer.http.get(path, follow_redirects=True)).text
        assert not re.search(r"/again\"|/secret/|/set/", page)
    await viewer.close()


async def test_an_execution_without_webhooks_has_no_such_tab(crew: Crew, developer: Visitor) -> None:
    kickoff = await ended(crew)
    path = f"/ui/crews/{crew.deployment.slug}/executions/{kickoff}"
    assert "?tab=webhooks" not in (await developer.get(path)).text
    assert "Neither the kickoff nor the crew had webhooks" in (await developer.get(f"{path}?tab=webhooks")).text


async def test_a_person_sets_tests_and_repeats_in_a_browser(
    server: Server, crew: Crew, tabs: Tabs, receiver: Receiver
) -> None:
    tab = await signed_in(tabs, server, Role.DEVELOPER)
    page = tab.page
    await tab.go(f"/ui/crews/{crew.deployment.slug}")
    await page.get_by_role("navigation", name=crew.deployment.slug).get_by_role("link", name="Webhooks").click()
    await page.get_by_role("link", name="Set: Events").click()
    await page.get_by_label("Address").fill(receiver.url("/events"))
    assert not await page.get_by_label("Token or password").is_visible()
    await page.get_by_label("Credentials").select_option("bearer")
    assert not await page.get_by_label("User", exact=True).is_visible()
    await page.get_by_label("Token or password").fill(SECRET)
    await page.get_by_role("button", name="Save webhook").click()
    await page.get_by_text("the webhook is set").wait_for()
    receiver.reply = lambda _: REFUSED
    await page.get_by_role("button", name="Test: Events").click()
    await page.get_by_text("did not accept the test").wait_for()
    assert receiver.got[0].headers["authorization"] == f"Bearer {SECRET}"
    await page.get_by_role("button", name="Show signing secret").click()
    await page.get_by_text(re.compile(r"whsec_[A-Za-z0-9+/]{20}")).wait_for()
    await tab.picture("webhooks")

    await ended(crew, crewWebhookUrl=receiver.url("/done"))
    await deliver(crew)
    await page.get_by_role("navigation", name="Webhooks").get_by_role("link", name="Deliveries").click()
    await page.locator("summary", has_text="End of an execution").click()
    await page.get_by_text("<script>not now</script>").wait_for()
    await tab.picture("deliveries")
    receiver.reply = lambda _: OK
    await page.get_by_role("button", name="Send now").click()
    await page.get_by_text("is sent again").wait_for()
    await deliver(crew)
    await page.get_by_label("State").select_option("delivered")
    await page.locator("summary", has_text="200, 2 attempts").wait_for()


async def test_the_pages_fit_on_a_phone_and_are_accessible(
    server: Server, crew: Crew, tabs: Tabs, developer: Visitor, receiver: Receiver
) -> None:
    for hook in ("crew", "task"):
        await developer.post(f"{path_of(crew)}/set/{hook}", url=receiver.url(f"/{hook}"))
    receiver.reply = lambda _: Reply(500, b"w" * 1024)
    kickoff = await ended(crew)
    await deliver(crew)
    tab = await signed_in(tabs, server, Role.DEVELOPER, viewport=PHONE)
    pages = {
        "webhooks-phone": path_of(crew),
        "webhook-phone": f"{path_of(crew)}/set/human_input",
        "deliveries-phone": f"{path_of(crew)}/deliveries",
        "execution-webhooks-phone": f"/ui/crews/{crew.deployment.slug}/executions/{kickoff}?tab=webhooks",
    }
    for name, path in pages.items():
        await tab.go(path)
        for one in await tab.page.locator(".deliveries summary").all():
            await one.click()
        await tab.picture(name)
        assert await tab.page.evaluate(TOO_WIDE) <= 0, path
        assert await tab.page.evaluate(POOR_BUTTONS) == [], path
        await tab.assert_accessible(SCHEMES)
