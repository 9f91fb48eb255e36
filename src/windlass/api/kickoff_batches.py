"""Many kickoffs in one request: each is accepted or refused by itself."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from windlass.api.kickoff_requests import KEY, new_kickoff, one_key
from windlass.api.problems import Problem, bad_request, problem_of, unexpected

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.api.bodies import Batch, Object
    from windlass.api.kickoff_requests import Seal
    from windlass.lifecycle.accept import Acceptor
    from windlass.lifecycle.crews import Crew
    from windlass.store.kickoffs import NewKickoff

MEMBER = "kickoffs"
AT_A_TIME = 20
"""Items that are checked before other requests have their turn."""

Answer = dict[str, Any]


async def accept_each(
    batch: Batch, key_in_header: str | None, crew: Crew, user: UUID | None, seal: Seal, acceptor: Acceptor
) -> list[Answer]:
    """The answers, in the order of the items. With a key of the whole batch, the same batch gives the same kickoffs.

    Raises Problem 400 when that key has a wrong form, or is not the header's.
    """
    key = _key_of_all(batch.members.get("idempotencyKey"), key_in_header)
    made: list[NewKickoff | Problem] = []
    for place, item in enumerate(batch.items):
        if place % AT_A_TIME == AT_A_TIME - 1:
            await asyncio.sleep(0)
        made.append(_made(item, place, key, crew, user, seal))
    return await asyncio.gather(*(_answer(one, crew, acceptor) for one in made))


def _key_of_all(member: object, in_header: str | None) -> str | None:
    if member is None:
        return in_header
    try:
        key = KEY.validate_python(member)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_context=False)[0]["msg"]
        raise bad_request(
            "These members have a wrong form: idempotencyKey.", invalid_members={"idempotencyKey": reason}
        ) from None
    return one_key(key, in_header)


def key_of_item(key: str, place: int) -> str:
    """Within the length of a key however long the batch's is, and none that anybody gives to a single kickoff."""
    return f"batch:{hashlib.sha256(f'{place} {key}'.encode()).hexdigest()}"


def _made(item: Object, place: int, key: str | None, crew: Crew, user: UUID | None, seal: Seal) -> NewKickoff | Problem:
    if isinstance(item, Problem):
        return item
    derived = None if key is None or item.get("idempotencyKey") is not None else key_of_item(key, place)
    try:
        return new_kickoff(item, derived, crew, user, seal)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an item is answered, and spoils no other
        return _problem(error, crew)


async def _answer(made: NewKickoff | Problem, crew: Crew, acceptor: Acceptor) -> Answer:
    if isinstance(made, Problem):
        return _refused(made)
    try:
        return {"kickoff_id": str(await acceptor.accept(made))}
    except Exception as error:  # noqa: BLE001 - as above
        return _refused(_problem(error, crew))


def _refused(problem: Problem) -> Answer:
    again = problem.headers.get("Retry-After")
    later = {} if again is None else {"retry_after": int(again)}
    return {"error": {"status": problem.status, **problem.body(), **later}}


def _problem(error: Exception, crew: Crew) -> Problem:
    return problem_of(error) or unexpected(error, "POST", f"/crews/{crew.slug}/{MEMBER}")
