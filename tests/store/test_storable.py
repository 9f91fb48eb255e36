from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.store.values import NUMBERS, Array, sanitized_json, sanitized_text

if TYPE_CHECKING:
    from windlass.store.database import Database

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
JSON = st.recursive(
    ANY_TEXT | st.none() | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain é 😀 \\u0000", "plain é 😀 \\u0000"),
        ("a\x00b", "a\ufffdb"),
        ("a\ud800b\udc00", "a\ufffdb\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("", ""),
    ],
)
def test_only_what_cannot_be_stored_is_replaced(text: str, kept: str) -> None:
    assert sanitized_text(text) == kept


@given(ANY_TEXT)
def test_any_text_can_be_stored_then(text: str) -> None:
    kept = sanitized_text(text)
    assert "\x00" not in kept
    kept.encode("utf-8")
    assert sanitized_text(kept) == kept


@given(JSON)
def test_any_json_keeps_its_shape(value: Any) -> None:
    kept = sanitized_json(value)
    json.dumps(kept, ensure_ascii=False).encode("utf-8")
    assert sanitized_json(kept) == kept


def test_names_and_what_is_deep_inside_are_replaced_too() -> None:
    assert sanitized_json({"a\x00": [{"b": "\ud800"}, ("c\x00",), 1, None]}) == {
        "a\ufffd": [{"b": "\ufffd"}, ["c\ufffd"], 1, None]
    }


@pytest.mark.parametrize("texts", [[], [None], ["a"], ["a", None, "", "é😀", '{"a,b"}', "NULL", "x" * 70_000]])
async def test_an_array_of_texts_arrives_as_it_was(database: Database, texts: list[str | None]) -> None:
    row = await database.row("SELECT %(values)b::text[] AS found", {"values": Array.of_texts(texts)})
    assert row == {"found": texts}


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("int", [0, -1, (1 << 31) - 1, None]),
        ("bigint", [1 << 62, None, -(1 << 63)]),
        ("float8", [0.1, None, -1e300, 3.0]),
        ("bool", [True, False, None]),
        ("int", []),
    ],
)
async def test_an_array_of_numbers_arrives_as_it_was(
    database: Database, kind: str, numbers: list[float | None]
) -> None:
    statement: Any = f"SELECT %(values)b::{kind}[] AS found"
    row = await database.row(statement, {"values": Array.of_numbers(kind, numbers)})
    assert row == {"found": numbers}


def test_every_kind_of_number_is_tried() -> None:
    assert set(NUMBERS) == {"int", "bigint", "float8", "bool"}
