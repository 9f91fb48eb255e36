"""The commands of webhooks and deliveries, on a server whose answers the tests choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cli.fake_server import BUILD, FakeServer
from cli.the_command import CommandHere

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.the_command import Command

SECRET = "never-on-a-command-line"
HOOKS = "deployments/tea/webhooks"
WEBHOOK = {
    "host": "app.example.com",
    "authentication": None,
    "state": "active",
    "failures": 0,
    "paused_until": None,
    "disabled_at": None,
}
NONE: dict[str, Any] = dict.fromkeys(
    ["taskWebhookUrl", "stepWebhookUrl", "crewWebhookUrl", "webhooks", "humanInputWebhook"]
)
URL = "https://app.example.com/done"
DELIVERY = {
    "id": BUILD,
    "deployment": "tea",
    "kickoff_id": "0199cccc-0000-7000-8000-000000000001",
    "hook": "human_input",
    "host": "app.example.com",
    "state": "waiting",
    "attempts": [
        {
            "at": "2026-01-02T03:04:05Z",
            "seconds": 0.25,
            "status": 503,
            "error": "it answered 503",
            "answer": "not\nnow",
        },
        {"at": "2026-01-02T03:04:10Z", "seconds": 20, "status": None, "error": "no answer within 20 s", "answer": ""},
    ],
    "created_at": "2026-01-02T03:04:04Z",
    "finished_at": None,
    "next_at": "2026-01-02T03:09:10Z",
    "endpoint_state": "paused",
}
TESTED = {
    "id": BUILD,
    "host": "app.example.com",
    "accepted": True,
    "status": 200,
    "seconds": 0.1,
    "error": None,
    "answer": "thanks",
}


@pytest.fixture
def windlass(tmp_path: Path) -> Command:
    return CommandHere(tmp_path)


@pytest.fixture
def server(windlass: Command) -> Iterator[FakeServer]:
    server = FakeServer()
    server.open()
    windlass.environment |= server.variables
    server.answers |= {
        f"GET {HOOKS}": NONE,
        f"PATCH {HOOKS}": NONE,
        f"GET {HOOKS}/secret": {"secret": "whsec_first"},
        f"POST {HOOKS}/secret": {"secret": "whsec_second"},
        f"POST {HOOKS}/test": TESTED,
        "GET deliveries": {"items": [DELIVERY], "next_cursor": None},
        f"GET deliveries/{BUILD}": DELIVERY,
        f"POST deliveries/{BUILD}/redeliver": DELIVERY,
    }
    yield server
    server.close()


def test_the_webhooks_of_a_deployment_in_a_table(windlass: Command, server: FakeServer) -> None:
    assert "windlass webhooks set tea --crew URL" in windlass("webhooks", "show", "tea").err
    paused = {**WEBHOOK, "state": "paused", "failures": 7, "paused_until": "2026-01-02T03:04:05Z"}
    server.answers[f"GET {HOOKS}"] = {
        **NONE,
        "taskWebhookUrl": {**WEBHOOK, "authentication": "basic"},
        "stepWebhookUrl": paused,
        "crewWebhookUrl": {**WEBHOOK, "state": "off", "disabled_at": "2026-01-02T03:04:05Z"},
        "webhooks": {**WEBHOOK, "state": "failing", "failures": 2, "events": ["a", "b"], "realtime": True},
    }
    rows = [" ".join(line.split()) for line in windlass("webhooks", "show", "tea").out.splitlines()]
    assert rows == [
        "WEBHOOK HOST EVENTS CREDENTIALS STATE",
        "task app.example.com - basic active",
        "step app.example.com - - paused until 2026-01-02 03:04:05 after 7 failures",
        "crew app.example.com - - off since 2026-01-02 03:04:05 (410 Gone)",
        "events app.example.com a, b, one by one - failing (2 in a row)",
    ]


def test_all_webhooks_are_set_with_one_token(windlass: Command, server: FakeServer) -> None:
    urls = ("--task", URL, "--step", URL, "--crew", URL, "--events", URL, "--human-input", URL)
    ended = windlass("webhooks", "set", "tea", *urls, "--event", "b", "--event", "a", "--bearer", typed=f"{SECRET}\n")
    assert (ended.code, "task, step, crew, events, human-input" in ended.err) == (0, True)
    credentials = {"authentication": {"strategy": "bearer", "token": SECRET}}
    assert server.sent(f"PATCH {HOOKS}") == {
        "taskWebhookUrl": URL,
        "stepWebhookUrl": URL,
        "crewWebhookUrl": URL,
        "webhooks": {"url": URL, "events": ["b", "a"], "realtime": False, **credentials},
        "humanInputWebhook": {"url": URL, **credentials},
    }
    assert SECRET not in ended.out + ended.err


def test_all_events_are_sent_by_default(windlass: Command, server: FakeServer) -> None:
    assert windlass("webhooks", "set", "tea", "--events", URL, "--realtime").code == 0
    assert server.sent(f"PATCH {HOOKS}") == {"webhooks": {"url": URL, "events": ["*"], "realtime": True}}


def test_a_password_and_an_address_come_from_a_file(windlass: Command, server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    given = ("--basic", "ann", "--from-file", str(file))
    assert windlass("webhooks", "set", "tea", "--human-input", URL, *given).code == 0
    basic = {"strategy": "basic", "username": "ann", "password": SECRET}
    assert server.sent(f"PATCH {HOOKS}") == {"humanInputWebhook": {"url": URL, "authentication": basic}}
    server.seen.clear()
    assert windlass("webhooks", "set", "tea", "--crew", "-", typed=f"{URL}/{SECRET}\n").code == 0
    assert server.sent(f"PATCH {HOOKS}") == {"crewWebhookUrl": f"{URL}/{SECRET}"}


def test_a_password_in_an_address_is_warned_of(windlass: Command, server: FakeServer) -> None:
    ended = windlass("webhooks", "set", "tea", "--crew", f"https://ann:{SECRET}@app.example.com/")
    assert (ended.code, "every user of this machine can see" in ended.err, SECRET in ended.err) == (0, True, False)
    assert server.requests() == [f"PATCH {HOOKS}"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "at least one of --task"),
        (("--crew", URL, "--realtime"), "go with --events"),
        (("--crew", URL, "--event", "a"), "go with --events"),
        (("--crew", URL, "--bearer"), "--bearer and --basic go with"),
        (("--events", URL, "--bearer", "--basic", "ann"), "not both"),
        (("--crew", URL, "--from-file", "-"), "--from-file is for"),
        (("--events", "-", "--bearer"), "Only one value"),
        (("--crew", "-", "--task", "-"), "Only one value"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(
    windlass: Command, server: FakeServer, given: tuple[str, ...], words: str
) -> None:
    ended = windlass("webhooks", "set", "tea", *given, typed=SECRET)
    assert (ended.code, words in ended.err) == (2, True), ended.err
    assert server.seen == []


def test_webhooks_are_removed(windlass: Command, server: FakeServer) -> None:
    assert windlass("webhooks", "unset", "tea", "crew", "human-input").code == 0
    assert server.sent(f"PATCH {HOOKS}") == {"crewWebhookUrl": None, "humanInputWebhook": None}
    assert windlass("webhooks", "unset", "tea").code == windlass("webhooks", "unset", "tea", "done").code == 2


def test_the_secret_alone_goes_to_standard_output(windlass: Command, server: FakeServer) -> None:
    shown = windlass("webhooks", "secret", "tea")
    assert (shown.code, shown.out, shown.err) == (0, "whsec_first\n", "")
    rotated = windlass("webhooks", "secret", "tea", "--rotate")
    assert (rotated.out, "24 hours" in rotated.err) == ("whsec_second\n", True)
    assert server.requests() == [f"GET {HOOKS}/secret", f"POST {HOOKS}/secret"]


def test_deliveries_in_a_table(windlass: Command, server: FakeServer) -> None:
    ended = windlass("deliveries", "list", "--deployment", "tea", "--state", "waiting")
    _, row = (line.split() for line in ended.out.splitlines())
    assert row[:6] == [BUILD, "tea", DELIVERY["kickoff_id"], "human-input", "app.example.com", "waiting"]
    assert " ".join(row[6:]) == "2 no answer within 20 s 2026-01-02 03:04:04 2026-01-02 03:09:10"
    assert server.seen[0].query == "deployment=tea&state=waiting&limit=50"
    server.answers["GET deliveries"] = {"items": [], "next_cursor": None}
    assert "There are no deliveries yet." in windlass("deliveries", "list").err


def test_a_delivery_with_its_attempts(windlass: Command, server: FakeServer) -> None:
    ended = windlass("deliveries", "show", BUILD)
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "Webhook human-input of tea, to app.example.com (paused)" in lines
    assert "State waiting, next attempt 2026-01-02 03:09:10" in lines
    assert lines[-2:] == ["2026-01-02 03:04:05 0.25 503 not now", "2026-01-02 03:04:10 20 no answer within 20 s"]
    assert f"windlass deliveries redeliver {BUILD}" in ended.err


def test_a_delivery_is_sent_again(windlass: Command, server: FakeServer) -> None:
    assert windlass("deliveries", "redeliver", BUILD).code == 0
    assert server.requests() == [f"POST deliveries/{BUILD}/redeliver"]


def test_the_exit_code_of_a_test_is_that_of_the_receiver(windlass: Command, server: FakeServer) -> None:
    accepted = windlass("deliveries", "test", "tea")
    assert (accepted.code, accepted.out) == (0, "thanks\n")
    assert server.sent(f"POST {HOOKS}/test") == {"hook": "crew"}
    server.answers[f"POST {HOOKS}/test"] = {
        **TESTED,
        "accepted": False,
        "status": None,
        "error": "no connection",
        "answer": "",
    }
    refused = windlass("deliveries", "test", "tea", "human-input")
    assert (refused.code, "did not accept (no connection)" in refused.err) == (1, True)
    assert server.seen[-1].body == {"hook": "human_input"}
