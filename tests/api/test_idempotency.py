from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from api.serving import GOOD, serving

if TYPE_CHECKING:
    import httpx

    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

BODY = {"inputs": GOOD, "meta": {"order": 7}}


async def ids(*asked: Any) -> list[str]:
    """Of kickoffs that are asked for at the same instant."""
    answers: list[httpx.Response] = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json()["kickoff_id"] for answer in answers]


async def number_of_kickoffs(crew: Crew) -> int:
    query = "SELECT count(*) AS number FROM kickoffs WHERE deployment_id = %(id)s"
    row = await crew.server.database.row(query, {"id": crew.deployment.id})
    assert row is not None
    return int(row["number"])


async def pass_time(crew: Crew, hours: str) -> None:
    older = "UPDATE idempotency_keys SET expires_at = expires_at - %(hours)s::interval WHERE deployment_id = %(id)s"
    await crew.server.database.execute(older, {"hours": hours, "id": crew.deployment.id})


def with_key(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


async def test_the_same_key_gives_the_same_kickoff_wherever_it_stands(crew: Crew) -> None:
    first = await crew.post({**BODY, "idempotencyKey": "a"})
    second = await crew.post({**BODY, "idempotencyKey": "a"})
    in_header = await crew.post(BODY, headers=with_key("a"))
    in_both = await crew.post({**BODY, "idempotencyKey": "a"}, headers=with_key("a"))
    assert {answer.json()["kickoff_id"] for answer in (first, second, in_header, in_both)} == {
        first.json()["kickoff_id"]
    }
    assert await number_of_kickoffs(crew) == 1


async def test_another_key_and_no_key_give_another_kickoff(crew: Crew) -> None:
    found = await ids(
        crew.post(BODY, headers=with_key("a")), crew.post(BODY, headers=with_key("b")), crew.post(BODY), crew.post(BODY)
    )
    assert len(set(found)) == 4


async def test_twenty_at_the_same_instant_are_one_kickoff(crew: Crew) -> None:
    found = await ids(*(crew.post(BODY, headers=with_key("a")) for _ in range(20)))
    assert len(set(found)) == 1
    assert await number_of_kickoffs(crew) == 1


async def test_at_the_same_instant_on_two_servers_they_are_one_kickoff(crew: Crew) -> None:
    async with serving(crew.server.database.url) as other:
        for turn in range(10):
            crews = [crew, crew.at(other)] * 4
            found = await ids(*(at.post(BODY, headers=with_key(f"turn {turn}")) for at in crews))
            assert len(set(found)) == 1
    assert await number_of_kickoffs(crew) == 10


async def test_a_key_with_another_body_is_409_and_starts_nothing(crew: Crew) -> None:
    kickoff = await crew.kickoff(idempotencyKey="a")
    for body in ({"inputs": {**GOOD, "more": 1}}, {"inputs": GOOD, "meta": {}}, {"inputs": GOOD, "priority": 1}):
        answer = await crew.post(body, headers=with_key("a"))
        assert answer.status_code == 409
        assert answer.json()["error"] == "Conflict"
        assert kickoff in answer.json()["message"]
    assert await number_of_kickoffs(crew) == 1


async def test_of_two_bodies_with_one_key_at_the_same_instant_one_wins(crew: Crew) -> None:
    bodies = [{"inputs": {**GOOD, "turn": turn}} for turn in range(10)]
    answers = await asyncio.gather(*(crew.post(body, headers=with_key("a")) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9
    assert await number_of_kickoffs(crew) == 1


async def test_the_order_of_members_and_the_spaces_do_not_make_another_body(crew: Crew) -> None:
    one = b'{"inputs": {"topic": "a", "audience": {"x": 1, "y": 2}}, "meta": {}, "idempotencyKey": "a"}'
    other = b'{"meta":{},"inputs":{"audience":{"y":2,"x":1},"topic":"a"}}'
    first, second = await crew.post(one), await crew.post(other, headers=with_key("a"))
    assert first.json() == second.json()


async def test_each_user_and_the_organization_have_keys_of_their_own(crew: Crew) -> None:
    tokens = [crew.token, crew.user_token, await crew.token_of(f"bob of {crew.path}")]
    found = await ids(*(crew.post(BODY, headers=with_key("a"), token=token) for token in tokens))
    assert len(set(found)) == 3
    again = await ids(*(crew.post(BODY, headers=with_key("a"), token=token) for token in tokens))
    assert again == found


async def test_tokens_of_the_organization_share_their_keys(crew: Crew) -> None:
    other = await crew.organization_token()
    found = await ids(crew.post(BODY, headers=with_key("a")), crew.post(BODY, headers=with_key("a"), token=other))
    assert len(set(found)) == 1


async def test_each_crew_has_keys_of_its_own(crew: Crew) -> None:
    other = await crew.server.crew()
    found = await ids(crew.post(BODY, headers=with_key("a")), other.post(BODY, headers=with_key("a")))
    assert len(set(found)) == 2


async def test_a_key_lasts_24_hours_and_is_free_then(crew: Crew) -> None:
    kickoff = await crew.kickoff(idempotencyKey="a")
    await pass_time(crew, "23 hours 59 minutes")
    assert await crew.kickoff(idempotencyKey="a") == kickoff
    await pass_time(crew, "2 minutes")
    later = await crew.kickoff({**GOOD, "more": 1}, idempotencyKey="a")
    assert later != kickoff
    assert await crew.kickoff({**GOOD, "more": 1}, idempotencyKey="a") == later


async def test_a_kickoff_that_was_refused_keeps_no_key(crew: Crew) -> None:
    assert (await crew.post({"inputs": {}}, headers=with_key("a"))).status_code == 422
    assert (await crew.post(BODY, headers=with_key("a"))).status_code == 200


@pytest.mark.parametrize("key", ["", "x" * 256, b"a\xffb"])
async def test_a_bad_key_in_the_header_is_refused(crew: Crew, key: Any) -> None:
    answer = await crew.post(BODY, headers=with_key(key))
    assert answer.status_code == 400
    assert answer.json()["message"] == "The header `Idempotency-Key` must have one value of 1 to 255 characters."


async def test_a_key_of_255_characters_of_any_script_is_one_in_header_and_body(crew: Crew) -> None:
    key = "\N{GREEK SMALL LETTER LAMDA}" * 255
    in_body = await crew.post({**BODY, "idempotencyKey": key})
    in_header = await crew.post(BODY, headers={"Idempotency-Key": key.encode()})
    assert in_body.json() == in_header.json()


async def test_header_and_body_with_different_keys_are_refused(crew: Crew) -> None:
    answer = await crew.post({**BODY, "idempotencyKey": "a"}, headers=with_key("b"))
    assert answer.status_code == 400
    assert "differ" in answer.json()["message"]


async def test_two_headers_with_different_keys_are_refused(crew: Crew) -> None:
    headers = [("Authorization", f"Bearer {crew.token}"), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = await crew.server.http.post(f"{crew.base_url}/kickoff", headers=headers, json=BODY)
    assert answer.status_code == 400
