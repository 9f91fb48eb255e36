from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from api.serving import GOOD, LARGEST_BODY, serving
from windlass.api.crew_api.schemas import LARGEST_BATCH

if TYPE_CHECKING:
    import httpx

    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

ITEM = {"inputs": GOOD}
BAD_INPUTS = {"inputs": {**GOOD, "length": "many"}}


async def send(crew: Crew, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await crew.request("POST", "/kickoffs", content=content, headers=headers)


async def answers(crew: Crew, items: list[Any], **headers: str) -> list[Any]:
    answer = await send(crew, {"kickoffs": items}, **headers)
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["kickoffs"]
    return found


async def ids(crew: Crew, items: list[Any], **headers: str) -> list[str]:
    return [answer["kickoff_id"] for answer in await answers(crew, items, **headers)]


async def number_of_kickoffs(crew: Crew) -> int:
    query = "SELECT count(*) AS number FROM kickoffs WHERE deployment_id = %(id)s"
    row = await crew.server.database.row(query, {"id": crew.deployment.id})
    assert row is not None
    return int(row["number"])


async def test_each_item_is_a_kickoff_of_its_own_in_the_order_of_the_list(crew: Crew) -> None:
    items = [{"inputs": {**GOOD, "turn": turn}, "meta": {"turn": turn}, "priority": turn} for turn in range(5)]
    found = await ids(crew, items)
    rows = [await crew.row(kickoff) for kickoff in found]
    assert [(row["inputs"]["turn"], row["meta"], row["priority"]) for row in rows] == [
        (turn, {"turn": turn}, turn) for turn in range(5)
    ]
    assert found == sorted(found)


async def test_a_list_alone_is_taken_as_well(crew: Crew) -> None:
    answer = await send(crew, [ITEM, ITEM])
    assert (answer.status_code, len(answer.json()["kickoffs"])) == (200, 2)


async def test_an_empty_list_starts_nothing(crew: Crew) -> None:
    assert await answers(crew, []) == []


async def test_what_is_wrong_with_an_item_is_told_as_of_a_single_kickoff_and_spoils_no_other(crew: Crew) -> None:
    bad: list[Any] = [{}, {"inputs": {}}, BAD_INPUTS, {**ITEM, "priority": 101}, {"inputs": {**GOOD, "x": "\ud800"}}]
    found = await answers(crew, [ITEM, *bad, ITEM])
    assert [set(answer) for answer in found] == [{"kickoff_id"}, *[{"error"}] * 5, {"kickoff_id"}]
    for item, answer in zip(bad, found[1:-1], strict=True):
        alone = await crew.post(item)
        assert answer["error"] == {"status": alone.status_code, **alone.json()}
    assert [answer["error"]["status"] for answer in found[1:-1]] == [422, 422, 400, 400, 400]
    assert await number_of_kickoffs(crew) == 2


@pytest.mark.parametrize("item", [None, 7, "inputs", [], [ITEM], True])
async def test_an_item_that_is_no_object_is_refused_by_itself(crew: Crew, item: Any) -> None:
    refused, accepted = await answers(crew, [item, ITEM])
    assert (refused["error"]["status"], refused["error"]["error"]) == (400, "Bad Request")
    assert "The item must be a JSON object" in refused["error"]["message"]
    assert "kickoff_id" in accepted


async def test_an_item_may_be_as_deep_as_a_single_kickoff_and_no_deeper(crew: Crew) -> None:
    def nested(levels: int) -> Any:
        value: Any = 0
        for _ in range(levels):
            value = [value]
        return {"inputs": {**GOOD, "deep": value}}

    fits, deeper = await answers(crew, [nested(98), nested(99)])
    assert "kickoff_id" in fits
    assert deeper["error"]["details"] == {"deepest": 100}
    assert (await crew.post(nested(98))).status_code == 200
    assert (await crew.post(nested(99))).status_code == 400


@pytest.mark.parametrize("body", [b"", b"{", b"7", b"{}", b'{"kickoffs": {}}', b'{"kickoffs": null}', b'[{"a": NaN}]'])
async def test_a_body_without_a_list_is_refused(crew: Crew, body: bytes) -> None:
    assert (await send(crew, body)).status_code == 400


async def test_a_batch_has_a_thousand_kickoffs_at_most(crew: Crew) -> None:
    assert len(set(await ids(crew, [ITEM] * LARGEST_BATCH))) == LARGEST_BATCH
    too_many = await send(crew, {"kickoffs": [ITEM] * (LARGEST_BATCH + 1)})
    assert too_many.status_code == 400
    assert too_many.json()["details"] == {"most": LARGEST_BATCH}
    assert await number_of_kickoffs(crew) == LARGEST_BATCH


async def test_a_batch_is_no_larger_than_any_other_request(crew: Crew) -> None:
    answer = await send(crew, {"kickoffs": [{"inputs": {**GOOD, "much": "x" * LARGEST_BODY}}]})
    assert (answer.status_code, answer.json()["details"]) == (413, {"limit": LARGEST_BODY})


async def test_a_batch_needs_a_token(crew: Crew) -> None:
    answer = await crew.request("POST", "/kickoffs", content=b"[]", token="")
    assert answer.status_code == 401


async def test_kickoffs_of_a_batch_belong_to_the_user_of_the_token(crew: Crew) -> None:
    answer = await crew.request("POST", "/kickoffs", content=json.dumps([ITEM]).encode(), token=crew.user_token)
    kickoff = answer.json()["kickoffs"][0]["kickoff_id"]
    other = await crew.token_of(f"batch reader of {crew.path}")
    assert (await crew.get(f"/status/{kickoff}", token=crew.user_token)).status_code == 200
    assert (await crew.get(f"/status/{kickoff}", token=other)).status_code == 404


async def test_a_batch_that_is_sent_again_with_its_key_gives_the_same_kickoffs(crew: Crew) -> None:
    items = [ITEM, ITEM, {"inputs": {**GOOD, "more": 1}}]
    both = await asyncio.gather(*(ids(crew, items, **{"Idempotency-Key": "a"}) for _ in range(3)))
    assert both[0] == both[1] == both[2]
    assert len(set(both[0])) == 3
    assert await number_of_kickoffs(crew) == 3


async def test_a_batch_with_another_key_and_one_without_give_other_kickoffs(crew: Crew) -> None:
    found = [
        *await ids(crew, [ITEM], **{"Idempotency-Key": "a"}),
        *await ids(crew, [ITEM], **{"Idempotency-Key": "b"}),
        *await ids(crew, [ITEM]),
        await crew.kickoff(idempotencyKey="a"),
    ]
    assert len(set(found)) == 4


async def test_a_key_beside_the_list_is_the_same_as_one_in_the_header(crew: Crew) -> None:
    body = {"kickoffs": [ITEM, ITEM], "idempotencyKey": "zz"}
    first, again = [(await send(crew, body)).json() for _ in range(2)]
    both = await send(crew, body, **{"Idempotency-Key": "zz"})
    assert first == again == both.json()
    assert await ids(crew, [ITEM, ITEM], **{"Idempotency-Key": "zz"}) == [
        one["kickoff_id"] for one in first["kickoffs"]
    ]
    assert (await send(crew, {**body, "idempotencyKey": None})).json() != first
    assert await number_of_kickoffs(crew) == 4


async def test_a_key_beside_the_list_that_is_not_the_headers_is_refused(crew: Crew) -> None:
    answer = await send(crew, {"kickoffs": [ITEM], "idempotencyKey": "a"}, **{"Idempotency-Key": "b"})
    assert answer.status_code == 400
    assert "differ" in answer.json()["message"]
    assert await number_of_kickoffs(crew) == 0


@pytest.mark.parametrize("key", ["", "x" * 256, "\x00", "\ud800", 7, ["a"], {}])
async def test_a_key_beside_the_list_has_the_form_of_any_other(crew: Crew, key: Any) -> None:
    answer = await send(crew, {"kickoffs": [ITEM], "idempotencyKey": key})
    assert answer.status_code == 400
    assert list(answer.json()["details"]["invalid_members"]) == ["idempotencyKey"]
    assert await number_of_kickoffs(crew) == 0


async def test_a_longer_batch_with_the_same_key_starts_only_what_is_new_and_refuses_what_changed(crew: Crew) -> None:
    first = await ids(crew, [ITEM, ITEM], **{"Idempotency-Key": "a"})
    same, changed, new = await answers(crew, [ITEM, {**ITEM, "meta": {}}, ITEM], **{"Idempotency-Key": "a"})
    assert same == {"kickoff_id": first[0]}
    assert changed["error"]["status"] == 409
    assert first[1] in changed["error"]["message"]
    assert new["kickoff_id"] not in first


async def test_a_key_of_an_item_is_the_same_as_that_of_a_single_kickoff_and_counts_before_the_batchs(
    crew: Crew,
) -> None:
    alone = await crew.kickoff(idempotencyKey="mine")
    items = [{**ITEM, "idempotencyKey": "mine"}, {**ITEM, "idempotencyKey": "mine"}, ITEM]
    first = await ids(crew, items, **{"Idempotency-Key": "a"})
    assert first[:2] == [alone, alone]
    assert first[2] != alone


async def test_a_bad_key_of_the_batch_is_refused(crew: Crew) -> None:
    answer = await send(crew, [ITEM], **{"Idempotency-Key": "x" * 256})
    assert answer.status_code == 400
    assert await number_of_kickoffs(crew) == 0


async def test_a_key_in_use_refuses_one_item_and_names_the_other(crew: Crew) -> None:
    keyed = {**ITEM, "concurrencyKey": "a", "concurrencyStrategy": "reject"}
    first, second, third = await answers(crew, [keyed, keyed, ITEM])
    assert second["error"]["status"] == 409
    assert second["error"]["details"] == {"kickoff_id": first["kickoff_id"]}
    assert "kickoff_id" in third


async def test_what_finds_no_room_in_the_queue_is_told_when_to_come_again(crew: Crew) -> None:
    limit = "UPDATE deployments SET max_waiting = 2 WHERE id = %(id)s"
    await crew.server.database.execute(limit, {"id": crew.deployment.id})
    found = await answers(crew, [ITEM] * 3)
    assert [set(answer) for answer in found] == [{"kickoff_id"}, {"kickoff_id"}, {"error"}]
    error = found[2]["error"]
    assert (error["status"], error["retry_after"]) == (429, 1)
    assert error["details"]["max_waiting"] == 2


async def test_an_item_that_cannot_be_stored_has_its_reference_in_the_log_and_spoils_no_other(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(database_url) as server:
        crew = await server.crew()
        await server.database.execute("ALTER TABLE kickoffs ADD CHECK (meta ->> 'bad' IS NULL)")
        found = await answers(crew, [ITEM, {**ITEM, "meta": {"bad": "a secret"}}, ITEM])
    assert [set(answer) for answer in found] == [{"kickoff_id"}, {"error"}, {"kickoff_id"}]
    assert found[1]["error"]["status"] == 500
    (record,) = [record for record in caplog.records if record.msg == "request.failed"]
    assert record.event_fields["path"] == f"{crew.path}/kickoffs"  # type: ignore[attr-defined]
    assert record.event_fields["reference"] in found[1]["error"]["message"]  # type: ignore[attr-defined]
