"""Webhooks of kickoffs that a test starts and ends, and their deliveries, which a side job would send."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from api.runs import begin
from api.serving import KEY_RING
from windlass.access.callbacks import Callbacks
from windlass.access.tokens import Tokens
from windlass.store.tokens import TokenStore
from windlass.store.webhooks import JOB, WebhookStore
from windlass.webhooks.delivering import RETRIES, Delivering, status_url
from windlass.webhooks.endpoints import Endpoints
from windlass.webhooks.sending import Sender

LATER = (3600.0,) * len(RETRIES)

if TYPE_CHECKING:
    from typing import Any

    from api.serving import Crew


async def ended(crew: Crew, **members: Any) -> str:
    """Returns the id of a kickoff with these webhooks that has ended well."""
    kickoff = await crew.kickoff(**members)
    await (await begin(crew, kickoff)).succeed()
    return kickoff


async def deliver(crew: Crew) -> None:
    """Does the jobs of the crew's endpoints that wait, also those that wait for their time."""
    database = crew.server.database
    urls = partial(status_url, "https://crews.example.com")
    callbacks = Callbacks(await Tokens.open(TokenStore(database), KEY_RING))
    delivering = Delivering(
        WebhookStore(database),
        Endpoints(KEY_RING, b"webhooks"),
        KEY_RING,
        Sender(["127.0.0.1"]),
        urls,
        partial(callbacks.url, "https://crews.example.com"),
        retries=LATER,
    )
    rows = await database.rows(
        "DELETE FROM procrastinate_jobs WHERE task_name = %(job)s AND status = 'todo' AND args ->> 'endpoint' IN"
        " (SELECT id::text FROM webhook_endpoints WHERE deployment_id = %(of)s) RETURNING args ->> 'endpoint' AS id",
        {"job": JOB, "of": crew.deployment.id},
    )
    for endpoint in {row["id"] for row in rows}:
        await delivering.run(endpoint)
