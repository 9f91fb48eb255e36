"""Whatever JSON a client sends, it is taken or refused in words, and what is taken is kept as it came."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from api.serving import GOOD

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

any_text = st.text() | st.text(st.characters(codec=None, categories=None), max_size=5)
numbers = st.integers() | st.sampled_from([10**400, -(10**4299)]) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | any_text
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(any_text, inner, max_size=5), max_leaves=20
)
objects = st.dictionaries(st.sampled_from(["topic", "audience", "length", "anything"]) | any_text, json_values)
MEMBERS = [
    "meta",
    "idempotencyKey",
    "taskWebhookUrl",
    "webhooks",
    "humanInputWebhook",
    "priority",
    "runAt",
    "timeout",
    "concurrencyKey",
    "unknown",
]
webhooks = st.fixed_dictionaries(
    {}, optional={"url": json_values, "events": json_values, "realtime": json_values, "authentication": objects}
)
unhurried = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def any_crew(server: Server) -> Crew:
    return await server.crew()


def written(value: Any) -> bytes:
    """Escaped, as most clients write it: halves of surrogate pairs too."""
    return text_of(value).encode()


def text_of(value: Any) -> str:
    """1, 1.0 and true are different here, and so are the orders of members."""
    return json.dumps(value)


@unhurried
@given(inputs=objects)
@example(inputs={"topic": "", "audience": "", "length": 10**400})
@example(inputs={"topic": "\x00", "audience": {"\x00": "\x00"}})
async def test_any_object_as_inputs_is_kept_as_it_came_or_refused(any_crew: Crew, inputs: dict[str, Any]) -> None:
    answer = await any_crew.post(b'{"inputs": %s}' % written(inputs))
    assert answer.status_code in {200, 400, 422}
    if answer.status_code == 200:
        kept = (await any_crew.row(answer.json()["kickoff_id"]))["inputs"]
        assert text_of(kept) == text_of(inputs)


@unhurried
@given(more=objects)
async def test_more_inputs_than_the_required_ones_are_kept_or_refused_for_their_form_alone(
    any_crew: Crew, more: dict[str, Any]
) -> None:
    answer = await any_crew.post(b'{"inputs": %s}' % written({**more, **GOOD}))
    assert answer.status_code in {200, 400}
    if answer.status_code == 200:
        assert text_of((await any_crew.row(answer.json()["kickoff_id"]))["inputs"]) == text_of({**more, **GOOD})


@unhurried
@given(body=json_values)
async def test_any_json_as_the_body_is_answered(any_crew: Crew, body: Any) -> None:
    assert (await any_crew.post(written(body))).status_code in {400, 422}


@unhurried
@given(body=st.binary(max_size=200))
async def test_any_bytes_as_the_body_are_answered(any_crew: Crew, body: bytes) -> None:
    assert (await any_crew.post(body)).status_code in {400, 422}


@unhurried
@given(body=st.binary(max_size=20), place=st.integers(0, 60))
async def test_a_good_body_with_bytes_thrown_in_is_answered(any_crew: Crew, body: bytes, place: int) -> None:
    good = json.dumps({"inputs": GOOD}).encode()
    answer = await any_crew.post(good[:place] + body + good[place:])
    assert answer.status_code in {200, 400, 422}


@unhurried
@given(members=st.dictionaries(st.sampled_from(MEMBERS), json_values | webhooks))
@example(members={"timeout": 10**400})
@example(members={"priority": 10**400})
async def test_any_value_of_any_member_is_answered_and_meta_comes_back(any_crew: Crew, members: dict[str, Any]) -> None:
    answer = await any_crew.post(written({**members, "inputs": GOOD}))
    assert answer.status_code in {200, 400, 409}
    if answer.status_code == 200:
        status = await any_crew.status(answer.json()["kickoff_id"])
        if "idempotencyKey" not in members:
            assert text_of(status["meta"]) == text_of(members.get("meta"))


@settings(unhurried, max_examples=25)
@given(key=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1).map(str.strip))
async def test_any_idempotency_key_in_the_header_is_answered(any_crew: Crew, key: str) -> None:
    body = {"inputs": GOOD}
    answers = [await any_crew.post(body, headers={"Idempotency-Key": key.encode()}) for _ in range(2)]
    assert {answer.status_code for answer in answers} <= {200, 400}
    assert answers[0].content == answers[1].content
