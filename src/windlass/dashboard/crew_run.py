"""The page that starts a kickoff: a form from the schema of the crew's inputs, and the same call as a command."""

# See docs/decisions/dashboard.md#a-forms-kickoff-has-an-idempotency-key

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windlass.api.crew_api.kickoff_requests import Starter, new_kickoff
from windlass.api.errors import Problem, no_such_crew, no_such_kickoff, problem_of
from windlass.dashboard.call_examples import kickoff_command
from windlass.dashboard.crew_frame import crew_page
from windlass.dashboard.crew_status import base_url_of
from windlass.dashboard.input_form import MOST_FIELDS, InputField, Typed, described_inputs, json_value, texts_of, typed
from windlass.dashboard.output import indented
from windlass.dashboard.routes import Routes
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.webhooks import replaced
from windlass.rights import Role, Scope

if TYPE_CHECKING:
    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.deployments.crews import Crew
    from windlass.store.executions import OwnWebhook
    from windlass.store.overview import DeploymentRow

ROUTES = Routes()
RECENT = 5
"""Kickoffs whose inputs can be taken again."""
AS_JSON, AS_FIELDS = "json", "fields"
WHOLE = "inputs_json"
"""The field that holds all inputs as JSON."""
WITH_WEBHOOKS = "with_webhooks"
"""The field of the choice to call the webhooks of the kickoff that is run again."""
LONGEST_ONCE = 64


@dataclass(frozen=True, slots=True)
class Form:
    """What the form shows. In the mode AS_JSON, `text` holds all inputs, and errors stand under the name WHOLE."""

    mode: str
    fields: list[InputField]
    typed: Typed
    text: str = ""


@ROUTES.get("/crews/{slug}/run", Role.VIEWER)
async def show(visit: Visit) -> Response:
    row, crew = await _crew(visit)
    if crew is None:
        return await crew_page(visit, "crew_run.html", "Run", crew=row, form=None)
    fields = described_inputs(crew.manifest.inputs_schema)
    initial = {field.name: field.initial for field in fields}
    form = Form(AS_FIELDS, fields, typed(fields, {field.key: initial[field.name] for field in fields}))
    if taken := visit.query.get("from"):
        kickoff = parse_id(taken)
        inputs = await visit.dashboard.control.overview.inputs(kickoff, row.id) if kickoff else None
        if inputs is None:
            raise no_such_kickoff()
        form = _filled(fields, inputs)
    elif len(fields) > MOST_FIELDS:
        form = _filled(fields, form.typed.inputs)
    return await _page(visit, row, form)


@ROUTES.post("/crews/{slug}/run", Role.DEVELOPER)
async def run(visit: Visit) -> Response:
    """Starts a kickoff. The same form sent twice starts one."""
    row, crew = await _crew(visit)
    if crew is None:
        raise no_such_crew(row.slug)
    form = _sent(visit, crew)
    if form.typed.errors:
        return await _page(visit, row, form, 400)
    api = visit.dashboard.crew_api
    try:
        api.rates.take(crew.deployment_id, crew.rate_limit, visit.person.session)
        body = {"inputs": form.typed.inputs}
        copied = await _own_webhooks(visit, row) if visit.field(WITH_WEBHOOKS) else []
        key = _key(visit, {**body, "webhooks": sorted(str(one.webhook.endpoint) for one in copied)})
        new = new_kickoff(body, key, crew, Starter(None, visit.actor), api.rules)
        webhooks = replaced(new.webhooks, [one.webhook for one in copied])
        kickoff = await api.acceptor.accept(replace(new, webhooks=webhooks))
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        return await _refused(visit, row, form, problem)
    return visit.redirect(f"/ui/crews/{row.slug}/executions/{kickoff}")


@ROUTES.post("/crews/{slug}/run/preview", Role.DEVELOPER)
async def preview(visit: Visit) -> Response:
    """Returns the page with what was typed: the call that it makes, or the form in its other mode (`switch`)."""
    row, crew = await _crew(visit)
    if crew is None:
        raise no_such_crew(row.slug)
    form, wanted = _sent(visit, crew), visit.field("switch")
    if wanted == AS_JSON and form.mode != AS_JSON and not form.typed.errors:
        form = Form(AS_JSON, form.fields, form.typed, indented(form.typed.inputs))
    elif wanted == AS_FIELDS and form.mode != AS_FIELDS and not form.typed.errors:
        form = _filled(form.fields, form.typed.inputs)
        if form.mode == AS_JSON:
            why = "The fields can't hold these inputs: some are not in the crew's schema, or have another type."
            form.typed.errors[WHOLE] = why
    return await _page(visit, row, form)


@ROUTES.get("/crews/{slug}/run/preview", Role.VIEWER)
async def after_preview(visit: Visit) -> Response:
    """Leads to the form, which viewers see too."""
    return visit.redirect(f"/ui/crews/{visit.path['slug']}/run")


async def _crew(visit: Visit) -> tuple[DeploymentRow, Crew | None]:
    """Returns the deployment, and what its kickoffs need, None before its first version."""
    row = await visit.dashboard.control.management.show(visit.path["slug"])
    return row, await visit.dashboard.crew_api.crews.get(row.slug)


async def _own_webhooks(visit: Visit, row: DeploymentRow) -> list[OwnWebhook]:
    """Returns the webhooks of the kickoff that the form began with. The choice to call them is the person's: their
    receivers may not expect another kickoff.
    """
    kickoff = parse_id(visit.query.get("from") or visit.field("from"))
    store = visit.dashboard.control.overview
    if kickoff is None or await store.inputs(kickoff, row.id) is None:
        return []
    return await store.executions.own_webhooks([kickoff])


def _filled(fields: list[InputField], inputs: dict[str, Any]) -> Form:
    """Returns the form with these inputs, as JSON if the fields can't hold them."""
    texts = texts_of(fields, inputs) if len(fields) <= MOST_FIELDS else None
    if texts is None:
        return Form(AS_JSON, fields, Typed({}, inputs, {}), indented(inputs))
    return Form(AS_FIELDS, fields, Typed(texts, inputs, {}))


def _sent(visit: Visit, crew: Crew) -> Form:
    fields = described_inputs(crew.manifest.inputs_schema)
    if visit.field("as") != AS_JSON:
        return Form(AS_FIELDS, fields, typed(fields, visit.fields))
    text = visit.field(WHOLE).replace("\r\n", "\n")
    try:
        inputs = json_value(text) if text.strip() else {}
        why = None if isinstance(inputs, dict) else 'The inputs are an object, such as {"topic": "tides"}.'
    except ValueError as error:
        inputs, why = {}, str(error)
    return Form(AS_JSON, fields, Typed({}, inputs if why is None else {}, {WHOLE: why} if why else {}), text)


def _key(visit: Visit, body: dict[str, Any]) -> str:
    """Returns the idempotency key. Other inputs in the same form are another kickoff."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    once = visit.field("once").replace("\0", "")[:LONGEST_ONCE] or secrets.token_hex(16)
    return f"dashboard:{visit.person.session}:{once}:{digest}"


async def _refused(visit: Visit, row: DeploymentRow, form: Form, problem: Problem) -> Response:
    """Returns the form with the errors of the schema check at their fields, and any other error above them."""
    missing = dict.fromkeys(problem.details.get("missing_inputs", ()), "This input is required.")
    errors = {**missing, **problem.details.get("invalid_inputs", {})}
    if form.mode == AS_JSON and errors:
        errors = {WHOLE: "; ".join(f"{name}: {why}" for name, why in errors.items())}
    form.typed.errors.update(errors)
    page = await _page(visit, row, form, problem.status, error=None if errors else problem)
    page.headers.update(problem.headers)
    return page


async def _page(
    visit: Visit, row: DeploymentRow, form: Form, status: int = 200, error: Problem | None = None
) -> Response:
    recent = await visit.dashboard.control.overview.newest_inputs(row.id, limit=RECENT)
    return await crew_page(
        visit,
        "crew_run.html",
        "Run",
        status,
        crew=row,
        form=form,
        error=error,
        recent=recent,
        taken=visit.query.get("from") or visit.field("from"),
        receivers=list(dict.fromkeys(one.host for one in await _own_webhooks(visit, row))),
        with_webhooks=bool(visit.field(WITH_WEBHOOKS)),
        may_run=visit.allows(Scope.RUN),
        once=visit.field("once")[:LONGEST_ONCE] or secrets.token_hex(16),
        command=kickoff_command(base_url_of(visit, row.slug), form.typed.inputs),
    )
