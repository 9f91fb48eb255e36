"""From a request's body to the row that is accepted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from windlass.api.problems import Problem, bad_request
from windlass.api.schemas import UNACTED, Key, KickoffRequest
from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.inputs import Invalid, Missing
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.tasks import Warning_
from windlass.store.kickoffs import NewKickoff

if TYPE_CHECKING:
    from uuid import UUID

    from pydantic_core import ErrorDetails
    from starlette.datastructures import Headers

    from windlass.lifecycle.crews import Crew

Seal = Callable[[str, str], str]
KEY = TypeAdapter(Key)
WITHOUT_EFFECT = {
    "webhooks_not_delivered": "Webhooks are stored, and not called by this release. Poll the status.",
}
NOTHING_GIVEN = KickoffRequest(inputs={})


def new_kickoff(
    body: dict[str, Any], key_in_header: str | None, crew: Crew, user: UUID | None, seal: Seal
) -> NewKickoff:
    """Raises Problem: 400, or 422 with every missing input."""
    _check_inputs(body, crew)
    given = _members(body)
    key = one_key(body.get("idempotencyKey"), key_in_header)
    kickoff = new_id()
    unacted = {name: body[name] for name in UNACTED if body.get(name) is not None}
    return NewKickoff(
        id=kickoff,
        deployment_id=crew.deployment_id,
        version_id=crew.version_id,
        user_id=user,
        inputs=to_json(body["inputs"]),
        meta=None if body.get("meta") is None else to_json(body["meta"]),
        # Webhooks bring credentials.
        unacted=to_json(seal(to_json(unacted), f"kickoffs.unacted:{kickoff}")) if unacted else None,
        warnings=_warnings(unacted) if unacted else "[]",
        idempotency_key=key,
        request_digest=_digest(body) if key else None,
        priority=given.priority or 0,
        run_at=_still_ahead(given.runAt),
        concurrency_key=given.concurrencyKey,
        concurrency_strategy=given.concurrencyStrategy,
        limits=_limits(given),
    )


def _still_ahead(at: datetime | None) -> datetime | None:
    return at if at and at > datetime.now(UTC) else None


def _limits(given: KickoffRequest) -> str | None:
    if given.limits is None and given.timeout is None:
        return None
    limits = (given.limits or Limits()).lowered_by(Limits(timeout=given.timeout))
    return to_json(limits.to_json()) if limits != Limits() else None


def _check_inputs(body: dict[str, Any], crew: Crew) -> None:
    """Missing inputs are told before anything else is looked at."""
    inputs = body.get("inputs")
    if not isinstance(inputs, dict):
        state = "is missing" if "inputs" not in body else "is no object"
        raise bad_request(f'The member `inputs` {state}: send {{"inputs": {{name: value, ...}}}}.')
    match crew.check(inputs):
        case Missing(names):
            listed = ", ".join(names)
            raise Problem(
                422, f"Required inputs are missing: {listed}. GET /inputs describes them.", {"missing_inputs": names}
            )
        case Invalid(reasons):
            raise bad_request("Some inputs break the crew's schema. GET /inputs describes it.", invalid_inputs=reasons)


def _members(body: dict[str, Any]) -> KickoffRequest:
    if len(body) == 1:
        return NOTHING_GIVEN
    try:
        return KickoffRequest.model_validate(body)
    except ValidationError as error:
        reasons = {_place(found): found["msg"] for found in error.errors(include_url=False, include_context=False)}
        raise bad_request(f"These members have a wrong form: {', '.join(reasons)}.", invalid_members=reasons) from None


def _place(found: ErrorDetails) -> str:
    return ".".join(str(step) for step in found["loc"])


def key_in(headers: Headers) -> str | None:
    """The header `Idempotency-Key`. Raises Problem 400 when several differ, or it has a wrong form."""
    given = set(headers.getlist("idempotency-key"))
    if not given:
        return None
    try:
        (key,) = given
        return KEY.validate_python(_utf8(key))
    except ValueError:
        raise bad_request("The header `Idempotency-Key` must stand once, with 1 to 255 characters.") from None


def _utf8(header: str) -> str:
    """Headers are read as Latin-1; clients that send more than ASCII mean UTF-8."""
    return header if header.isascii() else header.encode("latin-1").decode("utf-8")


def one_key(in_body: str | None, in_header: str | None) -> str | None:
    """Raises Problem 400 for two that differ."""
    if in_header is None:
        return in_body
    if in_body is not None and in_body != in_header:
        raise bad_request("The header `Idempotency-Key` and the member `idempotencyKey` differ: send one of them.")
    return in_header


def _digest(body: Mapping[str, Any]) -> bytes:
    """The same for the same request, in whatever order its members come and wherever its key stands."""
    request = {name: value for name, value in body.items() if name != "idempotencyKey"}
    return hashlib.sha256(json.dumps(request, sort_keys=True, separators=(",", ":")).encode()).digest()


def _warnings(unacted: Mapping[str, Any]) -> str:
    codes = dict.fromkeys(UNACTED[name] for name in unacted)
    return to_json([Warning_(code, WITHOUT_EFFECT[code]).to_json() for code in codes])
