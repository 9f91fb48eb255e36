"""The receiver of a crew's webhook answers a question of a flow at its `callback_url`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from api.control import Person
from api.deliveries import deliver
from api.serving import serving, unknown_id
from dashboard.made_runs import started
from webhooks.receiver import Receiver, Reply
from windlass.access.authentication import RateLimits
from windlass.rights import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
CHOICES = ["approved", "needs_changes"]


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture(loop_scope="session")
async def developer(server: Server) -> Person:
    return await Person.of(server, Role.DEVELOPER)


async def asked(crew: Crew, receiver: Receiver, **members: Any) -> dict[str, Any]:
    """The body that the receiver gets when a method of a flow asks."""
    writer = await started(crew, await crew.kickoff(meta={"order": 17}, **members))
    writer.event("method_execution_started", method_name="review", state={"id": "17"})
    writer.event("flow_paused", method_name="review", state={"id": "17", "topic": "tides"})
    writer.event("flow_paused", method_name="beside", state={"id": "17", "topic": "later"})
    await writer.write()
    await writer.run.ask(method="review", choices=CHOICES)
    await deliver(crew)
    body: dict[str, Any] = receiver.got[-1].body
    return body


async def of_deployment(crew: Crew, developer: Person, receiver: Receiver) -> None:
    path = f"/deployments/{crew.deployment.slug}/webhooks"
    await developer.value("PATCH", path, json={"humanInputWebhookUrl": receiver.url()})


async def send(crew: Crew, url: str, body: Any) -> httpx.Response:
    parts = urlsplit(url)
    return await crew.server.http.post(f"{crew.server.url}{parts.path}?{parts.query}", json=body)


async def test_the_receiver_of_the_crew_answers(crew: Crew, developer: Person, receiver: Receiver) -> None:
    await of_deployment(crew, developer, receiver)
    body = await asked(crew, receiver)
    kickoff, url = body["kickoff_id"], body["callback_url"]
    question = (await crew.status(kickoff))["human_input"]
    assert body["event"] == "new_request"
    assert body["request"] == {
        "id": question["task_id"],
        "flow_id": kickoff,
        "method_name": "review",
        "message": "Is it good?",
        "emit_options": CHOICES,
        "state": {"id": "17", "topic": "tides"},
        "metadata": {"order": 17},
        "created_at": body["human_input"]["asked_at"],
    }
    assert body["deployment"] == {"id": str(crew.deployment.id), "name": crew.deployment.slug}
    assert (body["execution_id"], body["task_output"]) == (kickoff, "# A draft")
    for wrong in ({}, {"feedback": " "}, {"feedback": 1}, {"feedback": "approved", "source": "x" * 101}):
        assert (await send(crew, url, wrong)).status_code == 400
    answer = {"feedback": "needs_changes", "source": "my chat"}
    first = await send(crew, url, answer)
    assert (first.status_code, first.json()["status"]) == (200, "resumed")
    assert (await send(crew, url, answer)).status_code == 200, "the same again"
    assert (await send(crew, url, {"feedback": "approved"})).status_code == 409
    (row,) = await crew.server.database.rows(
        "SELECT answered_by, feedback FROM questions WHERE kickoff_id = %(id)s::uuid", {"id": kickoff}
    )
    assert row == {"answered_by": "(webhook my chat)", "feedback": "needs_changes"}


async def test_an_answer_of_the_receiver_that_repeats_the_address_does_not_show_it(
    crew: Crew, developer: Person, receiver: Receiver
) -> None:
    receiver.reply = lambda got: Reply(200, f"got {got.body['callback_url']}".encode())
    await of_deployment(crew, developer, receiver)
    body = await asked(crew, receiver)
    shown = await developer.value("GET", f"/deliveries?kickoff={body['kickoff_id']}")
    (attempt,) = shown["items"][0]["attempts"]
    assert attempt["answer"].startswith("got ")
    assert body["callback_url"].partition("signature=")[2] not in attempt["answer"]


async def test_only_the_address_with_its_signature_answers(
    crew: Crew, server: Server, developer: Person, receiver: Receiver
) -> None:
    await of_deployment(crew, developer, receiver)
    url, other = (await asked(crew, receiver))["callback_url"], (await asked(crew, receiver))["callback_url"]
    head, _, signature = url.partition("?signature=")
    body = {"feedback": "approved"}
    for wrong in (
        head,
        f"{head}?signature=",
        f"{url}x",
        f"{head}?signature=\u00e9",
        f"{other.partition('?')[0]}?{signature}",
    ):
        assert (await send(crew, wrong, body)).status_code == 401, wrong
    swapped = f"{head}?signature={other.partition('?signature=')[2]}"
    assert (await send(crew, swapped, body)).status_code == 401
    elsewhere = await server.crew("callback-elsewhere")
    assert (await send(crew, url.replace(crew.deployment.slug, elsewhere.deployment.slug), body)).status_code == 404
    assert (await send(crew, url, body)).status_code == 200


async def test_guesses_of_signatures_are_limited_for_each_address(crew: Crew) -> None:
    rates, guess = RateLimits(failures=3), f"/resume/{unknown_id()}?signature=guessed"
    async with serving(crew.server.database.url, trusted_proxies=["127.0.0.1"], rates=rates) as server:
        for address, statuses in (("203.0.113.7", [401] * 3 + [429] * 2), ("203.0.113.8", [401])):
            url, headers = crew.at(server).base_url + guess, {"X-Forwarded-For": address}
            found = [await server.http.post(url, json={"feedback": "yes"}, headers=headers) for _ in statuses]
            assert [answer.status_code for answer in found] == statuses


async def test_a_webhook_of_a_kickoff_gets_no_address_for_answers(crew: Crew, receiver: Receiver) -> None:
    body = await asked(crew, receiver, humanInputWebhookUrl=receiver.url())
    assert body["human_input"]["method"] == "review"
    assert not {"event", "request", "callback_url"} & body.keys()


async def test_approvers_name_the_webhook(crew: Crew, developer: Person, receiver: Receiver) -> None:
    await of_deployment(crew, developer, receiver)
    url = (await asked(crew, receiver))["callback_url"]
    settings = f"/deployments/{crew.deployment.slug}/settings"
    await developer.value("PATCH", settings, json={"approvers": ["owner"]})
    assert (await send(crew, url, {"feedback": "approved"})).status_code == 403
    assert (await asked(crew, receiver))["callback_url"] is None
    await developer.value("PATCH", settings, json={"approvers": ["owner", "webhook"]})
    assert (await asked(crew, receiver))["callback_url"]
    assert (await send(crew, url, {"feedback": "approved"})).status_code == 200
