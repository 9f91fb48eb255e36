"""docs/reference/api.md has every endpoint, every member of a kickoff and a status, every warning and every limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from windlass.api.application import RESERVED
from windlass.api.bodies import DEEPEST
from windlass.api.connections import LARGEST_HEAD
from windlass.api.crew_api.answers import AttemptBody, StatusAnswer, TaskRecordBody
from windlass.api.crew_api.openapi import crew_document
from windlass.api.crew_api.routes import LONGEST_WAIT, OPERATIONS
from windlass.api.crew_api.schemas import KickoffRequest
from windlass.config import Settings
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.states import AttemptEnd, Reason, State, TaskState
from windlass.kickoffs.waiting import Code

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text("utf-8")


def section(title: str) -> str:
    """Up to the next heading of any level."""
    found = re.search(rf"^#+ `?{re.escape(title)}`?\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def named_in_first_cells(text: str) -> set[str]:
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_endpoints() -> None:
    told = set(re.findall(r"^\| (GET|POST|DELETE) \| `([^`]+)` \|", section("Endpoints"), re.MULTILINE))
    manifest = Manifest("function", "x", {}, ())
    documented = {
        (method.upper(), path)
        for path, methods in crew_document("x", manifest, "", OPERATIONS).get("paths", {}).items()
        for method in methods
    }
    assert told == documented
    assert "`/openapi.json`, `/docs`" in section("Endpoints")


def test_the_members_of_a_kickoff() -> None:
    members, _, warnings = section("POST /kickoff").partition("| warning |")
    assert named_in_first_cells(members) == set(KickoffRequest.model_fields)
    assert named_in_first_cells(warnings) == {"ignored_member", "unknown_input"}


def test_the_codes_of_what_a_kickoff_waits_for() -> None:
    _, _, codes = section("GET /status/{kickoff_id}").partition("| code |")
    codes, _, _ = codes.partition("**Long polling.**")
    assert named_in_first_cells(codes) == set(get_args(Code))


def test_the_members_of_an_attempt_and_how_it_ends() -> None:
    members, _, ends = section("GET /attempts/{kickoff_id}").partition("| `ended_as` | the kickoff |")
    assert named_in_first_cells(members) == set(AttemptBody.model_fields)
    assert named_in_first_cells(ends) == set(get_args(AttemptEnd))


def test_every_post_is_told_in_how_to_retry() -> None:
    posts = set(re.findall(r"^\| POST \| `([^`]+)` \|", section("Endpoints"), re.MULTILINE))
    told = set(re.findall(r"^\| `POST ([^`]+)`", section("Retrying safely"), re.MULTILINE))
    assert posts
    assert told == posts


def test_the_members_of_a_status() -> None:
    text = section("GET /status/{kickoff_id}")
    live = {
        "result_json",
        "tasks_output",
        "usage_metrics",
        "last_executed_task",
        "last_step",
        "events_count",
        "triggered_by",
        "execution_origin",
    }
    table, _, _ = text.partition("**Reasons for waiting.**")
    assert named_in_first_cells(table) == set(StatusAnswer.model_fields) - live
    for name in live | set(TaskRecordBody.model_fields):
        assert f"`{name}`" in text


@pytest.mark.parametrize(
    "words",
    [
        {state.state_on_the_wire for state in State},
        {state.status_on_the_wire for state in State},
        set(Reason),
        set(TaskState),
    ],
)
def test_the_words_of_a_status(words: set[str]) -> None:
    text = section("GET /status/{kickoff_id}")
    assert all(f"`{word}`" in text for word in words)


def test_the_servers_own_paths() -> None:
    assert all(f"`/{path}`" in section("The base URL") for path in RESERVED)


def test_the_limits() -> None:
    text = section("Limits")
    settings = Settings.model_fields
    assert settings["max_body"].default == 1024 * 1024
    assert "1 MiB (`WINDLASS_MAX_BODY`)" in text
    assert f"| {DEEPEST} levels |" in text
    assert f"| {LARGEST_HEAD // 1024} KiB |" in text
    assert f"| {settings['request_timeout'].default:g} s (`WINDLASS_REQUEST_TIMEOUT`)" in text
    assert f"| {LONGEST_WAIT:g} s |" in text
