"""Webhooks of a deployment, its signing secret and the deliveries over the control API."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import pytest_asyncio

from api.control import Person
from api.deliveries import deliver, ended
from api.serving import unknown_id, until
from webhooks.receiver import OK, Got, Receiver, Reply
from windlass.deployments.webhooks import TESTS_AT_ONCE
from windlass.rights import Role
from windlass.webhooks.signatures import SigningSecret, signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
SECRET = "never-shown-1234"
URL = f"https://app.example.com/{SECRET}"


@pytest_asyncio.fixture(loop_scope="session")
async def developer(server: Server) -> Person:
    return await Person.of(server, Role.DEVELOPER)


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


def webhooks_of(crew: Crew) -> str:
    return f"/deployments/{crew.deployment.slug}/webhooks"


async def change(person: Person, crew: Crew, **members: Any) -> dict[str, Any]:
    found: dict[str, Any] = await person.value("PATCH", webhooks_of(crew), json=members)
    return found


async def entries(crew: Crew, action: str) -> list[Any]:
    rows = await crew.server.database.rows(
        "SELECT details FROM audit_log WHERE action = %(action)s AND target = %(target)s ORDER BY id",
        {"action": action, "target": crew.deployment.slug},
    )
    return [row["details"] for row in rows]


async def test_webhooks_are_set_shown_by_host_and_removed(crew: Crew, developer: Person) -> None:
    nothing = await developer.value("GET", webhooks_of(crew))
    assert set(nothing.values()) == {None}
    events = {"url": URL, "events": ["task_completed", "llm_call_failed"], "realtime": True}
    found = await change(
        developer,
        crew,
        crewWebhookUrl=f"https://user:{SECRET}@app.example.com/",
        taskWebhookUrl=URL,
        webhooks={**events, "authentication": {"strategy": "bearer", "token": SECRET}},
        humanInputWebhookUrl=URL,
    )
    assert found == await developer.value("GET", webhooks_of(crew))
    assert SECRET not in json.dumps(found)
    usual = {
        "host": "app.example.com",
        "authentication": None,
        "state": "active",
        "failures": 0,
        "paused_until": None,
        "disabled_at": None,
    }
    assert found["taskWebhookUrl"] == found["humanInputWebhook"] == usual
    assert found["crewWebhookUrl"] == {**usual, "authentication": "basic"}
    of_events = {"events": ["llm_call_failed", "task_completed"], "realtime": True}
    assert found["webhooks"] == {**usual, "authentication": "bearer", **of_events}
    assert found["stepWebhookUrl"] is None

    found = await change(
        developer, crew, taskWebhookUrl=None, humanInputWebhook=None, webhooks={"url": URL, "events": ["*"]}
    )
    assert (found["taskWebhookUrl"], found["humanInputWebhook"]) == (None, None)
    assert (found["webhooks"]["events"], found["webhooks"]["realtime"]) == (["*"], False)
    assert found["crewWebhookUrl"] is not None
    assert await change(developer, crew) == found

    assert await entries(crew, "webhooks.change") == [
        {"set": ["task", "crew", "human_input", "events"]},
        {"set": ["events"], "removed": ["task", "human_input"]},
    ]
    assert SECRET not in json.dumps(await crew.server.database.rows("SELECT * FROM audit_log"), default=str)
    assert SECRET not in json.dumps(await crew.server.database.rows("SELECT * FROM webhook_endpoints"), default=str)


async def test_kickoffs_have_the_webhooks_of_their_deployment_but_for_their_own(
    crew: Crew, developer: Person, receiver: Receiver
) -> None:
    await change(developer, crew, crewWebhookUrl=receiver.url("/of-deployment"), webhooks={"url": URL, "events": []})
    await ended(crew)
    await ended(crew, crewWebhookUrl=receiver.url("/of-kickoff"))
    await deliver(crew)
    assert {got.path for got in receiver.got} == {"/of-deployment", "/of-kickoff"}
    assert len(receiver.got) == 2
    await change(developer, crew, crewWebhookUrl=None, webhooks=None)
    kickoff = await ended(crew)
    query = "SELECT count(*) AS n FROM webhooks WHERE kickoff_id = %(id)s::uuid"
    assert await crew.server.database.row(query, {"id": kickoff}) == {"n": 0}


@pytest.mark.parametrize(
    ("patch", "member"),
    [
        ({"crewWebhookUrl": "ftp://example.com"}, "crewWebhookUrl"),
        ({"crewWebhookUrl": 7}, "crewWebhookUrl"),
        ({"crewWebhookURL": URL}, "crewWebhookURL"),
        ({"webhooks": {"url": URL}}, "webhooks.events"),
        ({"webhooks": {"url": URL, "events": [SECRET * 50]}}, "webhooks.events.0"),
        (
            {"humanInputWebhook": {"url": URL, "authentication": {"strategy": "basic", "username": SECRET}}},
            "humanInputWebhook.authentication.basic.password",
        ),
    ],
    ids=str,
)
async def test_a_wrong_member_is_named_and_nothing_is_changed(
    crew: Crew, developer: Person, patch: dict[str, Any], member: str
) -> None:
    found = await developer.refused("PATCH", webhooks_of(crew), status=400, json={"taskWebhookUrl": URL, **patch})
    assert list(found["details"]["invalid"]) == [member]
    assert SECRET not in json.dumps(found)
    assert set((await developer.value("GET", webhooks_of(crew))).values()) == {None}


async def test_an_unknown_deployment_has_no_webhooks(developer: Person) -> None:
    for method, path, body in (
        ("GET", "/webhooks", None),
        ("PATCH", "/webhooks", {}),
        ("PATCH", "/webhooks", {"crewWebhookUrl": URL}),
        ("GET", "/webhooks/secret", None),
        ("POST", "/webhooks/secret", None),
        ("POST", "/webhooks/test", {}),
    ):
        await developer.refused(method, f"/deployments/no-such{path}", status=404, json=body)
    await developer.refused("GET", "/deliveries?deployment=no-such", status=404)


async def test_the_secret_is_made_once_rotated_and_signs_what_is_sent(
    crew: Crew, developer: Person, receiver: Receiver
) -> None:
    path = f"{webhooks_of(crew)}/secret"
    first, again = await asyncio.gather(developer.value("GET", path), developer.value("GET", path))
    assert first == again
    second = (await developer.value("POST", path))["secret"]
    assert second != first["secret"]
    assert (await developer.value("GET", path))["secret"] == second
    await change(developer, crew, crewWebhookUrl=receiver.url())
    await developer.value("POST", f"{webhooks_of(crew)}/test", json={})
    (got,) = receiver.got
    both, at = [SigningSecret(second), SigningSecret(first["secret"])], float(got.headers["webhook-timestamp"])
    assert got.headers["webhook-signature"] == signed(UUID(got.id), got.raw, both, at)["webhook-signature"]
    assert len(await entries(crew, "webhooks.show_secret")) == 3
    assert len(await entries(crew, "webhooks.rotate_secret")) == 1
    kept = json.dumps(await crew.server.database.rows("SELECT * FROM audit_log"), default=str)
    assert not [secret for secret in (first["secret"], second) if secret in kept]


async def test_of_rotations_at_once_the_secret_that_counts_was_answered(crew: Crew, developer: Person) -> None:
    path = f"{webhooks_of(crew)}/secret"
    before = (await developer.value("GET", path))["secret"]
    answers = {one["secret"] for one in await asyncio.gather(*(developer.value("POST", path) for _ in range(4)))}
    assert before not in answers
    assert (await developer.value("GET", path))["secret"] in answers


async def test_a_test_returns_the_answer_and_switches_an_endpoint_on(
    crew: Crew, developer: Person, receiver: Receiver
) -> None:
    path = f"{webhooks_of(crew)}/test"
    found = await developer.refused("POST", path, status=404, json={"hook": "task"})
    assert "taskWebhookUrl" in found["message"]
    await change(developer, crew, crewWebhookUrl=receiver.url("/first"))
    await ended(crew)
    receiver.reply = lambda _: Reply(410, b"gone")
    await deliver(crew)
    assert (await developer.value("GET", webhooks_of(crew)))["crewWebhookUrl"]["state"] == "off"
    receiver.reply = lambda _: Reply(500, b"x" * 5000)
    found = await developer.value("POST", path, json={"hook": "crew"})
    assert (found["accepted"], found["status"], found["answer"]) == (False, 500, "x" * 1024)
    assert found["error"] == "it answered 500"
    assert (await developer.value("GET", webhooks_of(crew)))["crewWebhookUrl"]["state"] == "off"
    receiver.reply = lambda _: OK
    found = await developer.value("POST", path, json={"hook": "crew"})
    assert (found["accepted"], found["status"], found["error"], found["answer"]) == (True, 200, None, "ok")
    assert receiver.got[-1].id == found["id"]
    body = receiver.got[-1].body
    assert (body.pop("timestamp")[:2], body) == (
        "20",
        {"type": "test", "deployment": crew.deployment.slug, "hook": "crew"},
    )
    assert (await developer.value("GET", webhooks_of(crew)))["crewWebhookUrl"]["state"] == "active"
    assert await entries(crew, "webhooks.test") == [{"hook": "crew"}] * 2


async def test_a_private_address_is_not_tested(crew: Crew, developer: Person) -> None:
    await change(developer, crew, crewWebhookUrl="http://127.0.0.2:9/")
    found = await developer.value("POST", f"{webhooks_of(crew)}/test", json={})
    assert (found["accepted"], found["status"]) == (False, None)
    assert "WINDLASS_WEBHOOK_ALLOW" in found["error"]


async def test_tests_of_slow_receivers_are_bounded(crew: Crew, developer: Person) -> None:
    goes_on = asyncio.Event()
    arrived: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.readuntil(b"\r\n\r\n"))
        await goes_on.wait()
        writer.write(b"HTTP/1.1 204 X\r\nConnection: close\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async def all_arrived() -> bool:
        return len(arrived) == TESTS_AT_ONCE

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as slow:
        await change(developer, crew, crewWebhookUrl=f"http://127.0.0.1:{slow.sockets[0].getsockname()[1]}/")
        path = f"{webhooks_of(crew)}/test"
        tests = [asyncio.create_task(developer.value("POST", path, json={})) for _ in range(TESTS_AT_ONCE)]
        await until(all_arrived, "all tests have arrived")
        refused = await developer.request("POST", path, json={})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        goes_on.set()
        assert {one["status"] for one in await asyncio.gather(*tests)} == {204}
        assert (await developer.value("POST", path, json={}))["accepted"]


async def test_deliveries_are_listed_by_page_deployment_kickoff_and_state(
    crew: Crew, developer: Person, receiver: Receiver
) -> None:
    def reply(got: Got) -> Reply:
        return Reply(503, b"not now") if got.path == "/bad" else OK

    receiver.reply = reply
    good = [await ended(crew, crewWebhookUrl=receiver.url("/good")) for _ in range(3)]
    bad = await ended(crew, crewWebhookUrl=receiver.url("/bad"))
    await deliver(crew)
    slug = crew.deployment.slug
    viewer = await Person.of(crew.server, Role.VIEWER)
    whole = await viewer.value("GET", "/deliveries", params={"deployment": slug})
    assert {one["kickoff_id"] for one in whole["items"]} == {*good, bad}
    first = await viewer.value("GET", "/deliveries", params={"deployment": slug, "limit": 3})
    rest = await viewer.value(
        "GET", "/deliveries", params={"deployment": slug, "limit": 3, "cursor": first["next_cursor"]}
    )
    assert [*first["items"], *rest["items"]] == whole["items"]
    assert rest["next_cursor"] is None
    of_one = await viewer.value("GET", "/deliveries", params={"kickoff": good[0]})
    assert [one["state"] for one in of_one["items"]] == ["delivered"]
    assert (await viewer.value("GET", "/deliveries", params={"kickoff": "x"}))["items"] == []
    assert (await viewer.value("GET", "/deliveries", params={"kickoff": unknown_id()}))["items"] == []
    waiting = (await viewer.value("GET", "/deliveries", params={"deployment": slug, "state": "waiting"}))["items"]
    assert [one["kickoff_id"] for one in waiting] == [bad]
    (found,) = waiting
    assert await viewer.value("GET", f"/deliveries/{found['id']}") == found
    assert found["endpoint_state"] == "failing"
    assert found["next_at"] is not None
    (attempt,) = found["attempts"]
    assert (attempt["status"], attempt["answer"], attempt["error"]) == (503, "not now", "it answered 503")
    assert receiver.url()[7:].partition("/")[0].partition(":")[0] == found["host"]


async def test_a_delivery_is_sent_again_with_its_id_and_body(crew: Crew, developer: Person, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(410)
    await ended(crew, crewWebhookUrl=receiver.url())
    await deliver(crew)
    (failed,) = (await developer.value("GET", "/deliveries", params={"deployment": crew.deployment.slug}))["items"]
    assert (failed["state"], failed["endpoint_state"], failed["next_at"]) == ("failed", "off", None)
    receiver.reply = lambda _: OK
    again = await developer.value("POST", f"/deliveries/{failed['id']}/redeliver")
    assert (again["state"], again["endpoint_state"]) == ("waiting", "active")
    await deliver(crew)
    found = await developer.value("GET", f"/deliveries/{failed['id']}")
    assert (found["state"], [one["status"] for one in found["attempts"]]) == ("delivered", [410, 200])
    assert {(got.id, got.raw) for got in receiver.got} == {(failed["id"], receiver.got[0].raw)}
    assert await entries(crew, "webhooks.redeliver") == [{"delivery": failed["id"], "kickoff": failed["kickoff_id"]}]


async def test_a_webhook_that_is_set_again_is_switched_on(crew: Crew, developer: Person, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(410)
    await change(developer, crew, crewWebhookUrl=receiver.url())
    await ended(crew)
    await deliver(crew)
    assert (await developer.value("GET", webhooks_of(crew)))["crewWebhookUrl"]["state"] == "off"
    assert (await change(developer, crew, crewWebhookUrl=receiver.url()))["crewWebhookUrl"]["state"] == "active"


async def test_an_unknown_delivery_is_not_found(developer: Person) -> None:
    for delivery in ("x", unknown_id()):
        await developer.refused("GET", f"/deliveries/{delivery}", status=404)
        await developer.refused("POST", f"/deliveries/{delivery}/redeliver", status=404)
