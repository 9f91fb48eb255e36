from __future__ import annotations

import copy
import json
import logging
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.fake_crew import TOKEN, completed, running
from windlass.api.crew_api.schemas import LARGEST_BATCH, KickoffRequest, StateWord
from windlass.client import AsyncCrew, Crew, CrewError, InvalidRequest, Kickoff, NotACrew, Result, Status, TaskOutput
from windlass.client.protocol import MOST_OF_A_BATCH
from windlass.client.requests import MEMBERS, body
from windlass.client.results import State

if TYPE_CHECKING:
    from cli.batch_crew import BatchCrew

HEAVY = {"pydantic", "starlette", "uvicorn", "psycopg", "cryptography", "jsonschema", "uvloop"}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STATUS = {**completed(), "tasks": [{"task_id": "a", "state": "completed", "started_at": "2026-01-02T03:04:05Z"}]}


def test_importing_it_imports_nothing_that_a_server_needs() -> None:
    program = "import sys, windlass.client; print('\\n'.join(sys.modules))"
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    modules = set(told.stdout.split())
    assert "httpx" in modules
    assert not {module.partition(".")[0] for module in modules} & HEAVY
    ours = {module for module in modules if module.startswith("windlass") and not module.startswith("windlass.client")}
    assert ours == {"windlass", "windlass.errors", "windlass.loopback"}


def test_it_knows_every_member_of_a_kickoff() -> None:
    assert set(MEMBERS) == set(KickoffRequest.model_fields) - {"inputs", "meta", "idempotencyKey"}


def test_it_knows_how_many_a_batch_may_have() -> None:
    assert MOST_OF_A_BATCH == LARGEST_BATCH


def test_it_knows_every_state() -> None:
    assert get_args(State) == get_args(StateWord)


@given(inputs=st.dictionaries(st.text(), ANY_JSON, max_size=3), meta=st.none() | st.dictionaries(st.text(), ANY_JSON))
def test_what_is_sent_is_what_was_given(inputs: dict[str, Any], meta: dict[str, Any] | None) -> None:
    sent = json.loads(body(Kickoff(inputs, meta, "a", {"priority": 3, "timeout": None})))
    assert sent.pop("idempotencyKey") == "a"
    assert sent == {"inputs": inputs, "priority": 3} | ({} if meta is None else {"meta": meta})


def test_each_kickoff_has_a_key_of_its_own() -> None:
    keys = {json.loads(body(Kickoff({})))["idempotencyKey"] for _ in range(10)}
    assert len(keys) == 10


def test_names_of_members_are_those_of_python_or_of_the_api_and_no_others() -> None:
    at = datetime(2030, 1, 2, tzinfo=UTC)
    sent = json.loads(body(Kickoff({}, members={"run_at": at, "concurrencyKey": "a", "task_webhook_url": "http://x"})))
    assert sent["runAt"] == "2030-01-02T00:00:00+00:00"
    assert (sent["concurrencyKey"], sent["taskWebhookUrl"]) == ("a", "http://x")
    with pytest.raises(InvalidRequest, match=r"no member 'prioritty'\. It has: taskWebhookUrl"):
        body(Kickoff({}, members={"prioritty": 1}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), datetime.now(UTC)])
def test_what_is_no_json_is_told_before_anything_is_sent(value: Any) -> None:
    with pytest.raises(CrewError, match="can't be written as JSON"):
        body(Kickoff({"x": value}))


def test_a_result_reads_the_same_in_both_profiles() -> None:
    task = {"task_id": "a", "name": "n", "output": "o", "agent": "g", "execution_time": 1.5, "more": 1}
    documented = {"result": {"output": "It is done.", "json": {"a": 1}, "tasks": [task]}}
    live = {"result": "It is done.", "result_json": {"a": 1}, "tasks_output": [task]}
    wanted = Result("It is done.", {"a": 1}, [TaskOutput("a", "n", "o", "g", 1.5)])
    assert Result.of(documented) == Result.of(live) == wanted


def test_a_status_of_a_server_that_says_less_is_read_as_far_as_it_goes() -> None:
    found = Status.of({"status": "completed", "result": "It is done."})
    assert (found.state, found.tasks, found.created_at) == ("SUCCESS", [], None)
    assert found.result == Result("It is done.", None, [])
    assert Status.of({"state": "PENDING"}).has_ended is False


def test_times_are_moments() -> None:
    found = Status.of({**STATUS, "finished_at": "not a time"})
    assert found.started_at == datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    assert found.tasks[0].started_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert found.finished_at is None


@given(st.dictionaries(st.sampled_from(sorted({*STATUS, *running(), "warnings", "waiting_for"})), ANY_JSON))
def test_an_answer_of_any_form_is_a_status_or_is_told_to_be_none(members: dict[str, Any]) -> None:
    said = copy.deepcopy({**STATUS, **members})
    try:
        found = Status.of(said)
    except NotACrew:
        assert said["state"] not in get_args(State)
    else:
        assert found.state == said["state"]


@pytest.mark.parametrize("said", [{}, {"state": "DONE"}, {"state": None}, {"status": "well"}, {"state": ["SUCCESS"]}])
def test_what_has_no_state_is_no_status(said: dict[str, Any]) -> None:
    with pytest.raises(NotACrew, match="no `state`"):
        Status.of(said)


@pytest.mark.parametrize(
    "given", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://u:p@x", "http://x?a=1", "http://x:y"]
)
def test_what_is_no_address_is_told(given: str) -> None:
    with pytest.raises(CrewError, match="not the address of a crew"):
        Crew(given, TOKEN)


def test_a_token_that_is_none_is_told_without_repeating_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINDLASS_TOKEN", raising=False)
    with pytest.raises(CrewError, match="There is no token"):
        Crew("http://x")
    with pytest.raises(CrewError, match="The token is malformed") as raised:
        AsyncCrew("http://x", "wlo_a secret")
    assert "secret" not in str(raised.value)


def test_the_token_of_the_environment_is_taken(fake: BatchCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_TOKEN", f"{TOKEN}\n")
    with Crew(fake.url) as crew:
        assert crew.inputs().required == ["topic"]


def test_the_token_is_in_no_words_of_ours(fake: BatchCrew, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fake.stop()
    with Crew(fake.url, TOKEN, patience=0) as crew:
        with pytest.raises(CrewError) as raised:
            crew.inputs()
        fake.start()
        crew.inputs()
        shown = [
            repr(crew),
            str(crew),
            repr(raised.value),
            str(raised.value),
            repr(raised.value.__cause__),
            caplog.text,
        ]
    assert repr(crew) == f"Crew('{fake.url}')"
    assert repr(AsyncCrew("http://x/", TOKEN)) == "AsyncCrew('http://x')"
    assert not any(TOKEN in text for text in shown)


def test_a_proxy_is_not_asked_for_this_machine(fake: BatchCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with Crew(fake.url, TOKEN, patience=0) as crew:
        assert crew.inputs().required == ["topic"]


def test_a_transport_of_the_callers_own_is_used() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"inputs": [request.headers["authorization"]], "schema": {}})

    with Crew("https://crews.example.com", TOKEN, transport=httpx.MockTransport(answer)) as crew:
        assert crew.inputs().required == [f"Bearer {TOKEN}"]


def answering(status: int, content: str) -> Crew:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=content.encode(), headers={"Content-Type": "application/json"})

    return Crew("https://crews.example.com", TOKEN, patience=0, transport=httpx.MockTransport(answer))


@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"a":' * 100_000, '{"message": "y", "details": ' + "[" * 100_000],
    ids=["lists", "objects", "details"],
)
def test_an_answer_that_is_nested_too_deeply_to_be_read_is_no_crews(status: int, content: str) -> None:
    with answering(status, content) as crew, pytest.raises(NotACrew, match=f"does not answer as a crew does: {status}"):
        crew.inputs()


def test_a_refusal_whose_facts_are_nested_too_deeply_is_told_without_them() -> None:
    deep = "[" * 600 + "]" * 600
    content = f'{{"error": "x", "message": "No.", "details": {{"deep": {deep}, "why": "so"}}}}'
    with answering(422, content) as crew, pytest.raises(InvalidRequest) as raised:
        crew.inputs()
    assert raised.value.message == "422 x: No.\n  deep: too deeply nested to be shown\n  why: so"
