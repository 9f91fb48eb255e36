"""How long webhooks wait: after a receiver was down, and beside one that hangs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import random
import time
from base64 import b64decode, b64encode
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from bench.backlogs import LEASE, kickoff_of, queue
from bench.figures import Figure, quantile
from windlass.aio import serving
from windlass.kickoffs.events import StoredEvent
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.outcome import Outcome, TokenUsage
from windlass.kickoffs.states import State
from windlass.lifecycle.background_tasks import SideJobWorker
from windlass.secrets.key_ring import KeyRing, MasterKey
from windlass.store.reporting import Batch
from windlass.store.side_jobs import SideJob, SideJobs
from windlass.store.webhooks import JOB, WebhookStore
from windlass.webhooks import signatures
from windlass.webhooks.delivering import ENDPOINTS_AT_ONCE, Delivering, status_url
from windlass.webhooks.endpoints import Endpoints
from windlass.webhooks.sending import Sender

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from bench.backlogs import Queue
    from bench.stage import Stage

RING = KeyRing([MasterKey(b"b" * 32)])
WITHIN = 60.0
DELAY = 2.0


def webhooks(stage: Stage, *, kickoffs: int, events: int, receivers: int) -> list[Figure]:
    return asyncio.run(_webhooks(stage.environment["BENCH_DATABASE"], kickoffs, events, receivers))


async def _webhooks(url: str, kickoffs: int, events: int, receivers: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        found = await queue(url, "webhooks", stack)
        ground = Ground(found)
        for _ in range(2):  # as two servers
            jobs = [SideJob(JOB, ground.delivering().run)]
            side_jobs = SideJobs(found.database.url, jobs, at_once=ENDPOINTS_AT_ONCE, look_every=1.0)
            await stack.enter_async_context(serving(SideJobWorker(side_jobs)))
        return [*await back(ground, kickoffs, events), *await beside(ground, receivers)]


@dataclass
class Receiver:
    """Takes webhooks with the status that `reply` returns, and hangs with None. `got` has each accepted body and the
    time of it.
    """

    reply: Callable[[], int | None]
    got: list[tuple[float, dict[str, str], bytes]] = field(default_factory=list)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        if (status := self.reply()) is None:
            return
        if status == 200:
            self.got.append((time.monotonic(), headers, body))
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()
        self._writers.discard(writer)


class Ground:
    """Kickoffs with webhooks."""

    def __init__(self, found: Queue) -> None:
        self.queue = found
        self.store = WebhookStore(found.database)
        self.endpoints = Endpoints(RING, b"key")

    def delivering(self) -> Delivering:
        urls = partial(status_url, None)
        return Delivering(self.store, self.endpoints, RING, Sender(["127.0.0.1"]), urls, lambda *_: None)

    async def start(self, **members: Any) -> UUID:
        given = self.endpoints.given(self.queue.served.id, members)
        new = replace(kickoff_of(self.queue.served), webhooks=given.webhooks, endpoints=given.endpoints)
        await self.queue.store.accept([new])
        (claimed,) = await self.queue.store.claim(new_id(), 1, LEASE)
        return claimed.id

    async def end(self, kickoff: UUID) -> None:
        await self.queue.store.settle(kickoff, 1, Outcome(State.SUCCESS, "done"), TokenUsage(), [])

    async def secret(self) -> bytes:
        found = await self.store.secrets(self.queue.served.slug)
        assert found is not None
        assert found[1] is not None
        return b64decode(signatures.opened(RING, found[0], found[1])[0].value.removeprefix(signatures.PREFIX))

    async def drained(self) -> None:
        waiting = "SELECT FROM webhooks WHERE due_at IS NOT NULL OR NOT end_planned LIMIT 1"
        while await self.queue.database.rows(waiting):
            await asyncio.sleep(0.1)


async def back(ground: Ground, kickoffs: int, events: int) -> list[Figure]:
    """A receiver refuses three of ten requests, is down before the kickoffs end, and is back after that."""
    refused, chance = 0.3, random.Random(1)
    async with Receiver(lambda: 500 if chance.random() < refused else 200) as receiver:
        stream = {"events": ["*"], "url": receiver.url, "realtime": True}
        started = [await ground.start(webhooks=stream, crewWebhookUrl=receiver.url) for _ in range(kickoffs)]
        for first in range(1, events, 10):
            for kickoff in started:
                batch = [StoredEvent(n, "e", 1.0, json.dumps({"n": n})) for n in range(first, first + 10)]
                await ground.queue.store.write_reports(kickoff, 1, Batch(events=batch))
        refused = 1.0
        for kickoff in started:
            await ground.end(kickoff)
        await asyncio.sleep(5)
        refused, begun = 0.0, time.monotonic()
        await ground.drained()
        took = time.monotonic() - begun
    wrong = judged(receiver, await ground.secret(), kickoffs, events)
    return [
        Figure(f"webhooks of {kickoffs} kickoffs with {events} events each, one by one", f"{len(receiver.got):,}"),
        Figure("  drained after the receiver is back, s", f"{took:.1f}", f"at most {WITHIN:g}"),
        Figure("  lost, out of order, or with a wrong signature", f"{wrong}", "0"),
    ]


def judged(receiver: Receiver, secret: bytes, kickoffs: int, events: int) -> int:
    wrong = 0
    order: dict[str, list[int]] = {}
    for _, headers, body in receiver.got:
        signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
        signature = "v1," + b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
        wrong += signature != headers["webhook-signature"]
        found = json.loads(body)
        kickoff, number = (
            (found["events"][0]["execution_id"], found["events"][0]["data"]["n"])
            if "events" in found
            else (found["kickoff_id"], events + 1)
        )
        numbers = order.setdefault(kickoff, [])
        if number not in numbers:
            numbers.append(number)
    wrong += sum(numbers != list(range(1, events + 2)) for numbers in order.values())
    return wrong + kickoffs - len(order)


async def beside(ground: Ground, receivers: int) -> list[Figure]:
    """One receiver hangs, with a hundred kickoffs that wait for it, beside others that answer."""
    async with AsyncExitStack() as stack:
        hanging = await stack.enter_async_context(Receiver(lambda: None))
        live = [await stack.enter_async_context(Receiver(lambda: 200)) for _ in range(receivers)]
        for _ in range(100):
            await ground.end(await ground.start(crewWebhookUrl=hanging.url))
        ended: list[float] = []
        for one in live:
            kickoff = await ground.start(crewWebhookUrl=one.url)
            ended.append(time.monotonic())
            await ground.end(kickoff)
        async with asyncio.timeout(120):
            while not all(one.got for one in live):
                await asyncio.sleep(0.05)
    delays = [one.got[0][0] - at for one, at in zip(live, ended, strict=True)]
    return [
        Figure(
            f"webhooks to {receivers} receivers beside one that hangs, p50 ms", f"{1000 * quantile(delays, 0.5):.0f}"
        ),
        Figure("  p95, s", f"{quantile(delays, 0.95):.2f}", f"at most {DELAY:g}"),
    ]
