"""The webhooks of a deployment, which all its kickoffs have, its signing secret, and the deliveries."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from windlass import log
from windlass.errors import WindlassError
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.webhooks import EVERY, Hook
from windlass.secrets.secret import Secret
from windlass.store.audit import Change
from windlass.store.managing import NoSuchDeployment
from windlass.webhooks import signatures
from windlass.webhooks.endpoints import MEMBER_OF
from windlass.webhooks.signing_secrets import SigningSecrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.secrets.key_ring import KeyRing
    from windlass.store.audit import Actor, AuditStore
    from windlass.store.deployments import DeploymentStore
    from windlass.store.webhooks import Delivery, DeliveryFilter, DeliveryPage, EndpointState, WebhookStore
    from windlass.webhooks.endpoints import Endpoints
    from windlass.webhooks.sending import Answer, Sender

TESTS_AT_ONCE = 8
"""Test requests that a server sends at the same time. Each may take as long as an endpoint may for its answer."""
logger = log.logger(__name__)


class NoSuchWebhook(WindlassError):  # noqa: N818 - describes the webhook
    pass


class NoSuchDelivery(WindlassError):  # noqa: N818 - describes the delivery
    def __init__(self) -> None:
        super().__init__("There is no delivery with this id.", "`windlass deliveries list` lists the deliveries.")


class TooManyTests(WindlassError):  # noqa: N818 - describes the load
    pass


@dataclass(frozen=True, slots=True)
class SetWebhook:
    """A webhook of a deployment. `events` has the types of the hook `events`, `*` for all. `authentication` is how the
    server proves who it is.
    """

    hook: Hook
    endpoint: EndpointState
    authentication: str | None
    events: list[str]
    realtime: bool


@dataclass(frozen=True, slots=True)
class Tested:
    """The outcome of a test request. `id` is its `webhook-id`, `seconds` its duration."""

    id: UUID
    host: str
    seconds: float
    answer: Answer


class DeploymentWebhooks:
    def __init__(
        self,
        store: WebhookStore,
        deployments: DeploymentStore,
        audit: AuditStore,
        endpoints: Endpoints,
        key_ring: KeyRing,
        sender: Sender,
    ) -> None:
        self._store = store
        self._deployments = deployments
        self._audit = audit
        self._endpoints = endpoints
        self._secrets = SigningSecrets(store, key_ring)
        self._sender = sender
        self._tests = 0

    async def of(self, slug: str) -> dict[Hook, SetWebhook]:
        """Raises NoSuchDeployment, as all methods with a slug."""
        found = await self._store.of_deployment(slug)
        if found is None:
            raise NoSuchDeployment(slug)
        return await self._shown(found)

    async def change(self, slug: str, body: Mapping[str, Any], by: Actor) -> dict[Hook, SetWebhook]:
        """Sets webhooks, from the next kickoff on. `body` has members of a kickoff, which are valid; null removes."""
        deployment = await self._deployments.get(slug)
        if deployment is None:
            raise NoSuchDeployment(slug)
        changes = self._endpoints.changes(deployment.id, body)
        if not changes.hooks:
            return await self.of(slug)
        hooks = {
            "set": [hook for hook, options in changes.hooks.items() if options is not None],
            "removed": [hook for hook, options in changes.hooks.items() if options is None],
        }
        change = Change(by, "webhooks.change", slug, {name: names for name, names in hooks.items() if names})
        found = await self._store.change_webhooks(slug, changes.hooks, changes.endpoints, change)
        if found is None:
            raise NoSuchDeployment(slug)
        logger.event("webhooks.changed", deployment=slug, hooks=",".join(sorted(changes.hooks)))
        return await self._shown(found)

    async def _shown(self, webhooks: Mapping[str, Any]) -> dict[Hook, SetWebhook]:
        endpoints = await self._store.endpoints([UUID(one["endpoint"]) for one in webhooks.values()])
        shown: dict[Hook, SetWebhook] = {}
        for hook in Hook:
            options = webhooks.get(hook)
            endpoint = endpoints.get(UUID(options["endpoint"])) if options else None
            if options is not None and endpoint is not None:
                events = options.get("events")
                shown[hook] = SetWebhook(
                    hook,
                    endpoint,
                    options.get("authentication"),
                    [EVERY] if events is None else events,
                    bool(options.get("realtime")),
                )
        return shown

    async def secret(self, slug: str, by: Actor) -> Secret:
        """Returns the secret that signs the webhooks of the deployment. The audit log has who saw it."""
        found = await self._secrets.of(slug)
        await self._audit.add(Change(by, "webhooks.show_secret", slug))
        return Secret(found[0].value)

    async def rotate_secret(self, slug: str, by: Actor) -> Secret:
        """Makes a new secret and returns it. The former one signs too, for a day."""
        found = await self._secrets.rotate(slug, Change(by, "webhooks.rotate_secret", slug))
        logger.event("webhooks.secret_rotated", deployment=slug)
        return Secret(found[0].value)

    async def test(self, slug: str, hook: Hook, by: Actor) -> Tested:
        """Sends a request to the endpoint of a hook now. An endpoint that accepts it is switched on.

        Raises NoSuchWebhook and TooManyTests.
        """
        found = (await self.of(slug)).get(hook)
        if found is None:
            raise NoSuchWebhook(
                f"The deployment {slug} has no `{MEMBER_OF[hook]}`.", f"Set it with: windlass webhooks set {slug}"
            )
        if self._tests >= TESTS_AT_ONCE:
            raise TooManyTests(f"This server sends {TESTS_AT_ONCE} tests already.", "Try again in some seconds.")
        self._tests += 1
        try:
            return await self._tested(slug, found, by)
        finally:
            self._tests -= 1

    async def _tested(self, slug: str, webhook: SetWebhook, by: Actor) -> Tested:
        endpoint, delivery, now = webhook.endpoint, new_id(), datetime.now(UTC)
        target = self._endpoints.open(endpoint.id, endpoint.address)
        secrets = await self._secrets.of(slug)
        await self._audit.add(Change(by, "webhooks.test", slug, {"hook": webhook.hook}))
        members = {"type": "test", "deployment": slug, "hook": webhook.hook, "timestamp": now.isoformat()}
        body = json.dumps(members).encode()
        began = time.monotonic()
        answer = await self._sender.post(target, body, signatures.signed(delivery, body, secrets, now.timestamp()))
        seconds = round(time.monotonic() - began, 3)
        if answer.accepted:
            await self._store.enable(endpoint.id)
        return Tested(delivery, endpoint.host, seconds, answer)

    async def deliveries(self, wanted: DeliveryFilter, *, limit: int) -> DeliveryPage:
        return await self._store.list(wanted, limit=limit)

    async def delivery(self, delivery: UUID | None) -> Delivery:
        """Raises NoSuchDelivery, also for None."""
        found = await self._store.find(delivery) if delivery else None
        if found is None:
            raise NoSuchDelivery
        return found

    async def redeliver(self, delivery: UUID | None, by: Actor) -> Delivery:
        """Sends a delivery again as soon as possible. Switches its endpoint on. Raises NoSuchDelivery."""
        found = await self.delivery(delivery)
        details = {"delivery": str(found.id), "kickoff": str(found.kickoff_id)}
        if not await self._store.redeliver(found.id, Change(by, "webhooks.redeliver", found.deployment, details)):
            raise NoSuchDelivery
        return await self.delivery(found.id)
