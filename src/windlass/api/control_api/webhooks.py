"""Endpoints of webhooks: those of a deployment, its signing secret, and deliveries."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Request
from fastapi import Query as InQuery
from pydantic import BaseModel, ConfigDict, Field

from windlass.api.control_api.answers import Body, Page, Query, Text, answer_of
from windlass.api.control_api.callers import ControlRoute, Developer, Viewer
from windlass.api.control_api.dependencies import Control, id_cursor
from windlass.api.control_api.deployments import Slug
from windlass.api.crew_api.schemas import WebhookMembers
from windlass.deployments.webhooks import SetWebhook
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.webhooks import Hook
from windlass.store.webhooks import DeliveryFilter, DeliveryState, EndpointWord
from windlass.webhooks.endpoints import MEMBER_OF

router = APIRouter(route_class=ControlRoute, tags=["webhooks"])
DeliveryId = Annotated[str, Path(description="The id of the delivery, which its receiver gets as `webhook-id`.")]


class WebhooksBody(WebhookMembers):
    """The webhooks to set, as a kickoff has them. Null removes one. Others stay as they are."""

    model_config = ConfigDict(extra="forbid")


class EndpointItem(BaseModel):
    """Where a webhook is sent. The address itself is never shown."""

    host: str
    authentication: Literal["bearer", "basic"] | None
    state: EndpointWord = Field(
        description="`failing`: its latest request failed. `paused`: nothing is sent before `paused_until`. `off`: it "
        "has answered 410. It is switched on when it is set again, accepts a test, or a delivery is sent again by hand."
    )
    failures: int = Field(description="Failures in a row.")
    paused_until: datetime | None
    disabled_at: datetime | None


class EventsItem(EndpointItem):
    """Where events are sent, and which."""

    events: list[str]
    realtime: bool


class WebhooksAnswer(BaseModel):
    """The webhooks of a deployment. Null: it is not set."""

    taskWebhookUrl: EndpointItem | None  # noqa: N815 - the wire's name
    stepWebhookUrl: EndpointItem | None  # noqa: N815
    crewWebhookUrl: EndpointItem | None  # noqa: N815
    webhooks: EventsItem | None
    humanInputWebhook: EndpointItem | None = Field(description="Also that of `humanInputWebhookUrl`.")  # noqa: N815


class SecretAnswer(BaseModel):
    """The signing secret of a deployment."""

    secret: str = Field(description="`whsec_...`, as the libraries of Standard Webhooks take it.")


class HookBody(Body):
    """The webhook to test."""

    hook: Hook = Field(
        Hook.CREW, strict=False, description="`task` stands for `taskWebhookUrl`, `events` for `webhooks`."
    )


class RequestItem(BaseModel):
    """A request to a receiver, and its answer."""

    seconds: float
    status: int | None = Field(description="The code of the answer. Null: there was none.")
    error: str | None = Field(description="Why it was not accepted.")
    answer: str = Field(description="The first 1,024 bytes of the answer.")


class WebhookTest(RequestItem):
    """The answer of the receiver to a test."""

    id: UUID = Field(description="The `webhook-id` of the request.")
    host: str
    accepted: bool = Field(description="Whether the receiver has answered with a code from 200 to 299.")


class AttemptItem(RequestItem):
    """One request of a delivery."""

    at: datetime


class DeliveryItem(BaseModel):
    """A delivery, and the state of its endpoint."""

    id: UUID = Field(description="The `webhook-id` of its requests.")
    deployment: str
    kickoff_id: UUID
    hook: Hook
    host: str | None = Field(description="Null: the endpoint is not known any more.")
    state: DeliveryState
    attempts: list[AttemptItem] = Field(description="The newest 20 attempts, the newest last.")
    created_at: datetime
    finished_at: datetime | None
    next_at: datetime | None = Field(description="The time of the next attempt. Null: there is none, or it waits.")
    endpoint_state: EndpointWord


class DeliveriesQuery(Query):
    deployment: Text | None = Field(None, description="Only deliveries of this deployment, by its slug.")
    kickoff: Text | None = Field(None, description="Only deliveries of this kickoff, by its id.")
    state: DeliveryState | None = Field(None, description="Only deliveries in this state.")


@router.get("/deployments/{slug}/webhooks")
async def show_webhooks(_: Viewer, control: Control, slug: Slug) -> WebhooksAnswer:
    """Returns the webhooks that all kickoffs of a deployment have. Addresses and credentials are never shown."""
    return _webhooks(await control.webhooks.of(slug))


@router.patch("/deployments/{slug}/webhooks")
async def change_webhooks(
    caller: Developer, control: Control, slug: Slug, request: Request, _: WebhooksBody
) -> WebhooksAnswer:
    """Sets webhooks of a deployment, from the next kickoff on. A kickoff's own webhooks replace them one by one."""
    return _webhooks(await control.webhooks.change(slug, await request.json(), caller.actor))


@router.get("/deployments/{slug}/webhooks/secret")
async def show_secret(caller: Developer, control: Control, slug: Slug) -> SecretAnswer:
    """Returns the secret that signs the webhooks of a deployment. The audit log has who saw it."""
    return SecretAnswer(secret=(await control.webhooks.secret(slug, caller.actor)).reveal())


@router.post("/deployments/{slug}/webhooks/secret")
async def rotate_secret(caller: Developer, control: Control, slug: Slug) -> SecretAnswer:
    """Makes a new signing secret. Webhooks have the signatures of both secrets for 24 hours."""
    return SecretAnswer(secret=(await control.webhooks.rotate_secret(slug, caller.actor)).reveal())


@router.post("/deployments/{slug}/webhooks/test")
async def test_webhook(caller: Developer, control: Control, slug: Slug, body: HookBody) -> WebhookTest:
    """Sends a signed request to a webhook of a deployment, and returns the answer of the receiver.

    The body is `{"type": "test", "deployment": ..., "hook": ..., "timestamp": ...}`. The request takes 20 seconds at
    most, and is not repeated.
    """
    found = await control.webhooks.test(slug, body.hook, caller.actor)
    return WebhookTest(
        id=found.id,
        host=found.host,
        accepted=found.answer.accepted,
        status=found.answer.status,
        seconds=found.seconds,
        error=found.answer.error,
        answer=found.answer.text,
    )


@router.get("/deliveries")
async def list_deliveries(
    caller: Viewer, control: Control, query: Annotated[DeliveriesQuery, InQuery()]
) -> Page[DeliveryItem]:
    """Lists deliveries of webhooks, newest first.

    A page may have fewer items than the limit although more follow: `next_cursor` decides.
    """
    kickoff = parse_id(query.kickoff) if query.kickoff else None
    if query.deployment:
        await control.members.check("slug", query.deployment, caller.actor)
    deployment = (await control.management.get(query.deployment)).id if query.deployment else None
    if query.kickoff and kickoff is None:
        return Page(items=[], next_cursor=None)
    cursor, sees = id_cursor(query.cursor), caller.actor.sees
    wanted = DeliveryFilter(deployment, kickoff, query.state, cursor, sees=sees)
    page = await control.webhooks.deliveries(wanted, limit=query.limit)
    return Page(
        items=[answer_of(DeliveryItem, row) for row in page.rows], next_cursor=str(page.next) if page.next else None
    )


@router.get("/deliveries/{delivery_id}")
async def show_delivery(_: Viewer, control: Control, delivery_id: DeliveryId) -> DeliveryItem:
    """Returns a delivery with its attempts."""
    return answer_of(DeliveryItem, await control.webhooks.delivery(parse_id(delivery_id)))


@router.post("/deliveries/{delivery_id}/redeliver")
async def redeliver(caller: Developer, control: Control, delivery_id: DeliveryId) -> DeliveryItem:
    """Sends a delivery again as soon as possible, also one that was delivered. It switches its endpoint on.

    The id and the body are the same.
    """
    return answer_of(DeliveryItem, await control.webhooks.redeliver(parse_id(delivery_id), caller.actor))


def _webhooks(found: dict[Hook, SetWebhook]) -> WebhooksAnswer:
    members: dict[str, Any] = dict.fromkeys(MEMBER_OF.values())
    for hook, one in found.items():
        endpoint = one.endpoint
        facts = {
            "host": endpoint.host,
            "authentication": one.authentication,
            "state": endpoint.endpoint_state,
            "failures": endpoint.failures,
            "paused_until": endpoint.paused_until,
            "disabled_at": endpoint.disabled_at,
        }
        options = {"events": one.events, "realtime": one.realtime} if hook is Hook.EVENTS else {}
        members[MEMBER_OF[hook]] = {**facts, **options}
    return WebhooksAnswer.model_validate(members)
