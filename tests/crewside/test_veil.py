from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import pytest

from windlass_crewside.veil import DEEPEST, Veil

VEIL = Veil(
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
    assert VEIL.text("key sk-12345678, pass.word*!") == "key [secret], [secret]!"


def test_of_two_secrets_the_longer_is_masked_whole() -> None:
    assert VEIL.text("sk-12345678-longer") == "[secret]"


def test_a_secret_is_text_and_no_pattern() -> None:
    assert VEIL.text("passXworddd") == "passXworddd"


def test_short_values_and_other_variables_are_left() -> None:
    assert VEIL.text("word gpt-4o-mini") == "word gpt-4o-mini"


def test_without_secrets_all_is_left() -> None:
    assert Veil({}).text("anything") == "anything"


def test_secrets_are_masked_wherever_they_are_in_a_value() -> None:
    assert VEIL.plain({"a sk-12345678": [("x", {"b": "is sk-12345678"})]}) == {
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
    assert VEIL.plain(value) == plain


def test_a_value_that_holds_itself_comes_to_an_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    depth, found = 0, VEIL.plain(endless)
    while isinstance(found, list):
        depth, found = depth + 1, found[0]
    assert (depth, found) == (DEEPEST, "…")
