"""Many kickoffs in one request. Each item is accepted or refused independently of the others."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from windlass.api.crew_api.kickoff_requests import KEY, new_kickoff, one_key
from windlass.api.errors import Problem, bad_request, problem_of, unexpected

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.api.bodies import Batch, Object
    from windlass.api.crew_api.kickoff_requests import KickoffRules
    from windlass.deployments.crews import Crew
    from windlass.lifecycle.accept import Acceptor
    from windlass.store.kickoffs import NewKickoff

MEMBER = "kickoffs"
AT_A_TIME = 20
"""Items that are checked before the event loop serves other requests."""

Answer = dict[str, Any]


async def accept_each(
    batch: Batch, key_in_header: str | None, crew: Crew, user: UUID | None, rules: KickoffRules, acceptor: Acceptor
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
        made.append(_made(item, place, key, crew, user, rules))
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
    item: Object, place: int, key: str | None, crew: Crew, user: UUID | None, rules: KickoffRules
) -> NewKickoff | Problem:
    if isinstance(item, Problem):
        return item
    derived = None if key is None or item.get("idempotencyKey") is not None else key_of_item(key, place)
    try:
        return new_kickoff(item, derived, crew, user, rules)
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
