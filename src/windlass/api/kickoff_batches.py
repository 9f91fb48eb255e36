"""Many kickoffs in one request: each is accepted or refused by itself."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from windlass.api.kickoff_requests import new_kickoff
from windlass.api.problems import Problem, problem_of, unexpected

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.api.bodies import Object
    from windlass.api.kickoff_requests import Seal
    from windlass.lifecycle.accept import Acceptor
    from windlass.lifecycle.crews import Crew
    from windlass.store.kickoffs import NewKickoff

MEMBER = "kickoffs"
AT_A_TIME = 20
"""Items that are checked before other requests have their turn."""

Answer = dict[str, Any]


async def accept_each(
    items: Sequence[Object], key: str | None, crew: Crew, user: UUID | None, seal: Seal, acceptor: Acceptor
) -> list[Answer]:
    """The answers, in the order of the items. `key` is the whole batch's: with it, the same batch gives the same
    kickoffs.
    """
    made: list[NewKickoff | Problem] = []
    for place, item in enumerate(items):
        if place % AT_A_TIME == AT_A_TIME - 1:
            await asyncio.sleep(0)
        made.append(_made(item, place, key, crew, user, seal))
    return await asyncio.gather(*(_answer(one, crew, acceptor) for one in made))


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
