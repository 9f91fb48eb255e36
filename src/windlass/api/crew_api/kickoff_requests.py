"""Converts the body of a kickoff request to the row that is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from windlass.api.crew_api.schemas import UNACTED, Key, KickoffRequest
from windlass.api.errors import Problem, bad_request
from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.inputs import Invalid, Missing
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.tasks import Warning_
from windlass.secrets.key_ring import Sealed
from windlass.store.kickoffs import NewKickoff

if TYPE_CHECKING:
    from uuid import UUID

    from pydantic_core import ErrorDetails
    from starlette.datastructures import Headers

    from windlass.deployments.crews import Crew

Seal = Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class KickoffRules:
    """Rules for accepting kickoffs. `seal` encrypts credentials. `user_max_priority` and `user_max_ahead` limit
    kickoffs of user tokens.
    """

    seal: Seal
    user_max_priority: int = 0
    user_max_ahead: timedelta = timedelta(days=7)


KEY = TypeAdapter(Key)
WITHOUT_EFFECT = {
    "webhooks_not_delivered": "Webhooks are stored, but this release does not call them. Poll the status.",
}
Model = TypeVar("Model", bound=BaseModel)
NO_OTHER_MEMBERS = KickoffRequest(inputs={})


def new_kickoff(
    body: dict[str, Any], key_in_header: str | None, crew: Crew, user: UUID | None, rules: KickoffRules
) -> NewKickoff:
    """Returns the row to store. Raises Problem 400, or 422 with the names of all missing inputs."""
    _check_inputs(body, crew)
    given = _members(body)
    if user:
        _check_bounds_of_users(given, rules)
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
        # Webhooks contain credentials.
        unacted=to_json(rules.seal(to_json(unacted), Sealed.UNACTED_MEMBERS.of(kickoff))) if unacted else None,
        warnings=_warnings(unacted) if unacted else "[]",
        idempotency_key=key,
        request_digest=_digest(body) if key else None,
        priority=given.priority or 0,
        run_at=_still_ahead(given.runAt),
        concurrency_key=given.concurrencyKey,
        concurrency_strategy=given.concurrencyStrategy,
        limits=_limits(given),
    )


def _check_bounds_of_users(given: KickoffRequest, rules: KickoffRules) -> None:
    reasons = {}
    if given.priority and given.priority > rules.user_max_priority:
        reasons["priority"] = f"Input should be at most {rules.user_max_priority} with a user token"
    if given.runAt and given.runAt > datetime.now(UTC) + rules.user_max_ahead:
        days = rules.user_max_ahead / timedelta(days=1)
        reasons["runAt"] = f"Input should be at most {days:g} days ahead with a user token"
    if reasons:
        raise bad_request(f"Out of bounds for a user token: {', '.join(reasons)}.", invalid_members=reasons)


def _still_ahead(at: datetime | None) -> datetime | None:
    return at if at and at > datetime.now(UTC) else None


def _limits(given: KickoffRequest) -> str | None:
    if given.limits is None and given.timeout is None:
        return None
    limits = (given.limits or Limits()).lowered_by(Limits(timeout=given.timeout))
    return to_json(limits.to_json()) if limits != Limits() else None


def _check_inputs(body: dict[str, Any], crew: Crew) -> None:
    """Checks the inputs. It runs before all other checks, so that missing inputs are reported first."""
    inputs = body.get("inputs")
    if not isinstance(inputs, dict):
        state = "is missing" if "inputs" not in body else "is not an object"
        raise bad_request(f'The member `inputs` {state}: send {{"inputs": {{name: value, ...}}}}.')
    match crew.check(inputs):
        case Missing(names):
            listed = ", ".join(names)
            raise Problem(
                422, f"Required inputs are missing: {listed}. GET /inputs describes them.", {"missing_inputs": names}
            )
        case Invalid(reasons):
            raise bad_request("Some inputs do not match the crew's schema: see GET /inputs.", invalid_inputs=reasons)


def _members(body: dict[str, Any]) -> KickoffRequest:
    return NO_OTHER_MEMBERS if len(body) == 1 else members_of(KickoffRequest, body)


def members_of(kind: type[Model], body: Mapping[str, Any]) -> Model:
    """Returns the body as a model. Raises Problem 400 with the reason for each invalid member."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        reasons = {_place(found): found["msg"] for found in error.errors(include_url=False, include_context=False)}
        raise bad_request(f"These members are invalid: {', '.join(reasons)}.", invalid_members=reasons) from None


def _place(found: ErrorDetails) -> str:
    return ".".join(str(step) for step in found["loc"])


def key_in(headers: Headers) -> str | None:
    """Returns the header `Idempotency-Key`. Raises Problem 400 if several values differ, or the value is malformed."""
    given = set(headers.getlist("idempotency-key"))
    if not given:
        return None
    try:
        (key,) = given
        return KEY.validate_python(_utf8(key))
    except ValueError:
        raise bad_request("The header `Idempotency-Key` must have one value of 1 to 255 characters.") from None


def _utf8(header: str) -> str:
    """Decodes a header as UTF-8, because clients use UTF-8 for more than ASCII. The server decoded it as Latin-1."""
    return header if header.isascii() else header.encode("latin-1").decode("utf-8")


def one_key(in_body: str | None, in_header: str | None) -> str | None:
    """Returns the key of body or header. Raises Problem 400 if both exist and differ."""
    if in_header is None:
        return in_body
    if in_body is not None and in_body != in_header:
        raise bad_request("The header `Idempotency-Key` and the member `idempotencyKey` differ: send one of them.")
    return in_header


def _digest(body: Mapping[str, Any]) -> bytes:
    """Returns a digest of the request. It depends neither on the order of the members nor on the place of the key."""
    request = {name: value for name, value in body.items() if name != "idempotencyKey"}
    return hashlib.sha256(json.dumps(request, sort_keys=True, separators=(",", ":")).encode()).digest()


def _warnings(unacted: Mapping[str, Any]) -> str:
    codes = dict.fromkeys(UNACTED[name] for name in unacted)
    return to_json([Warning_(code, WITHOUT_EFFECT[code]).to_json() for code in codes])
