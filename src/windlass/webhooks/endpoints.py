"""The addresses that webhooks are sent to, with their credentials."""

# See docs/decisions/webhooks.md#endpoints-are-digests

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from windlass.kickoffs.webhooks import EVERY, Hook, Webhook, merged
from windlass.secrets.key_ring import Sealed
from windlass.store.webhooks import Given, NewEndpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.secrets.key_ring import KeyRing

MEMBERS = {Hook.TASK: "taskWebhookUrl", Hook.STEP: "stepWebhookUrl", Hook.CREW: "crewWebhookUrl"}
"""The members of a request that are a URL."""
EVENTS, HUMAN_INPUT, HUMAN_INPUT_URL = "webhooks", "humanInputWebhook", "humanInputWebhookUrl"
MEMBER_OF = {**MEMBERS, Hook.EVENTS: EVENTS, Hook.HUMAN_INPUT: HUMAN_INPUT}
"""The member with the options of each hook."""


@dataclass(frozen=True, slots=True)
class Target:
    """An address, and the header that proves who sends."""

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> dict[str, str]:
        """What no one but the receiver may see of the address and the header, by names for it."""
        parts = urlsplit(self.url)
        found = {"url": self.url, "path": parts._replace(scheme="", netloc="").geturl()}
        strategy, _, credentials = self.headers.get("authorization", "").partition(" ")
        if strategy == "Basic":
            found["password"] = base64.b64decode(credentials).decode().partition(":")[2]
        return {**found, "credentials": credentials}


@dataclass(frozen=True, slots=True)
class Changes:
    """What a request changes of the webhooks of a deployment: hook -> its options, None to remove it."""

    hooks: dict[Hook, dict[str, Any] | None]
    endpoints: list[NewEndpoint]


class Endpoints:
    """Makes and opens endpoints. Their ids are digests under `key`, so the same address has the same id."""

    def __init__(self, key_ring: KeyRing, key: bytes) -> None:
        self._key_ring = key_ring
        self._key = key

    def of(self, deployment: UUID, url: str, authentication: Mapping[str, Any] | None = None) -> NewEndpoint:
        address = json.dumps([url, dict(authentication) if authentication else None], sort_keys=True)
        digest = hmac.digest(self._key, f"{deployment} {address}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        endpoint = UUID(bytes=digest[:16])
        sealed = self._key_ring.seal(address, Sealed.WEBHOOK_ADDRESS.of(endpoint))
        return NewEndpoint(endpoint, deployment, urlsplit(url).hostname or "", sealed)

    def open(self, endpoint: UUID, address: str) -> Target:
        """Raises UnknownKey and Damaged."""
        url, authentication = json.loads(self._key_ring.open(address, Sealed.WEBHOOK_ADDRESS.of(endpoint)))
        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        if user:
            name, _, password = user.partition(":")
            of_url = {"strategy": "basic", "username": unquote(name), "password": unquote(password)}
            return Target(parts._replace(netloc=host).geturl(), _headers(authentication or of_url))
        return Target(url, _headers(authentication))

    def given(self, deployment: UUID, body: Mapping[str, Any], of_deployment: Mapping[str, Any] | None = None) -> Given:
        """Returns the webhooks of a kickoff: those of its request, and of the deployment those that it does not name.

        The members of `body` are valid.
        """
        own = {hook: options for hook, options in asked(body).items() if options is not None}
        endpoints: dict[UUID, NewEndpoint] = {}
        webhooks = [
            Webhook.of_json(UUID(options["endpoint"]), {hook: options})
            for hook, options in (of_deployment or {}).items()
            if hook not in own
        ]
        for hook, options in own.items():
            endpoint = self.of(deployment, options["url"], options.get("authentication"))
            endpoints[endpoint.id] = endpoint
            webhooks.append(Webhook.of_json(endpoint.id, {hook: options}))
        return Given(merged(webhooks), list(endpoints.values()))

    def changes(self, deployment: UUID, body: Mapping[str, Any]) -> Changes:
        """Returns what the members of `body` change of the webhooks of a deployment. They are valid."""
        hooks: dict[Hook, dict[str, Any] | None] = {}
        endpoints = []
        for hook, options in asked(body).items():
            hooks[hook] = None
            if options is not None:
                endpoint = self.of(deployment, options["url"], options.get("authentication"))
                endpoints.append(endpoint)
                authentication = strategy_of(options["url"], options.get("authentication"))
                of_events = {name: value for name, value in options.items() if name in {"events", "realtime"}}
                hooks[hook] = {"endpoint": str(endpoint.id), "authentication": authentication, **of_events}
        return Changes(hooks, endpoints)


def strategy_of(url: str, authentication: Mapping[str, Any] | None) -> str | None:
    """Returns how the server proves to the receiver who it is: `bearer`, `basic`, or None."""
    if authentication:
        return str(authentication["strategy"])
    return "basic" if "@" in urlsplit(url).netloc else None


def asked(body: Mapping[str, Any]) -> dict[Hook, dict[str, Any] | None]:
    """Returns the options of each hook that the body of a request names, None for a null."""
    found: dict[Hook, dict[str, Any] | None] = {}
    for hook, member in MEMBERS.items():
        if member in body:
            found[hook] = {"url": body[member]} if body[member] else None
    if HUMAN_INPUT_URL in body or HUMAN_INPUT in body:
        url = body.get(HUMAN_INPUT_URL)
        found[Hook.HUMAN_INPUT] = dict(body.get(HUMAN_INPUT) or ({"url": url} if url else {})) or None
    if EVENTS in body:
        found[Hook.EVENTS] = _of_events(body[EVENTS]) if body[EVENTS] else None
    return found


def _of_events(given: Mapping[str, Any]) -> dict[str, Any]:
    names = given["events"]
    return {**given, "events": None if EVERY in names else sorted(set(names)), "realtime": bool(given.get("realtime"))}


def _headers(authentication: Mapping[str, Any] | None) -> dict[str, str]:
    match authentication:
        case {"strategy": "bearer", "token": str(token)}:
            return {"authorization": f"Bearer {token}"}
        case {"strategy": "basic", "username": str(name), "password": str(password)}:
            credentials = base64.b64encode(f"{name}:{password}".encode()).decode("ascii")
            return {"authorization": f"Basic {credentials}"}
        case _:
            return {}
