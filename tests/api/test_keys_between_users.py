"""What a user hears of another user's kickoff that has the same concurrency key, and may do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin
from api.serving import GOOD

if TYPE_CHECKING:
    import httpx

    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def rejected(crew: Crew, token: str) -> httpx.Response:
    body = {"inputs": GOOD, "concurrencyKey": "a", "concurrencyStrategy": "reject"}
    answer = await crew.post(body, token=token)
    assert answer.status_code == 409
    return answer


async def test_a_user_cannot_end_anothers_run_by_its_key(crew: Crew) -> None:
    bob = await crew.token_of(f"bob of {crew.path}")
    await begin(crew, running := await crew.kickoff(token=crew.user_token, concurrencyKey="a"))
    superseding: dict[str, Any] = {"concurrencyKey": "a", "concurrencyStrategy": "cancel_running"}
    newer = await crew.kickoff(token=bob, **superseding)
    assert (await crew.row(running))["stop_requested_at"] is None
    assert (await crew.status(newer, token=bob))["waiting_for"]["code"] == "key"
    await crew.kickoff(**superseding)
    assert (await crew.row(running))["stop_requested_at"] is not None
    assert (await crew.status(newer, token=bob))["reason"] == "cancelled"


async def test_a_refusal_names_no_kickoff_that_the_token_may_not_see(crew: Crew) -> None:
    bob = await crew.token_of(f"bob of {crew.path}")
    first = await crew.kickoff(token=crew.user_token, concurrencyKey="a")
    strangers = await rejected(crew, bob)
    assert strangers.json()["details"] == {}
    assert strangers.json()["message"].startswith("Another kickoff has the same concurrencyKey")
    assert first not in strangers.text
    for token in (crew.token, crew.user_token):
        assert (await rejected(crew, token)).json()["details"] == {"kickoff_id": first}


async def test_a_refusal_does_not_name_the_organizations_kickoff_to_a_user(crew: Crew) -> None:
    first = await crew.kickoff(concurrencyKey="a")
    assert first not in (await rejected(crew, crew.user_token)).text


async def test_a_status_names_no_kickoff_that_the_token_may_not_see(crew: Crew) -> None:
    bob = await crew.token_of(f"bob of {crew.path}")
    await begin(crew, first := await crew.kickoff(token=crew.user_token, concurrencyKey="a"))
    own = await crew.kickoff(token=crew.user_token, concurrencyKey="a")
    strangers = await crew.kickoff(token=bob, concurrencyKey="a")
    told = [
        (await crew.status(kickoff, token=token))["waiting_for"]["message"]
        for kickoff, token in [(strangers, bob), (strangers, crew.token), (own, crew.user_token)]
    ]
    assert [first in message for message in told] == [False, True, True]
    assert told[0] == "its turn with the concurrencyKey 'a': another kickoff has the same and runs"
