"""Converts the body of a kickoff request to the rows that are stored.

A request may have many kickoffs. Each of them is accepted or refused independently of the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from windlass.api.crew_api.schemas import Key, KickoffRequest
from windlass.api.errors import Problem, bad_request, problem_of, unexpected
from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.inputs import LONGEST_NAME, MOST_UNKNOWN, Invalid, Missing
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.tasks import Warning_
from windlass.store.accepting import NewKickoff

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pydantic_core import ErrorDetails
    from starlette.datastructures import Headers
    from starlette.requests import Request

    from windlass.api.bodies import Batch, Object
    from windlass.deployments.crews import Crew
    from windlass.lifecycle.accept import Acceptor
    from windlass.store.audit import Actor
    from windlass.webhooks.endpoints import Endpoints


KEY = TypeAdapter(Key)
OF_ORIGINAL = {"restoreFromStateId", "trainingFilename", "inputFiles"}
"""Members of the API that clients of the original product send, and that this release does not act on."""
Model = TypeVar("Model", bound=BaseModel)
SIMILAR = "The crew names no input {}, although it may use it."
NO_OTHER_MEMBERS = KickoffRequest(inputs={})
MEMBER = "kickoffs"
AT_A_TIME = 20
"""Items that are checked before the event loop serves other requests."""
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KickoffRules:
    """Rules for accepting kickoffs. `endpoints` makes those of webhooks. `user_max_priority` and `user_max_ahead` limit
    kickoffs of user tokens.
    """

    endpoints: Endpoints
    user_max_priority: int = 0
    user_max_ahead: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Starter:
    """Who starts a kickoff. `user` is the user whom it belongs to, None for the organization."""

    user: UUID | None
    actor: Actor


def new_kickoff(
    body: dict[str, Any], key_in_header: str | None, crew: Crew, by: Starter, rules: KickoffRules
) -> NewKickoff:
    """Returns the row to store. Missing or null `inputs` count as {}, because some clients send null for no inputs.

    Raises Problem 400, or 422 with the names of all missing inputs.
    """
    body = body if body.get("inputs") is not None else {**body, "inputs": {}}
    _check_inputs(body["inputs"], crew)
    given = _members(body)
    if by.user:
        _check_bounds_of_users(given, rules)
    key = one_key(body.get("idempotencyKey"), key_in_header)
    webhooks = rules.endpoints.given(crew.deployment_id, body, crew.webhooks)
    return NewKickoff(
        id=new_id(),
        deployment_id=crew.deployment_id,
        version_id=crew.version_id,
        user_id=by.user,
        inputs=to_json(body["inputs"]),
        meta=None if body.get("meta") is None else to_json(body["meta"]),
        warnings=_warnings(_unknown_inputs(body["inputs"], crew), _ignored(body)),
        idempotency_key=key,
        request_digest=_digest(body) if key else None,
        priority=given.priority or 0,
        run_at=_still_ahead(given.runAt),
        concurrency_key=given.concurrencyKey,
        concurrency_strategy=given.concurrencyStrategy,
        limits=_limits(given),
        by=by.actor,
        webhooks=webhooks.webhooks,
        endpoints=webhooks.endpoints,
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


def _check_inputs(inputs: Any, crew: Crew) -> None:
    """Checks the inputs. It runs before all other checks, so that missing inputs are reported first."""
    if not isinstance(inputs, dict):
        raise bad_request('The member `inputs` is not an object: send {"inputs": {name: value, ...}}.')
    match crew.check(inputs):
        case Missing(names):
            said = [f"Required inputs are missing: {', '.join(names)}. GET /inputs describes them."]
            said += [one for one, similar in _unknown_inputs(inputs, crew) if similar in names]
            raise Problem(422, " ".join(said), {"missing_inputs": names})
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


def query_of(kind: type[Model], request: Request) -> Model:
    """Returns the query of the request as a model. Raises Problem 400 with the reason for each invalid parameter."""
    given = request.query_params
    repeated = sorted({name for name in given if len(given.getlist(name)) > 1})
    if repeated:
        raise bad_request(f"These parameters are given more than once: {', '.join(repeated)}.")
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        reasons = {_place(found): found["msg"] for found in error.errors(include_url=False, include_context=False)}
        known = ", ".join(kind.model_fields)
        message = f"These parameters are invalid: {', '.join(reasons)}. The parameters are: {known}."
        raise bad_request(message, invalid_parameters=reasons) from None


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


def _ignored(body: Mapping[str, Any]) -> list[str]:
    """Returns the members that have no effect, at most MOST_UNKNOWN of them."""
    if body.keys() <= KickoffRequest.model_fields.keys():
        return []
    named = (name for name, value in body.items() if value is not None and name not in KickoffRequest.model_fields)
    return list(islice(named, MOST_UNKNOWN))


def _warnings(unknown: list[tuple[str, str | None]], ignored: list[str]) -> str:
    if not unknown and not ignored:
        return "[]"
    found = [Warning_("unknown_input", message) for message, _ in unknown]
    found += [Warning_("ignored_member", _ignored_member(name)) for name in ignored]
    return to_json([one.to_json() for one in found])


def _ignored_member(name: str) -> str:
    if name in OF_ORIGINAL:
        return f"The member {name} of the request has no effect in this release."
    return f"The request has no member {_shown(name)}: its value is not used. Inputs belong in the member inputs."


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."


def _unknown_inputs(inputs: Mapping[str, Any], crew: Crew) -> list[tuple[str, str | None]]:
    """Returns a message for each input that the crew does not use, with the similar name that it contains."""
    words = "The crew has no input {}: its value is not used." if crew.check.others is False else SIMILAR
    return [
        (words.format(_shown(name)) + (f" Did you mean {similar}?" if similar else ""), similar)
        for name, similar in crew.check.unknown(dict(inputs)).items()
    ]


async def accept_each(
    batch: Batch, key_in_header: str | None, crew: Crew, by: Starter, rules: KickoffRules, acceptor: Acceptor
) -> list[Answer]:
    """Returns the answers in the order of the items. With an idempotency key for the whole batch, the same batch
    returns the same kickoffs.

    Raises Problem 400 if that key is malformed, or differs from the header.
    """
    key = _key_of_all(batch.members.get("idempotencyKey"), key_in_header)
    made: list[NewKickoff | Problem] = []
    for place, item in enumerate(batch.items):
        if place % AT_A_TIME == AT_A_TIME - 1:
            await asyncio.sleep(0)
        made.append(_made(item, place, key, crew, by, rules))
    return await asyncio.gather(*(_answer(one, crew, acceptor) for one in made))


def _key_of_all(member: object, in_header: str | None) -> str | None:
    if member is None:
        return in_header
    try:
        key = KEY.validate_python(member)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_context=False)[0]["msg"]
        raise bad_request(
            "These members are invalid: idempotencyKey.", invalid_members={"idempotencyKey": reason}
        ) from None
    return one_key(key, in_header)


def key_of_item(key: str, place: int) -> str:
    """Returns the idempotency key of one item. Its length is fixed, and no client uses such a key for one kickoff."""
    return f"batch:{hashlib.sha256(f'{place} {key}'.encode()).hexdigest()}"


def _made(
    item: Object, place: int, key: str | None, crew: Crew, by: Starter, rules: KickoffRules
) -> NewKickoff | Problem:
    if isinstance(item, Problem):
        return item
    derived = None if key is None or item.get("idempotencyKey") is not None else key_of_item(key, place)
    try:
        return new_kickoff(item, derived, crew, by, rules)
    except Exception as error:  # noqa: BLE001 - the error of one item must not affect the others
        return _problem(error, crew)


async def _answer(made: NewKickoff | Problem, crew: Crew, acceptor: Acceptor) -> Answer:
    if isinstance(made, Problem):
        return _refused(made)
    try:
        return {"kickoff_id": str(await acceptor.accept(made))}
    except Exception as error:  # noqa: BLE001 - as above
        return _refused(_problem(error, crew))


def _refused(problem: Problem) -> Answer:
    seconds = problem.headers.get("Retry-After")
    retry_after = {} if seconds is None else {"retry_after": int(seconds)}
    return {"error": {"status": problem.status, **problem.body(), **retry_after}}


def _problem(error: Exception, crew: Crew) -> Problem:
    return problem_of(error) or unexpected(error, "POST", f"/crews/{crew.slug}/{MEMBER}")
