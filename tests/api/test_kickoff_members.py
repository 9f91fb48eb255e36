from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from api.serving import GOOD, KEY_RING
from windlass.api.crew_api.schemas import KickoffRequest
from windlass.webhooks.endpoints import Endpoints

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDPOINTS = Endpoints(KEY_RING, b"webhooks")
HOOK = "https://hooks.example.com/tasks?a=b"
STREAM = {
    "events": ["task_started", "task_completed"],
    "url": HOOK,
    "realtime": True,
    "authentication": {"strategy": "bearer", "token": "wh-token-8Jq2"},
}
HUMAN = {"url": HOOK, "authentication": {"strategy": "basic", "username": "ada", "password": "wh-password-5Xk9"}}
WEBHOOKS: dict[str, Any] = {
    "taskWebhookUrl": HOOK,
    "stepWebhookUrl": HOOK,
    "crewWebhookUrl": HOOK,
    "webhooks": STREAM,
    "humanInputWebhook": HUMAN,
}
EVERYWHERE = """
SELECT string_agg(kickoffs::text, '') || (SELECT string_agg(idempotency_keys::text, '') FROM idempotency_keys) AS text
  FROM kickoffs
"""


async def why_refused(crew: Crew, **members: Any) -> dict[str, str]:
    answer = await crew.post({"inputs": GOOD, **members})
    assert answer.status_code == 400, answer.text
    reasons: dict[str, str] = answer.json()["details"]["invalid_members"]
    assert all(place in answer.json()["message"] for place in reasons)
    return reasons


@dataclass(frozen=True)
class Found:
    id: str
    url: str
    headers: dict[str, str]
    hooks: list[str]


async def endpoints_of(crew: Crew, kickoff: str) -> list[Found]:
    rows = await crew.server.database.rows(
        "SELECT id, hooks, address FROM webhooks JOIN webhook_endpoints ON id = endpoint_id WHERE kickoff_id = %(of)s",
        {"of": kickoff},
    )
    opened = [(row, ENDPOINTS.open(row["id"], row["address"])) for row in rows]
    return [Found(str(row["id"]), target.url, target.headers, list(row["hooks"])) for row, target in opened]


@pytest.mark.parametrize("member", WEBHOOKS)
async def test_a_webhook_of_a_kickoff_gives_no_warning(crew: Crew, member: str) -> None:
    kickoff = await crew.kickoff(**{member: WEBHOOKS[member]})
    assert "warnings" not in await crew.status(kickoff)
    (found,) = await endpoints_of(crew, kickoff)
    assert found.url == HOOK


async def test_webhooks_with_the_same_address_and_credentials_share_an_endpoint(crew: Crew) -> None:
    kickoff = await crew.kickoff(**WEBHOOKS)
    found = await endpoints_of(crew, kickoff)
    assert sorted((sorted(one.hooks), one.headers.get("authorization", "").split(" ")[0]) for one in found) == [
        (["crew", "step", "task"], ""),
        (["events"], "Bearer"),
        (["human_input"], "Basic"),
    ]


async def test_a_deployment_has_one_endpoint_for_an_address(crew: Crew) -> None:
    kickoffs = [await crew.kickoff(crewWebhookUrl="https://once.example.com/x") for _ in range(2)]
    first, second = [one.id for kickoff in kickoffs for one in await endpoints_of(crew, kickoff)]
    assert first == second


async def test_no_credential_of_a_webhook_is_readable_in_the_database(crew: Crew) -> None:
    kickoff = await crew.kickoff(webhooks=STREAM, humanInputWebhook=HUMAN, idempotencyKey="once", meta={"note": "kept"})
    row = await crew.server.database.row(EVERYWHERE)
    assert row is not None
    assert kickoff in row["text"]
    for credential in ("wh-token-8Jq2", "wh-password-5Xk9", "hooks.example.com"):
        assert credential not in row["text"]


async def test_a_kickoff_without_such_members_has_no_warnings(crew: Crew) -> None:
    status = await crew.status(await crew.kickoff(meta={}))
    assert "warnings" not in status
    assert status["meta"] == {}


@pytest.mark.parametrize("member", sorted(KickoffRequest.model_fields.keys() - {"inputs"}))
async def test_a_member_that_is_null_is_not_there(crew: Crew, member: str) -> None:
    status = await crew.status(await crew.kickoff(**{member: None}))
    assert "warnings" not in status
    assert status["meta"] is None


async def test_members_without_effect_give_the_kickoff_warnings(crew: Crew) -> None:
    members: dict[str, Any] = {
        "restoreFromStateId": "x",
        "topic": "tea",
        "meta": None,
    }
    kickoff = await crew.kickoff(**members, inputFiles=None)
    row = await crew.row(kickoff)
    assert row["inputs"] == GOOD
    assert [(one["code"], one["message"]) for one in (await crew.status(kickoff))["warnings"]] == [
        ("ignored_member", "The member restoreFromStateId of the request has no effect in this release."),
        (
            "ignored_member",
            "The request has no member topic: its value is not used. Inputs belong in the member inputs.",
        ),
    ]


async def test_few_of_many_members_without_effect_are_named(crew: Crew) -> None:
    members: dict[str, Any] = {f"{number}{'x' * 100}": 1 for number in range(100)}
    kickoff = await crew.kickoff(**members)
    warnings = (await crew.status(kickoff))["warnings"]
    assert len(warnings) == 5
    assert all("x..." in one["message"] for one in warnings)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.com",
        "/hooks",
        "//hooks.example.com",
        "http:///hooks.example.com",
        "http://ⓛocalhost/",
        "http://xn--/",
        "http://",
        "http:hooks.example.com",
        "https://",
        "ftp://hooks.example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://[::1",
        "http://a b/",
        "http://hooks.example.com/a b",
        " http://hooks.example.com/",
        "http://hooks.example.com/\n",
        "http://hooks.example.com/\x00",
        "http://hooks.example.com:99999/",
        "https://example.com/" + "x" * 2100,
        7,
        ["https://example.com/"],
        {"url": "https://example.com/"},
        True,
    ],
)
@pytest.mark.parametrize("member", ["taskWebhookUrl", "stepWebhookUrl", "crewWebhookUrl", "humanInputWebhookUrl"])
async def test_a_bad_url_is_refused(crew: Crew, member: str, url: Any) -> None:
    reasons = await why_refused(crew, **{member: url})
    assert list(reasons) == [member]


@pytest.mark.parametrize(
    "url", ["http://localhost:9/x", "HTTPS://Example.com", "http://[::1]:80/", "https://user:pw@h/?q#f"]
)
async def test_a_good_url_is_taken_as_it_came(crew: Crew, url: str) -> None:
    kickoff = await crew.kickoff(crewWebhookUrl=url)
    (found,) = await endpoints_of(crew, kickoff)
    assert (found.url, found.headers.get("authorization")) == (
        ("https://h/?q#f", "Basic dXNlcjpwdw==") if "user:pw" in url else (url, None)
    )


@pytest.mark.parametrize(
    ("member", "value", "place"),
    [
        ("meta", [], "meta"),
        ("meta", "x", "meta"),
        ("priority", 101, "priority"),
        ("priority", -101, "priority"),
        ("priority", "7", "priority"),
        ("priority", 7.5, "priority"),
        ("priority", True, "priority"),
        ("priority", 10**400, "priority"),
        ("runAt", "tomorrow", "runAt"),
        ("runAt", "2030-01-15", "runAt"),
        ("runAt", "2030-01-15T09:30:00", "runAt"),
        ("runAt", "2030-13-15T09:30:00Z", "runAt"),
        ("runAt", "2030-01-15 09:30:00Z", "runAt"),
        ("runAt", "1900000000", "runAt"),
        ("runAt", 1900000000, "runAt"),
        ("runAt", True, "runAt"),
        ("runAt", "9999-12-31T23:59:59-12:00", "runAt"),
        ("timeout", 0, "timeout"),
        ("timeout", -1, "timeout"),
        ("timeout", "60", "timeout"),
        ("timeout", True, "timeout"),
        ("timeout", 10**400, "timeout"),
        ("timeout", 1e300, "timeout"),
        ("limits", [], "limits"),
        ("limits", "timeout=5", "limits"),
        ("limits", True, "limits"),
        ("limits", {"speed": 1}, "limits"),
        ("limits", {"timeout": 0}, "limits"),
        ("limits", {"timeout": "60"}, "limits"),
        ("limits", {"timeout": True}, "limits"),
        ("limits", {"timeout": 1e300}, "limits"),
        ("limits", {"timeout": 10**400}, "limits"),
        ("limits", {"token_limit": 1.5}, "limits"),
        ("limits", {"token_limit": [1]}, "limits"),
        ("limits", {"memory_limit": "much"}, "limits"),
        ("limits", {"memory_limit": "9" * 400 + " GB"}, "limits"),
        ("concurrencyKey", "", "concurrencyKey"),
        ("concurrencyKey", "x" * 256, "concurrencyKey"),
        ("concurrencyKey", "a\x00", "concurrencyKey"),
        ("concurrencyKey", 7, "concurrencyKey"),
        ("concurrencyStrategy", "reject", "concurrencyStrategy"),
        ("idempotencyKey", "", "idempotencyKey"),
        ("idempotencyKey", "x" * 256, "idempotencyKey"),
        ("idempotencyKey", "a\x00", "idempotencyKey"),
        ("idempotencyKey", 7, "idempotencyKey"),
        ("webhooks", "https://example.com/", "webhooks"),
        ("webhooks", {"url": HOOK}, "webhooks.events"),
        ("webhooks", {"events": [], "url": "?"}, "webhooks.url"),
        ("webhooks", {"events": "all", "url": HOOK}, "webhooks.events"),
        ("webhooks", {"events": [7], "url": HOOK}, "webhooks.events.0"),
        ("webhooks", {"events": [], "url": HOOK, "realtime": "yes"}, "webhooks.realtime"),
        ("webhooks", {"events": [], "url": HOOK, "authentication": {"strategy": "oauth"}}, "webhooks.authentication"),
        ("webhooks", {"events": [], "url": HOOK, "authentication": {}}, "webhooks.authentication"),
        *(
            (
                "webhooks",
                {"events": [], "url": HOOK, "authentication": {"strategy": "bearer", "token": token}},
                "webhooks.authentication.bearer.token",
            )
            for token in ("", "two words", "a\r\nX-More: 1", "é", "a\0", "x" * 8193)
        ),
        ("humanInputWebhook", {}, "humanInputWebhook.url"),
        (
            "humanInputWebhook",
            {"url": HOOK, "authentication": {"strategy": "basic", "username": "ada"}},
            "humanInputWebhook.authentication.basic.password",
        ),
    ],
)
async def test_a_member_of_a_wrong_form_is_refused_by_its_place(
    crew: Crew, member: str, value: Any, place: str
) -> None:
    assert list(await why_refused(crew, **{member: value})) == [place]


@pytest.mark.parametrize("strategy", ["", "Reject", "wait", 7, ["reject"]])
async def test_an_unknown_strategy_is_refused(crew: Crew, strategy: Any) -> None:
    assert list(await why_refused(crew, concurrencyKey="a", concurrencyStrategy=strategy)) == ["concurrencyStrategy"]


async def test_a_bad_limit_is_refused_with_what_it_takes(crew: Crew) -> None:
    assert await why_refused(crew, limits={"memory_limit": "much"}) == {
        "limits": "memory_limit must be a number of bytes, or text such as \"512 MB\", not 'much'"
    }
    assert (
        "there is no limit 'speed'; there are: disk_limit," in (await why_refused(crew, limits={"speed": 1}))["limits"]
    )
    assert len((await why_refused(crew, limits={"token_limit": "x" * 10_000}))["limits"]) < 400


async def test_all_members_of_a_wrong_form_are_told_at_once(crew: Crew) -> None:
    reasons = await why_refused(crew, priority="high", timeout=-1, webhooks={"events": [], "url": 7})
    assert reasons == {
        "priority": "Input should be a valid integer",
        "timeout": "Input should be greater than 0",
        "webhooks.url": "Input should be a URL such as https://example.com/hook",
    }


async def test_a_refusal_does_not_repeat_a_credential(crew: Crew) -> None:
    authentication = {"strategy": "bearer", "token": ["wh-token-8Jq2"]}
    answer = await crew.post({"inputs": GOOD, "webhooks": {**STREAM, "authentication": authentication}})
    assert answer.status_code == 400
    assert "wh-token-8Jq2" not in answer.text


async def test_a_misspelt_input_of_a_closed_set_gives_the_kickoff_a_warning_with_the_nearest_name(
    server: Server,
) -> None:
    properties = {"topic": {"type": "string"}, "sentences": {"type": "integer", "default": 3}}
    schema = {"type": "object", "properties": properties, "required": ["topic"], "additionalProperties": False}
    crew = await server.crew(inputs_schema=schema)
    kickoff = await crew.kickoff({"topic": "tea", "sentence": 5})
    (warning,) = (await crew.status(kickoff))["warnings"]
    assert warning == {
        "code": "unknown_input",
        "message": "The crew has no input sentence: its value is not used. Did you mean sentences?",
    }
    assert "warnings" not in await crew.status(await crew.kickoff({"topic": "tea"}))
    refused = (await crew.post({"inputs": {"topc": "tea"}})).json()
    assert refused["message"].endswith("The crew has no input topc: its value is not used. Did you mean topic?")
    assert refused["details"] == {"missing_inputs": ["topic"]}


async def test_an_input_like_one_that_is_not_given_is_a_warning_where_others_may_be_used(server: Server) -> None:
    crew = await server.crew(inputs_schema={"type": "object", "properties": {"topic": {}}, "required": []})
    kickoff = await crew.kickoff({"topics": "tea", "x": 5})
    assert (await crew.status(kickoff))["warnings"] == [
        {
            "code": "unknown_input",
            "message": "The crew names no input topics, although it may use it. Did you mean topic?",
        }
    ]
