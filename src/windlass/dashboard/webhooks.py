"""The webhooks of a crew: where they are sent, the secret that signs them, and what was delivered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from windlass.api.control_api.webhooks import WebhooksBody
from windlass.dashboard.crew_frame import crew_of, crew_page
from windlass.dashboard.executions import short_id
from windlass.dashboard.routes import HEADERS, Routes, one_line, several_lines
from windlass.errors import WindlassError
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.webhooks import EVERY, Hook
from windlass.rights import Role
from windlass.store.webhooks import DeliveryFilter
from windlass.webhooks.endpoints import MEMBER_OF, MEMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.deployments.webhooks import SetWebhook, Tested
    from windlass.secrets.secret import Secret
    from windlass.store.webhooks import Delivery

ROUTES = Routes()
PATH = "/crews/{slug}/webhooks"
NOT_STORED = {"Cache-Control": "no-store"}
BAD, NOT_FOUND, PAGE = 400, 404, 30
LONGEST_URL = 8192
HOOKS: dict[Hook, tuple[str, str]] = {
    Hook.CREW: ("End of an execution", "At success, failure, stop and every other end."),
    Hook.TASK: ("Each task", "After each completed task, with its output."),
    Hook.STEP: ("Each step", "After each tool call, and after the answer of an agent."),
    Hook.EVENTS: ("Events", "The events of the run, in batches or one by one."),
    Hook.HUMAN_INPUT: ("Question to a person", "When an execution waits for a person."),
}
"""What the pages call the hooks, and when they are called."""
STATES = {"waiting": ("waiting", "Waiting"), "delivered": ("succeeded", "Delivered"), "failed": ("failed", "Failed")}
"""The look and the word of the state of a delivery."""
ENDPOINTS = {
    "active": ("online", "Active"),
    "failing": ("waiting", "Failing"),
    "paused": ("paused", "Paused"),
    "off": ("failed", "Switched off"),
}
FIELDS = {"url": "Address", "events": "Types of events", "authentication": "Credentials"}


class BadWebhook(WindlassError):  # noqa: N818 - describes the webhook
    """Reports a field of the form that can't be right. The message never quotes a value."""


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery on a page. `look` and `word` are those of its state. `attempts` are the newest first."""

    delivery: Delivery
    look: str
    word: str
    hook: str
    attempts: list[dict[str, Any]]

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryRow:
        attempts = [{**one, "at": datetime.fromisoformat(one["at"])} for one in reversed(delivery.attempts)]
        return cls(delivery, *STATES[delivery.state], HOOKS[Hook(delivery.hook)][0], attempts)


@ROUTES.get(PATH, Role.VIEWER)
async def show(visit: Visit) -> Response:
    return await _page(visit)


@ROUTES.get(f"{PATH}/deliveries", Role.VIEWER)
async def show_deliveries(visit: Visit) -> Response:
    crew = await crew_of(visit)
    state = visit.query.get("state", "")
    state = state if state in STATES else ""
    context = await deliveries_of(visit, DeliveryFilter(deployment=crew.id, state=state or None))
    states = [(name, word) for name, (_, word) in STATES.items()]
    return await crew_page(visit, "deliveries.html", "Webhooks", crew=crew, state=state, states=states, **context)


async def deliveries_of(visit: Visit, wanted: DeliveryFilter) -> dict[str, Any]:
    """Returns what a page with a list of deliveries shows. The query has the id before which it begins."""
    before = parse_id(visit.query.get("before", ""))
    wanted = DeliveryFilter(wanted.deployment, wanted.kickoff, wanted.state, before)
    page = await visit.dashboard.control.webhooks.deliveries(wanted, limit=PAGE)
    return {
        "deliveries": [DeliveryRow.of(row) for row in page.rows],
        "following": page.next,
        "before": before,
        "short_id": short_id,
        "endpoint_states": ENDPOINTS,
    }


@ROUTES.post("/deliveries/{delivery}/again", Role.DEVELOPER)
async def redeliver(visit: Visit) -> Response:
    found = await visit.dashboard.control.webhooks.redeliver(parse_id(visit.path["delivery"]), visit.actor)
    path = f"/ui/crews/{found.deployment}/webhooks/deliveries"
    if visit.field("back") == "execution":
        path = f"/ui/crews/{found.deployment}/executions/{found.kickoff_id}?tab=webhooks"
    return visit.redirect(path, notice=f"The delivery {short_id(found.id)} is sent again.")


@ROUTES.get(f"{PATH}/set/{{hook}}", Role.DEVELOPER)
async def show_form(visit: Visit) -> Response:
    return await _form(visit, _hook(visit))


@ROUTES.post(f"{PATH}/set/{{hook}}", Role.DEVELOPER)
async def change(visit: Visit) -> Response:
    hook = _hook(visit)
    try:
        body = _checked(hook, _sent(visit, hook))
    except BadWebhook as error:
        return await _form(visit, hook, error)
    await visit.dashboard.control.webhooks.change(visit.path["slug"], body, visit.actor)
    return visit.redirect(_path(visit), notice=f"{HOOKS[hook][0]}: the webhook is set. The next kickoff has it.")


@ROUTES.post(f"{PATH}/set/{{hook}}/remove", Role.DEVELOPER)
async def remove(visit: Visit) -> Response:
    hook = _hook(visit)
    await visit.dashboard.control.webhooks.change(visit.path["slug"], {MEMBER_OF[hook]: None}, visit.actor)
    return visit.redirect(_path(visit), notice=f"{HOOKS[hook][0]}: the webhook is removed, from the next kickoff on.")


@ROUTES.post(f"{PATH}/set/{{hook}}/test", Role.DEVELOPER, back=f"/ui{PATH}")
async def test(visit: Visit) -> Response:
    hook = _hook(visit)
    found = await visit.dashboard.control.webhooks.test(visit.path["slug"], hook, visit.actor)
    return await _page(visit, tested=(HOOKS[hook][0], found))


@ROUTES.post(f"{PATH}/secret/show", Role.DEVELOPER, back=f"/ui{PATH}")
async def show_secret(visit: Visit) -> Response:
    """Returns the secret, as JSON for a script. A form without one gets the page with the secret in it."""
    secret = await visit.dashboard.control.webhooks.secret(visit.path["slug"], visit.actor)
    if visit.request.headers.get("accept") == "application/json":
        return JSONResponse({"token": secret.reveal()}, headers={**HEADERS, **NOT_STORED})
    page = await _page(visit, secret=secret)
    page.headers.update(NOT_STORED)
    return page


@ROUTES.post(f"{PATH}/secret/rotate", Role.DEVELOPER)
async def rotate_secret(visit: Visit) -> Response:
    await visit.dashboard.control.webhooks.rotate_secret(visit.path["slug"], visit.actor)
    notice = "The signing secret is rotated. Give the new one to your receivers within 24 hours."
    return visit.redirect(_path(visit), notice=notice)


def _hook(visit: Visit) -> Hook:
    if visit.path["hook"] not in list(Hook):
        raise HTTPException(NOT_FOUND)
    return Hook(visit.path["hook"])


def _path(visit: Visit) -> str:
    return f"/ui/crews/{visit.path['slug']}/webhooks"


async def _page(visit: Visit, secret: Secret | None = None, tested: tuple[str, Tested] | None = None) -> Response:
    found = await visit.dashboard.control.webhooks.of(visit.path["slug"])
    rows = [(hook, title, about, found.get(hook)) for hook, (title, about) in HOOKS.items()]
    return await crew_page(
        visit,
        "webhooks.html",
        "Webhooks",
        rows=rows,
        secret=secret,
        tested=tested,
        endpoint_states=ENDPOINTS,
        every=EVERY,
    )


async def _form(visit: Visit, hook: Hook, error: BadWebhook | None = None) -> Response:
    before: SetWebhook | None = (await visit.dashboard.control.webhooks.of(visit.path["slug"])).get(hook)
    types = [] if before is None or EVERY in before.events else before.events
    context: dict[str, Any] = {
        "hook": hook,
        "title": HOOKS[hook][0],
        "about": HOOKS[hook][1],
        "before": before,
        "error": error,
        "types": several_lines(visit.field("types")) if error else "\n".join(types),
        "realtime": visit.field("realtime") == "on" if error else bool(before and before.realtime),
        "strategy": visit.field("strategy") if error else (before and before.authentication) or "",
        "username": one_line(visit.field("username")),
        "has_credentials": hook not in MEMBERS,
    }
    return await crew_page(visit, "webhook.html", "Webhooks", BAD if error else 200, **context)


def _sent(visit: Visit, hook: Hook) -> dict[str, Any]:
    """Returns the webhook of the form, as a kickoff has it."""
    options: dict[str, Any] = {"url": one_line(visit.field("url"), LONGEST_URL)}
    secret = one_line(visit.field("secret"), LONGEST_URL)
    if hook not in MEMBERS and visit.field("strategy") == "bearer":
        options["authentication"] = {"strategy": "bearer", "token": secret}
    elif hook not in MEMBERS and visit.field("strategy") == "basic":
        username = one_line(visit.field("username"))
        options["authentication"] = {"strategy": "basic", "username": username, "password": secret}
    if hook is Hook.EVENTS:
        options["events"] = several_lines(visit.field("types")).replace(",", " ").split() or [EVERY]
        options["realtime"] = visit.field("realtime") == "on"
    return options


def _checked(hook: Hook, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the body of a change. Raises BadWebhook."""
    if "authentication" in options and not all(options["authentication"].values()):
        raise BadWebhook("The credentials are not complete.", "Give the token, or the user and the password.")
    body = {MEMBER_OF[hook]: options["url"] if hook in MEMBERS else options}
    try:
        WebhooksBody.model_validate(body)
    except ValidationError as error:
        raise BadWebhook(_reason(error.errors())) from None
    return body


def _reason(errors: Iterable[Any]) -> str:
    first = next(iter(errors))
    field = next((FIELDS[part] for part in first["loc"] if part in FIELDS), FIELDS["url"])
    return f"{field}: {str(first['msg']).removeprefix('Value error, ')}."
