"""What is delivered: every end once, in order, in spite of failures, crashes and slow receivers."""

from __future__ import annotations

import asyncio
import json
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from lifecycle.waiting import until
from store.kickoff_rows import DONE, FAILED, Rows
from store.shared_database import connected
from webhooks.receiver import OK, Got, Receiver, Reply
from windlass.aio import serving
from windlass.kickoffs.events import HUMAN_INPUT_REQUESTED, StoredEvent
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import Outcome
from windlass.kickoffs.questions import Answer, Question
from windlass.kickoffs.states import Reason, State
from windlass.lifecycle.background_tasks import SideJobWorker
from windlass.secrets.key_ring import KeyRing, MasterKey
from windlass.store.audit import COMMAND_LINE, Actor, Change
from windlass.store.ending import StopFilter
from windlass.store.reporting import Batch, JournalEntry
from windlass.store.retention import RetentionStore
from windlass.store.side_jobs import SideJob, SideJobs
from windlass.store.webhooks import JOB, MOST_REMINDERS, PROBING, DeliveryFilter, WebhookStore, replace
from windlass.webhooks import signatures
from windlass.webhooks.delivering import ENDPOINTS_AT_ONCE, RETRIES, SLOW, SLOW_AT_ONCE, Delivering, status_url
from windlass.webhooks.endpoints import Endpoints
from windlass.webhooks.sending import Sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from uuid import UUID

    from windlass.store.claiming import Claimed
    from windlass.store.webhooks import Delivery

RING = KeyRing([MasterKey(b"k" * 32)])
SOON, LATER = (0.0,) * len(RETRIES), (3600.0,) * len(RETRIES)


class Sending:
    """Kickoffs with webhooks, and the side job that delivers them."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.store = WebhookStore(rows.database, soon=0.0, late=0.0)
        self.endpoints = Endpoints(RING, b"key")

    def delivering(self, retries: tuple[float, ...] = SOON) -> Delivering:
        urls = partial(status_url, "https://crews.example.com")
        sender = Sender(["127.0.0.1"])
        return Delivering(self.store, self.endpoints, RING, sender, urls, self.callback_url, retries=retries)

    @staticmethod
    def callback_url(slug: str, question: UUID) -> str:
        return f"https://crews.example.com/crews/{slug}/resume/{question}"

    async def accept(self, **members: Any) -> UUID:
        given = self.endpoints.given(self.rows.deployment.id, members)
        (kickoff,) = await self.rows.accept(webhooks=given.webhooks, endpoints=given.endpoints)
        return kickoff

    async def start(self, **members: Any) -> Claimed:
        await self.accept(**members)
        (claimed,) = await self.rows.claim()
        return claimed

    async def report(self, claimed: Claimed, first: int, *kinds: str, **data: Any) -> None:
        events = [StoredEvent(seq, kind, 1.0, json.dumps({"n": seq, **data})) for seq, kind in enumerate(kinds, first)]
        assert await self.rows.write_reports(claimed.id, claimed.attempt, events)

    async def come_due(self) -> None:
        """As a second later, when the batches are sent."""
        await self.rows.database.execute("UPDATE webhooks SET due_at = now() WHERE due_at > now()")

    async def jobs(self) -> list[str]:
        rows = await self.rows.database.rows(
            "SELECT args ->> 'endpoint' AS endpoint FROM procrastinate_jobs"
            " WHERE task_name = %(job)s AND status = 'todo'",
            {"job": JOB},
        )
        return [row["endpoint"] for row in rows]

    async def deliver(self, *, turns: int = 1, retries: tuple[float, ...] = SOON) -> None:
        """Does the jobs that wait, as a worker does, also those that wait for their time."""
        for _ in range(turns):
            for endpoint in set(await self.jobs()):
                await self.rows.database.execute(
                    "DELETE FROM procrastinate_jobs WHERE args ->> 'endpoint' = %(endpoint)s", {"endpoint": endpoint}
                )
                await self.delivering(retries).run(endpoint)

    async def deliveries(self, **wanted: Any) -> list[Delivery]:
        return (await self.store.list(DeliveryFilter(**wanted))).rows[::-1]

    async def secret(self) -> str:
        found = await self.store.secrets(self.rows.deployment.slug)
        assert found is not None
        assert found[1] is not None
        return signatures.opened(RING, found[0], found[1])[0].value

    def working(self, retries: tuple[float, ...] = SOON) -> SideJobWorker:
        jobs = [SideJob(JOB, self.delivering(retries).run)]
        return SideJobWorker(
            SideJobs(self.rows.database.url, jobs, at_once=ENDPOINTS_AT_ONCE, look_every=0.1, silent=2.0),
            look_every=0.5,
        )


@pytest.fixture
async def sending(emptied_url: str) -> AsyncIterator[Sending]:
    async with connected(emptied_url) as database:
        yield Sending(await Rows.make(database))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


def failing(times: int, status: int = 500, **headers: str) -> Callable[[Got], Reply]:
    """Refuses each delivery so many times."""
    seen: dict[str, int] = {}

    def reply(got: Got) -> Reply:
        seen[got.id] = seen.get(got.id, 0) + 1
        return Reply(status, b"not now", headers) if seen[got.id] <= times else OK

    return reply


# ends


async def _succeed(sending: Sending, claimed: Claimed) -> None:
    await sending.rows.settle(claimed, DONE)


async def _fail(sending: Sending, claimed: Claimed) -> None:
    await sending.rows.settle(claimed, FAILED)


async def _refuse(sending: Sending, claimed: Claimed) -> None:
    await sending.rows.settle(claimed, Outcome(State.FAILED, reason=Reason.SECRETS, error="a secret can't be read"))


async def _time_out(sending: Sending, claimed: Claimed) -> None:
    await sending.rows.settle(claimed, Outcome(State.TIMED_OUT, reason=Reason.TIMED_OUT, error="it took too long"))


async def _crash(sending: Sending, claimed: Claimed) -> None:
    await sending.rows.settle(claimed, Outcome(State.FAILED, reason=Reason.CRASHED, error="it crashed"))


async def _stop(sending: Sending, claimed: Claimed) -> None:
    await sending.rows.store.stop(claimed.id)
    await sending.rows.settle(claimed, DONE)


async def _lose(sending: Sending, claimed: Claimed) -> None:
    await sending.rows.begin(claimed)
    await sending.rows.end_leases()
    await sending.rows.store.reap(max_losses=0)


async def _release(sending: Sending, claimed: Claimed) -> None:
    await sending.rows.store.stop(claimed.id)
    await sending.rows.store.release(sending.rows.worker)


@pytest.mark.parametrize(
    ("ends", "state", "reason"),
    [
        (_succeed, "SUCCESS", None),
        (_fail, "FAILED", "error"),
        (_refuse, "FAILED", "secrets"),
        (_time_out, "FAILED", "timed_out"),
        (_crash, "FAILED", "crashed"),
        (_stop, "FAILED", "cancelled"),
        (_lose, "FAILED", "lost"),
        (_release, "FAILED", "cancelled"),
    ],
)
async def test_every_end_is_delivered_once(
    sending: Sending, receiver: Receiver, ends: Any, state: str, reason: str | None
) -> None:
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await ends(sending, claimed)
    await sending.deliver(turns=3)
    (got,) = receiver.got
    assert (got.body["kickoff_id"], got.body["state"], got.body["reason"]) == (str(claimed.id), state, reason)
    assert (got.body["error"] is None) == (state == "SUCCESS")
    assert Verifier(await sending.secret()).verify(got.raw, got.headers)
    assert await sending.jobs() == []


async def test_a_waiting_kickoff_that_is_stopped_is_delivered(sending: Sending, receiver: Receiver) -> None:
    one, other = [await sending.accept(crewWebhookUrl=receiver.url(path)) for path in ("/one", "/other")]
    await sending.rows.store.stop(one)
    found = await sending.rows.store.matching(StopFilter(sending.rows.deployment.id))
    assert found is not None
    await sending.rows.store.stop_waiting(found.waiting, COMMAND_LINE)
    await sending.deliver()
    assert {(got.path, got.body["reason"]) for got in receiver.got} == {("/one", "cancelled"), ("/other", "cancelled")}
    assert {got.body["kickoff_id"] for got in receiver.got} == {str(one), str(other)}


async def test_an_interruption_is_no_end(sending: Sending, receiver: Receiver) -> None:
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.begin(claimed)
    await sending.rows.requeue(claimed)
    assert await sending.jobs() == []


async def test_a_kickoff_without_webhooks_causes_no_job(sending: Sending) -> None:
    claimed = await sending.start()
    await sending.report(claimed, 1, "task_completed")
    await sending.rows.settle(claimed)
    assert await sending.jobs() == []


# order and content


async def test_all_of_a_kickoff_arrives_at_one_address_in_order(sending: Sending, receiver: Receiver) -> None:
    url = receiver.url()
    claimed = await sending.start(
        crewWebhookUrl=url, taskWebhookUrl=url, stepWebhookUrl=url, webhooks={"events": ["*"], "url": url}
    )
    await sending.report(
        claimed, 1, "crew_kickoff_started", "tool_usage_finished", "task_completed", output={"raw": "r"}
    )
    await sending.come_due()
    await sending.deliver()
    await sending.report(claimed, 4, "task_completed", output={"raw": "s"})
    await sending.rows.settle(claimed)
    await sending.come_due()
    await sending.deliver(turns=2)

    def name(got: Got) -> Any:
        if "events" in got.body:
            return [event["data"]["n"] for event in got.body["events"]]
        return "end" if "state" in got.body else "step" if "tool" in got.body else "task"

    assert [name(got) for got in receiver.got] == [[1, 2], "step", [3], "task", [4], "task", "end"]
    assert len({got.id for got in receiver.got}) == 7


async def test_events_are_sent_one_by_one_in_real_time(sending: Sending, receiver: Receiver) -> None:
    claimed = await sending.start(webhooks={"events": ["a", "c"], "url": receiver.url(), "realtime": True})
    await sending.report(claimed, 1, "a", "b", "c", "a")
    await sending.deliver()
    assert [[event["type"] for event in got.body["events"]] for got in receiver.got] == [["a"], ["c"], ["a"]]
    ids = [event["id"] for got in receiver.got for event in got.body["events"]]
    assert ids == [f"{claimed.id}-{n}" for n in (1, 3, 4)]


async def test_events_of_other_types_cause_no_job(sending: Sending, receiver: Receiver) -> None:
    claimed = await sending.start(webhooks={"events": ["a"], "url": receiver.url()}, taskWebhookUrl=receiver.url("/t"))
    await sending.report(claimed, 1, "b", "c")
    assert await sending.jobs() == []


async def test_a_long_output_of_a_task_is_sent_whole(sending: Sending, receiver: Receiver) -> None:
    claimed = await sending.start(taskWebhookUrl=receiver.url())
    await sending.rows.database.execute(
        "UPDATE task_records SET state = 'completed', output = to_json(repeat('x', 100000)),"
        " finished_at = to_timestamp(1) WHERE kickoff_id = %(id)s AND position = 0",
        {"id": claimed.id},
    )
    await sending.report(claimed, 1, "task_completed", output={"raw": "xxx... (97.7 KB in all)", "name": "plan"})
    await sending.deliver()
    assert receiver.got[0].body["output"] == "x" * 100_000


async def test_credentials_are_sent_and_stored_nowhere_in_plain_text(sending: Sending, receiver: Receiver) -> None:
    bearer = {"strategy": "bearer", "token": "s3cret-1"}
    basic = {"strategy": "basic", "username": "u", "password": "s3cret-2"}
    claimed = await sending.start(
        webhooks={"events": ["*"], "url": receiver.url("/a"), "authentication": bearer},
        humanInputWebhook={"url": receiver.url("/s3cret-3"), "authentication": basic},
    )
    await sending.report(claimed, 1, "human_input_requested", draft="d")
    await sending.come_due()
    await sending.deliver()
    assert {got.headers["authorization"] for got in receiver.got} == {"Bearer s3cret-1", "Basic dTpzM2NyZXQtMg=="}
    for table in ("kickoffs", "webhooks", "webhook_endpoints", "deliveries", "procrastinate_jobs", "deployments"):
        rows = await sending.rows.database.rows(f"SELECT {table}::text AS text FROM {table}")
        assert not [row for row in rows if "s3cret" in row["text"] or "whsec" in row["text"]], table


# failures


async def test_a_delivery_is_repeated_with_the_same_id_and_body(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = failing(2)
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.settle(claimed)
    await sending.deliver(turns=3)
    assert len({(got.id, got.raw) for got in receiver.got}) == 1
    assert len(receiver.got) == 3
    (delivery,) = await sending.deliveries()
    assert [(one["status"], one["answer"]) for one in delivery.attempts] == [(500, "not now")] * 2 + [(200, "ok")]
    assert (delivery.state, delivery.host) == ("delivered", "127.0.0.1")


async def test_what_follows_a_failure_waits_for_it(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = failing(1)
    claimed = await sending.start(webhooks={"events": ["*"], "url": receiver.url(), "realtime": True})
    await sending.report(claimed, 1, "a", "b")
    await sending.deliver(turns=5)
    types = [got.body["events"][0]["type"] for got in receiver.got]
    assert types == ["a", "a", "b", "b"]


async def test_a_delivery_is_given_up_after_its_last_attempt(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(500)
    claimed = await sending.start(webhooks={"events": ["*"], "url": receiver.url(), "realtime": True})
    await sending.report(claimed, 1, "a", "b")
    await sending.deliver(turns=60)
    assert [(one.state, len(one.attempts)) for one in await sending.deliveries()] == [("failed", 10), ("failed", 10)]
    assert await sending.jobs() == []


@pytest.mark.parametrize("status", [410, 500])
async def test_a_kickoff_whose_webhooks_fail_has_one_warning(sending: Sending, receiver: Receiver, status: int) -> None:
    receiver.reply = lambda got: Reply(status) if got.path == "/bad" else OK
    failed = await sending.start(crewWebhookUrl=receiver.url("/bad"), taskWebhookUrl=receiver.url("/bad"))
    fine = await sending.start(crewWebhookUrl=receiver.url("/good"))
    await sending.report(failed, 1, "task_completed", "task_completed")
    for claimed in (failed, fine):
        await sending.rows.settle(claimed)
    await sending.deliver(turns=40)
    query = "SELECT id, warnings FROM kickoffs"
    found = {row["id"]: row["warnings"] for row in await sending.rows.database.rows(query)}
    assert [one["code"] for one in found[failed.id]] == ["webhook_failed"]
    assert found[fine.id] == []


async def test_the_times_of_the_attempts(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(500)
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.settle(claimed)
    pauses: list[float] = []
    for _ in range(4):
        await sending.deliver(retries=RETRIES)
        (row,) = await sending.rows.database.rows(
            "SELECT extract(epoch FROM due_at - (attempts -> -1 ->> 'at')::timestamptz) AS left"
            " FROM webhooks JOIN deliveries USING (kickoff_id)"
        )
        pauses.append(float(row["left"]))
        await sending.rows.database.execute("UPDATE webhooks SET due_at = now()")
        await sending.rows.database.execute("UPDATE deliveries SET next_at = now()")
    for pause, wanted in zip(pauses, RETRIES, strict=False):
        assert 0.85 * wanted <= pause <= 1.15 * wanted + 20
    assert RETRIES == (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)


async def test_the_next_job_waits_for_its_time(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(500)
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.settle(claimed)
    await sending.deliver(retries=LATER)
    (job,) = await sending.rows.database.rows(
        "SELECT priority, extract(epoch FROM scheduled_at - now()) AS left FROM procrastinate_jobs"
        " WHERE status = 'todo'"
    )
    assert job["priority"] == 0
    assert 3000 < job["left"] < 4000


async def test_a_receiver_may_ask_for_a_pause(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = failing(1, 503, **{"Retry-After": "3600"})
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.settle(claimed)
    await sending.deliver(turns=4)
    assert len(receiver.got) == 1
    (delivery,) = await sending.deliveries()
    assert delivery.next_at is not None
    assert 3000 < delivery.next_at.timestamp() - time.time() < 4000


async def test_a_receiver_that_is_gone_gets_nothing_more(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(410)
    claimed = await sending.start(webhooks={"events": ["*"], "url": receiver.url(), "realtime": True})
    await sending.report(claimed, 1, "a", "b", "c")
    await sending.deliver(turns=3)
    later = await sending.start(crewWebhookUrl=receiver.url(), taskWebhookUrl=receiver.url())
    await sending.report(later, 1, "task_completed")
    await sending.rows.settle(later)
    await sending.deliver(turns=3)
    assert len(receiver.got) == 1
    assert {one.state for one in await sending.deliveries()} == {"failed"}
    assert await sending.jobs() == []


async def test_sending_again_enables_a_receiver_that_was_gone(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(410)
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.settle(claimed)
    await sending.deliver()
    receiver.reply = lambda _: OK
    (delivery,) = await sending.deliveries()
    assert await sending.store.redeliver(delivery.id, Change(COMMAND_LINE, "delivery.redeliver", str(delivery.id)))
    await sending.deliver()
    (delivery,) = await sending.deliveries()
    assert (delivery.state, len(delivery.attempts)) == ("delivered", 2)
    assert len({got.id for got in receiver.got}) == 1


async def test_a_failing_receiver_is_tried_with_one_delivery_and_gets_all_when_it_is_back(
    sending: Sending, receiver: Receiver
) -> None:
    receiver.reply = lambda _: Reply(500)
    for _ in range(20):
        claimed = await sending.start(crewWebhookUrl=receiver.url())
        await sending.rows.settle(claimed)
    await sending.deliver(retries=LATER)
    before = len(receiver.got)
    assert PROBING <= before < PROBING + 8
    for _ in range(3):
        await sending.deliver(retries=LATER)
    assert len(receiver.got) == before + 3
    receiver.reply = lambda _: OK
    await sending.deliver(retries=LATER)
    assert len(receiver.accepted) == 20
    assert await sending.jobs() == []
    assert {one.state for one in await sending.deliveries()} == {"delivered"}


async def test_an_early_attempt_does_not_count_for_giving_up(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(500)
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.settle(claimed)
    await sending.deliver(retries=LATER)
    await sending.rows.database.execute("UPDATE webhook_endpoints SET failures = 50")
    await sending.rows.database.execute("UPDATE webhooks SET due_at = now() + interval '1 hour'")
    await sending.deliver(turns=30, retries=LATER)
    (row,) = await sending.rows.database.rows(
        "SELECT tries, state, json_array_length(attempts) AS kept FROM deliveries"
    )
    assert (row["tries"], row["state"], row["kept"]) == (1, "waiting", 20)


async def test_a_delivery_whose_events_were_removed_is_given_up(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = failing(1)
    claimed = await sending.start(webhooks={"events": ["*"], "url": receiver.url()}, crewWebhookUrl=receiver.url())
    await sending.report(claimed, 1, "a")
    await sending.come_due()
    await sending.deliver(retries=LATER)
    await sending.rows.database.execute("DELETE FROM events")
    await sending.come_due()
    await sending.rows.settle(claimed)
    await sending.deliver(turns=2)
    assert [(one.hook, one.state) for one in await sending.deliveries()] == [
        ("events", "failed"),
        ("crew", "delivered"),
    ]


async def test_an_unreadable_secret_pauses_the_endpoint(sending: Sending, receiver: Receiver) -> None:
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.settle(claimed)
    await sending.rows.database.execute("UPDATE webhook_endpoints SET address = 'v1.00000000.AAAA'")
    await sending.deliver(turns=2)
    assert receiver.got == []
    assert len(await sending.jobs()) == 1


async def test_a_deleted_kickoff_leaves_nothing(sending: Sending, receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(500)
    claimed = await sending.start(crewWebhookUrl=receiver.url(), taskWebhookUrl=receiver.url())
    await sending.report(claimed, 1, "task_completed")
    await sending.rows.settle(claimed)
    await sending.deliver()
    retention = RetentionStore(sending.rows.database)
    await retention.drop_rows("deliveries", [claimed.id])
    await retention.delete_kickoffs([claimed.id], COMMAND_LINE)
    for table in ("deliveries", "webhooks"):
        assert await sending.rows.database.rows(f"SELECT FROM {table}") == []
    await sending.deliver(turns=2)
    assert await sending.jobs() == []
    await sending.rows.database.execute("UPDATE webhook_endpoints SET created_at = 'epoch'")
    await sending.store.remove_unused_endpoints()
    assert await sending.rows.database.rows("SELECT FROM webhook_endpoints") == []


async def test_webhooks_can_be_replaced(sending: Sending, receiver: Receiver) -> None:
    claimed = await sending.start(crewWebhookUrl=receiver.url("/old"), taskWebhookUrl=receiver.url("/old"))
    await sending.report(claimed, 1, "task_completed")
    given = sending.endpoints.given(sending.rows.deployment.id, {"crewWebhookUrl": receiver.url("/new")})
    async with sending.rows.database.transaction() as connection:
        await replace(connection, claimed.id, given)
    await sending.report(claimed, 2, "task_completed")
    await sending.rows.settle(claimed)
    await sending.deliver(turns=2)
    assert [(got.path, "state" in got.body) for got in sorted(receiver.got, key=lambda got: got.path)] == [
        ("/new", True),
        ("/old", False),
        ("/old", False),
    ]


async def test_replaced_webhooks_get_the_events_that_have_no_delivery_yet(sending: Sending, receiver: Receiver) -> None:
    def all_to(path: str) -> dict[str, Any]:
        return {"webhooks": {"events": ["*"], "url": receiver.url(path)}}

    claimed = await sending.start(**all_to("/old"))
    await sending.report(claimed, 1, "a")
    await sending.come_due()
    await sending.deliver()
    await sending.report(claimed, 2, "b")
    given = sending.endpoints.given(sending.rows.deployment.id, all_to("/new"))
    async with sending.rows.database.transaction() as connection:
        await replace(connection, claimed.id, given)
    await sending.report(claimed, 3, "c")
    await sending.come_due()
    await sending.deliver(turns=2)
    assert [(got.path, [event["type"] for event in got.body["events"]]) for got in receiver.got] == [
        ("/old", ["a"]),
        ("/new", ["b", "c"]),
    ]


async def test_a_webhook_is_called_again_for_a_question_without_an_answer(sending: Sending, receiver: Receiver) -> None:
    rows, url = sending.rows, receiver.url()
    claimed = await sending.start(humanInputWebhookUrl=url, crewWebhookUrl=receiver.url("/end"))
    await rows.begin(claimed)
    asked = Question(new_id(), rows.deployment.id, 1, "question", "Is it good?", "# A draft", remind_every=60.0)
    event = StoredEvent(1, HUMAN_INPUT_REQUESTED, 1.0, json.dumps(asked.to_json("write")))
    entries = [JournalEntry(1, "question", "sealed")]
    assert await rows.store.pause(claimed.id, claimed.attempt, Batch([event], entries=entries, questions=[asked]))

    async def a_minute_later() -> list[str]:
        await rows.database.execute("UPDATE questions SET remind_at = now() WHERE remind_at IS NOT NULL")
        await sending.store.remind()
        await sending.deliver(retries=LATER)
        return [str(got.body["task_id"]) for got in receiver.got]

    assert await a_minute_later() == [str(asked.id)], "it was called for the first time"
    await sending.store.remind()
    await sending.deliver()
    assert len(receiver.got) == 1, "it is not time yet"
    assert await a_minute_later() == [str(asked.id)] * 2
    receiver.reply = lambda _: Reply(500)
    await a_minute_later()
    assert len(await a_minute_later()) == 3, "what waits at the receiver is not added to"
    receiver.reply = lambda _: OK
    await sending.come_due()
    await sending.deliver()
    assert await rows.store.answer(asked.id, Answer(approved=True), Actor(None, "ann"))
    before = len(receiver.got)
    assert len(await a_minute_later()) == before
    assert {got.path for got in receiver.got} == {"/hook"}
    assert [one.state for one in await sending.deliveries()] == ["delivered"] * 3
    assert len({got.id for got in receiver.got}) == 3


async def test_the_reminders_of_a_question_that_waits_for_ever_have_an_end(
    sending: Sending, receiver: Receiver
) -> None:
    rows = sending.rows
    claimed = await sending.start(humanInputWebhookUrl=receiver.url())
    await rows.begin(claimed)
    asked = Question(new_id(), rows.deployment.id, 1, "question", "Is it good?", "# A draft", remind_every=60.0)
    entries = [JournalEntry(1, "question", "sealed")]
    assert await rows.store.pause(claimed.id, claimed.attempt, Batch([], entries=entries, questions=[asked]))

    async def reminded(minutes: int) -> bool:
        """Whether another reminder follows the one after so many minutes."""
        at = "UPDATE questions SET remind_at = now(), asked_at = now() - %(minutes)s * interval '1 minute'"
        await rows.database.execute(at, {"minutes": minutes})
        await sending.store.remind()
        (row,) = await rows.database.rows(
            "SELECT remind_at > now() AS again FROM questions WHERE id = %(id)s", {"id": asked.id}
        )
        return row["again"] is True

    assert await reminded(1)
    assert await reminded(MOST_REMINDERS - 2)
    assert not await reminded(MOST_REMINDERS)


async def test_webhooks_of_a_deployment_are_those_of_all_its_kickoffs(sending: Sending, receiver: Receiver) -> None:
    slug, deployment = sending.rows.deployment.slug, sending.rows.deployment.id
    endpoint = sending.endpoints.of(deployment, receiver.url("/all"))
    options = {str(hook): {"endpoint": str(endpoint.id)} for hook in ("crew", "task")}
    change = Change(COMMAND_LINE, "webhooks.change", slug)
    stored = await sending.store.change_webhooks(slug, options, [endpoint], change)  # type: ignore[arg-type]
    given = sending.endpoints.given(deployment, {"crewWebhookUrl": receiver.url("/own")}, stored)
    (kickoff,) = await sending.rows.accept(webhooks=given.webhooks, endpoints=given.endpoints)
    (claimed,) = await sending.rows.claim()
    await sending.report(claimed, 1, "task_completed")
    await sending.rows.settle(claimed)
    await sending.deliver(turns=2)
    assert {(got.path, got.body["kickoff_id"]) for got in receiver.got} == {
        ("/all", str(kickoff)),
        ("/own", str(kickoff)),
    }


# at the same time


async def test_an_event_whose_transaction_is_open_while_the_mark_is_cleared_is_not_lost(
    sending: Sending, receiver: Receiver
) -> None:
    claimed = await sending.start(webhooks={"events": ["*"], "url": receiver.url(), "realtime": True})
    await sending.report(claimed, 1, "a")
    async with sending.rows.database.transaction() as connection:
        await connection.execute("INSERT INTO events VALUES (%(id)s, 2, 1, 'b', now(), '{}')", {"id": claimed.id})
        await connection.execute("SELECT wake_webhooks(%(id)s, ARRAY['b'])", {"id": claimed.id})
        delivery = asyncio.create_task(sending.deliver())
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await until(partial(sending.rows.database.rows, waits))
    await delivery
    await sending.deliver()
    assert [got.body["events"][0]["type"] for got in receiver.got] == ["a", "b"]


async def test_two_workers_deliver_many_kickoffs_in_order_to_a_receiver_that_often_fails(
    sending: Sending, receiver: Receiver
) -> None:
    chance = random.Random(7)
    receiver.reply = lambda _: Reply(500) if chance.random() < 0.3 else OK
    kickoffs, events = 20, 12
    async with serving(sending.working()), serving(sending.working()):
        claimed = [
            await sending.start(
                webhooks={"events": ["*"], "url": receiver.url(), "realtime": True}, crewWebhookUrl=receiver.url()
            )
            for _ in range(kickoffs)
        ]
        for first in range(1, events, 3):
            for one in claimed:
                await sending.report(one, first, "a", "b", "c")
        for one in claimed:
            await sending.rows.settle(one)
        waiting = "SELECT FROM webhooks WHERE due_at IS NOT NULL OR NOT end_planned"
        await until(lambda: _none(sending, waiting))
    delivered = [
        one for one in (await sending.store.list(DeliveryFilter(), limit=10_000)).rows if one.state == "delivered"
    ]
    assert len(delivered) == kickoffs * (events + 1)
    verifier = Verifier(await sending.secret())
    for one in claimed:
        of_one = [got for got in receiver.got if str(one.id).encode() in got.raw]
        firsts: list[int] = []
        for got in of_one:
            verifier.verify(got.raw, got.headers)
            number = got.body["events"][0]["data"]["n"] if "events" in got.body else events + 1
            if number not in firsts:
                firsts.append(number)
        assert firsts == list(range(1, events + 2))


async def _none(sending: Sending, statement: str) -> bool:
    return not await sending.rows.database.rows(statement)


async def test_a_receiver_that_hangs_delays_no_other(sending: Sending, receiver: Receiver) -> None:
    async with Receiver(lambda _: None) as hanging, serving(sending.working()):
        for _ in range(40):
            await sending.rows.settle(await sending.start(crewWebhookUrl=hanging.url()))
        await until(lambda: _some(hanging.got))
        for number in range(5):
            await sending.rows.settle(await sending.start(crewWebhookUrl=receiver.url(f"/{number}")))
        async with asyncio.timeout(10):  # the hanging ones have 20 s each
            await until(lambda: _some(len(receiver.got) == 5))
        assert len(hanging.got) <= 8


async def test_many_addresses_that_hang_leave_room_for_others(sending: Sending, receiver: Receiver) -> None:
    other = Sending(await sending.rows.beside("other"))
    async with Receiver(lambda _: None) as hanging, serving(sending.working()):
        for number in range(60):
            await sending.rows.settle(await sending.start(crewWebhookUrl=hanging.url(f"/{number}")))
        await until(lambda: _some(len(hanging.got) >= SLOW_AT_ONCE))
        await asyncio.sleep(SLOW)
        await other.rows.settle(await other.start(crewWebhookUrl=receiver.url()))
        async with asyncio.timeout(50):  # sixty that hang would take forty seconds more
            await until(lambda: _some(receiver.got))
        assert len(hanging.got) < 60


async def test_what_a_stopped_worker_was_sending_is_sent_again_with_its_id(
    sending: Sending, receiver: Receiver
) -> None:
    receiver.reply = lambda _: None
    async with serving(sending.working()):
        await sending.rows.settle(await sending.start(crewWebhookUrl=receiver.url()))
        await until(lambda: _some(receiver.got))
    receiver.reply = lambda _: OK
    async with serving(sending.working()):
        await until(lambda: _none(sending, "SELECT FROM deliveries WHERE state = 'waiting'"))
    first, second = receiver.got
    assert (first.id, first.raw) == (second.id, second.raw)


async def _some(found: object) -> bool:
    return bool(found)


async def test_a_job_that_failed_is_deferred_again(sending: Sending, receiver: Receiver) -> None:
    claimed = await sending.start(crewWebhookUrl=receiver.url())
    await sending.rows.settle(claimed)
    await sending.rows.database.execute("DELETE FROM procrastinate_jobs")
    await sending.store.defer_forgotten()
    assert await sending.jobs() == []
    await sending.rows.database.execute("UPDATE webhooks SET due_at = now() - interval '2 minutes'")
    await sending.store.defer_forgotten()
    await sending.store.defer_forgotten()
    await sending.deliver()
    assert len(receiver.got) == 1
