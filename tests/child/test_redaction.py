from __future__ import annotations

import json
import math
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from windlass_child.masking.redaction import DEEPEST, Redaction

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit


REDACTION = Redaction(
    {
        "OPENAI_API_KEY": "sk-12345678",
        "GITHUB_TOKEN": "sk-12345678-longer",
        "db_password": "pass.word*",
        "SHORT_KEY": "word",
        "MODEL": "gpt-4o-mini",
    }
)


class Colour(StrEnum):
    RED = "red"


def test_values_of_secret_variables_are_masked() -> None:
    assert REDACTION.text("key sk-12345678, pass.word*!") == "key [secret], [secret]!"


def test_of_two_secrets_the_longer_is_masked_whole() -> None:
    assert REDACTION.text("sk-12345678-longer") == "[secret]"


def test_a_secret_is_text_and_no_pattern() -> None:
    assert REDACTION.text("passXworddd") == "passXworddd"


def test_short_values_and_other_variables_are_left() -> None:
    assert REDACTION.text("word gpt-4o-mini") == "word gpt-4o-mini"


def test_without_secrets_all_is_left() -> None:
    assert Redaction({}).text("anything") == "anything"


def test_secrets_are_masked_wherever_they_are_in_a_value() -> None:
    assert REDACTION.plain({"a sk-12345678": [("x", {"b": "is sk-12345678"})]}) == {
        "a [secret]": [["x", {"b": "is [secret]"}]]
    }


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        (math.inf, "inf"),
        (Colour.RED, "red"),
        ({1: 2}, {"1": 2}),
        (b"bytes", "<bytes>"),
        (object(), "<object>"),
    ],
)
def test_any_value_becomes_json(value: Any, plain: Any) -> None:
    assert REDACTION.plain(value) == plain


def test_a_value_that_holds_itself_comes_to_an_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    depth, found = 0, REDACTION.plain(endless)
    while isinstance(found, list):
        depth, found = depth + 1, found[0]
    assert (depth, found) == (DEEPEST, "…")


LEFT = {
    "MODEL": "anthropic/claude-3-5-sonnet-20241022",
    "REGION": "eu-central-1",
    "STAGE": "production",
    "OPENAI_API_BASE": "https://api.example.com/v1/chat",
    "PWD": "/usr/local/project",
    "PYTHONPATH": "/usr/lib:/etc/other",
    "LC_ALL": "en_GB.UTF-8@euro",
    "HOME": "/nowhere/x9K2mQ7vT4",
    "DEBUG": "true",
    "LIMIT": "20250101",
    "AUTHOR": "Jane Austen",
}
MASKED = {
    "DATABASE_URL": "postgresql://app:pw9!@db.example.com/app",
    "SENTRY_DSN": "https://0123456789abcdef0123456789abcdef@o1.ingest.example.com/5",
    "SLACK": "https://hooks.example.com/services/T0000/B0000/x9K2mQ7vT4z8",
    "CALLBACK": "https://example.com/hook?code=Zm9vYmFyMTIz",
    "LICENCE": "AB12-CD34-EF56-GH78",
    "SIGNING": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----",
    "ACCOUNT": '{"type": "service_account", "id": "q1w2e3r4t5y6u7i8o9"}',
    "DB_PASS": "correct horse battery staple",
    "X": "a\\b'c\"d/é9Z",
}


@pytest.mark.parametrize("name", LEFT)
def test_ordinary_values_are_left(name: str) -> None:
    text = f"an error about {LEFT[name]} in it"
    assert Redaction(LEFT | MASKED).text(text) == text


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("form", [str, repr, json.dumps, partial(quote, safe="")])
def test_values_are_masked_whatever_the_variable_is_called(name: str, form: Callable[[str], str]) -> None:
    text = form(MASKED[name])
    assert Redaction({name: MASKED[name]}).text(f"x {text} y").strip("xy '\"") == "[secret]"


@pytest.mark.parametrize(
    "text",
    [
        "password authentication failed for pw9!",
        "MIIEvQIBADANBgkqhkiG9w0B",
        "0123456789abcdef0123456789abcdef",
        "x9K2mQ7vT4z8",
        "q1w2e3r4t5y6u7i8o9",
        "Zm9vYmFyMTIz",
    ],
)
def test_parts_of_values_that_are_secret_by_themselves_are_masked(text: str) -> None:
    assert Redaction(MASKED).text(text).endswith("[secret]")


def test_a_short_password_is_masked_where_it_stands_alone() -> None:
    redaction = Redaction({"URL": "redis://:abcd@localhost/0"})
    assert redaction.text("abcd abcdef xabcd 'abcd'") == "[secret] abcdef xabcd '[secret]'"


def test_a_password_in_any_url_is_masked() -> None:
    assert Redaction({}).text("no amqp://me:pw@host/x here") == "no amqp://me:[secret]@host/x here"


def test_of_two_crews_variables_none_is_left_out_for_their_number() -> None:
    values = {f"V{number}": f"x9K2mQ{number:05}T4z8" for number in range(200)}
    redaction = Redaction(values)
    assert all(redaction.text(value) == "[secret]" for value in values.values())
