"""The side job that delivers what is due at one endpoint.

Deliveries of one kickoff are sent in their order, one after the other. Those of several kickoffs are sent at the same
time. No endpoint waits for another one.
"""

# See docs/decisions/webhooks.md#one-job-delivers-what-is-due-at-one-address
# See docs/decisions/webhooks.md#a-pause-is-ended-by-one-delivery

from __future__ import annotations

import asyncio
import json
import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from windlass import log, metrics
from windlass.aio import cancelled
from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.webhooks import (
    ASKED,
    BEGUN,
    PAUSED,
    THOUGHT,
    Hook,
    Request,
    body_of_end,
    body_of_events,
    body_of_question,
    body_of_step,
    body_of_task,
    is_sent,
)
from windlass.rights import WEBHOOK, may_answer
from windlass.store.webhooks import Attempt
from windlass.webhooks import signatures
from windlass.webhooks.signing_secrets import SigningSecrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.kickoffs.webhooks import Event
    from windlass.secrets.key_ring import KeyRing
    from windlass.store.webhooks import Endpoint, Waiting, WebhookStore
    from windlass.webhooks.endpoints import Endpoints, Target
    from windlass.webhooks.sending import Answer, Sender

AT_ONCE = 8
"""Requests to one endpoint at the same time."""
ENDPOINTS_AT_ONCE = 32
SLOW_AT_ONCE = 16
"""Jobs of one deployment that may take longer than SLOW. Otherwise addresses that hang would take all places."""
SLOW = 3.0
"""Seconds."""
POSTPONED = (15.0, 45.0)
"""Seconds after which a job of a deployment with so many slow ones begins."""
TURN = 20.0
"""Seconds after which a job takes no further kickoff, so that others of the worker have their turn."""
RETRIES = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds between two attempts of a delivery. After the last one it has failed."""
JITTER = 0.1
"""The fraction by which a pause is longer or shorter, so that deliveries that failed together are spread."""
PAUSE_AFTER_ERROR = 60.0
"""Seconds after which an endpoint is tried again whose deliveries a fault of the server has interrupted."""
GONE = 410
CUT = " in all)"
"""The end of a text in an event that was cut."""

logger = log.logger(__name__)


def status_url(public_url: str | None, slug: str, kickoff: UUID) -> str:
    """Returns the address of a kickoff's status, without the server's part where that is not known."""
    return f"{public_url or ''}/crews/{slug}/status/{kickoff}"


class Delivering:
    """Delivers webhooks. `status_url` returns the address of a kickoff's status for the slug of its deployment,
    `callback_url` that at which a question is answered.
    """

    def __init__(
        self,
        store: WebhookStore,
        endpoints: Endpoints,
        key_ring: KeyRing,
        sender: Sender,
        status_url: Callable[[str, UUID], str],
        callback_url: Callable[[str, UUID], str | None],
        *,
        retries: tuple[float, ...] = RETRIES,
    ) -> None:
        self._store = store
        self._endpoints = endpoints
        self._secrets = SigningSecrets(store, key_ring)
        self._sender = sender
        self._status_url = status_url
        self._callback_url = callback_url
        self._retries = retries
        self._running: dict[UUID, tuple[UUID, float]] = {}

    async def run(self, endpoint: str) -> None:
        """Delivers what is due at the endpoint, and defers the next job for what is due later."""
        found = await self._store.begin(UUID(endpoint))
        if found is None:
            return
        if self._is_too_slow(found.deployment_id):
            await self._store.postpone(found.id, random.uniform(*POSTPONED))  # noqa: S311 - no secret
            return
        if not found.paused or found.paused <= 0:
            self._running[found.id] = (found.deployment_id, time.monotonic())
            try:
                await self._deliver(found)
            except DatabaseUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - what waits at the endpoint must not wait for good
                logger.event("webhook.interrupted", deployment=found.slug, endpoint=found.id, exc=error)
                await self._store.pause(found.id, PAUSE_AFTER_ERROR)
            finally:
                del self._running[found.id]
        await self._store.finish(found.id)

    def _is_too_slow(self, deployment: UUID) -> bool:
        before = time.monotonic() - SLOW
        slow = [one for one, began in self._running.values() if one == deployment and began < before]
        return len(slow) >= SLOW_AT_ONCE

    async def _deliver(self, endpoint: Endpoint) -> None:
        secrets = await self._secrets.opened(endpoint.slug, endpoint.deployment_id, endpoint.secrets)
        turn = _Turn(endpoint, self._endpoints.open(endpoint.id, endpoint.address), secrets)
        if endpoint.probing:
            await self._next(turn, probe=True)
        tasks = [asyncio.create_task(self._work(turn)) for _ in range(AT_ONCE)]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancelled(*tasks)

    async def _work(self, turn: _Turn) -> None:
        while not turn.over and await self._next(turn):
            pass

    async def _next(self, turn: _Turn, *, probe: bool = False) -> bool:
        """Sends what waits of the next kickoff. Returns False when there is none."""
        async with turn.choosing:
            kickoff = await self._store.due(turn.endpoint.id, turn.busy, probe=probe)
            if kickoff is None:
                return False
            turn.busy.add(kickoff)
        try:
            await self._send_all(turn, kickoff)
        finally:
            turn.busy.discard(kickoff)
        return True

    async def _send_all(self, turn: _Turn, kickoff: UUID) -> None:
        while waiting := await self._store.waiting(turn.endpoint, kickoff):
            if turn.disabled:
                await self._store.fail_waiting(turn.endpoint.id, kickoff)
                return
            for delivery in waiting:
                if turn.over or not await self._send(turn, delivery):
                    return

    async def _send(self, turn: _Turn, delivery: Waiting) -> bool:
        """Sends a delivery. Returns whether the next one of the kickoff may follow."""
        body = await self._body(turn.endpoint, delivery)
        if body is None:  # the events are gone, since their retention has ended
            await self._store.given_up(turn.endpoint.id, delivery, _attempt(0, None, "its events were removed", ""))
            return True
        began = time.monotonic()
        headers = signatures.signed(delivery.id, body, turn.secrets, time.time())
        answer = await self._sender.post(turn.target, body, headers, _secrets_in(delivery.hook, body))
        seconds = time.monotonic() - began
        metrics.WEBHOOKS.labels("delivered" if answer.accepted else "failed").inc()
        attempt = _attempt(seconds, answer.status, answer.error, answer.text)
        if answer.accepted:
            await self._store.delivered(turn.endpoint.id, delivery.id, attempt, after_failure=turn.failed)
            turn.failed = False
            return True
        if answer.status == GONE:
            turn.disabled = True
            await self._store.disable(turn.endpoint.id, delivery, attempt)
            logger.event("webhook.disabled", deployment=turn.endpoint.slug, endpoint=turn.endpoint.id)
            return False
        return await self._failed(turn, delivery, attempt, answer)

    async def _failed(self, turn: _Turn, delivery: Waiting, attempt: Attempt, answer: Answer) -> bool:
        endpoint = turn.endpoint
        turn.failed = True
        if delivery.counts and delivery.tries >= len(self._retries):
            turn.paused |= await self._store.given_up(endpoint.id, delivery, attempt)
            logger.event(
                "webhook.given_up", deployment=endpoint.slug, kickoff=delivery.kickoff_id, delivery=delivery.id
            )
            return True
        pause = self._pause(delivery.tries, answer.retry_after)
        turn.paused |= await self._store.failed(endpoint.id, delivery, attempt, pause=pause, wait=answer.retry_after)
        return False

    def _pause(self, tries: int, retry_after: float | None) -> float:
        pause = self._retries[min(tries, len(self._retries) - 1)] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        return max(pause, retry_after or 0.0)

    async def _body(self, endpoint: Endpoint, delivery: Waiting) -> bytes | None:
        kickoff, status_url = delivery.kickoff_id, self._status_url(endpoint.slug, delivery.kickoff_id)
        if delivery.first is None or delivery.last is None:
            end = await self._store.end_of(kickoff)
            return None if end is None else body_of_end(kickoff, end, status_url).encode()
        events = await self._store.events(kickoff, delivery.first, delivery.last)
        if delivery.hook is Hook.EVENTS:
            wanted = [event for event in events if is_sent(event.type, delivery.types)]
            return body_of_events(kickoff, wanted).encode() if wanted else None
        if not events:
            return None
        event, meta = events[0], await self._store.meta(kickoff)
        if delivery.hook is Hook.TASK:
            whole = await self._store.whole_output(kickoff, event.at) if CUT in event.payload else None
            return body_of_task(kickoff, event, whole, meta, status_url).encode()
        if delivery.hook is Hook.STEP:
            before = await self._store.recent(kickoff, event.seq, (ASKED, THOUGHT))
            return body_of_step(kickoff, event, before, meta, status_url).encode()
        request = await self._request(endpoint, kickoff, event)
        return body_of_question(kickoff, event, meta, status_url, request).encode()

    async def _request(self, endpoint: Endpoint, kickoff: UUID, event: Event) -> Request | None:
        """Returns what the webhook of a deployment gets of a question of a flow, None for others. A webhook of a
        kickoff gets no callback URL: who starts a kickoff may not be one who may answer.
        """
        question = event.data()
        if not (endpoint.asks and question.get("method")):
            return None
        before = await self._store.recent(kickoff, event.seq, (PAUSED, BEGUN))
        may = may_answer(endpoint.approvers, user=None, role=None, kind=WEBHOOK)
        callback_url = self._callback_url(endpoint.slug, UUID(question["task_id"])) if may else None
        return Request(endpoint.deployment_id, endpoint.slug, callback_url, before)


class _Turn:
    """The work of one job. `busy` are the kickoffs whose deliveries are being sent. `failed` is whether the endpoint
    has refused something since it last accepted something.
    """

    def __init__(self, endpoint: Endpoint, target: Target, secrets: list[signatures.SigningSecret]) -> None:
        self.endpoint = endpoint
        self.target = target
        self.secrets = secrets
        self.busy: set[UUID] = set()
        self.choosing = asyncio.Lock()
        self.paused = False
        self.failed = endpoint.failures > 0 or endpoint.paused is not None
        self.disabled = endpoint.disabled
        self._until = time.monotonic() + TURN

    @property
    def over(self) -> bool:
        return self.paused or time.monotonic() > self._until


def _secrets_in(hook: Hook, body: bytes) -> dict[str, str]:
    """Returns the parts of a body with which its receiver can do what those who read deliveries may not."""
    url = json.loads(body).get("callback_url") if hook is Hook.HUMAN_INPUT else None
    return {"callback_url": url, "signature": url.rpartition("=")[2]} if url else {}


def _attempt(seconds: float, status: int | None, error: str | None, text: str) -> Attempt:
    return Attempt(datetime.now(UTC).isoformat(), round(seconds, 3), status, error, text.replace("\x00", ""))
