from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kickoffs.events import stored_event, to_json
from windlass_child.protocol.fields import LARGEST_EVENT

pytestmark = pytest.mark.unit


def stored(payload: dict[str, Any]) -> str:
    return stored_event(1, "kind", 0.0, payload).payload


def test_a_payload_is_stored_as_it_is() -> None:
    assert stored({"line": "é", "n": [1, None]}) == '{"line":"\\u00e9","n":[1,null]}'


def test_what_postgresql_cannot_hold_as_text_is_escaped() -> None:
    assert to_json("\x00\ud800") == '"\\u0000\\ud800"'


def test_a_payload_of_the_largest_size_is_whole() -> None:
    around = len(to_json({"line": ""}))
    text = "x" * (LARGEST_EVENT - around)
    assert json.loads(stored({"line": text})) == {"line": text}
    assert "cut" in json.loads(stored({"line": text + "x"}))


def test_a_cut_payload_says_so_and_keeps_its_beginning() -> None:
    payload = {"line": "x" * LARGEST_EVENT}
    cut = json.loads(stored(payload))
    whole = to_json(payload)
    assert cut["cut"] == {"bytes": len(whole), "kept": len(cut["beginning"]), "limit": LARGEST_EVENT}
    assert whole.startswith(cut["beginning"])
    assert len(cut["beginning"]) > LARGEST_EVENT // 3


@pytest.mark.parametrize("character", ['"', "\\", "\x00", "\ud800", "é", "\N{GRINNING FACE}", "x", "\n"])
def test_no_payload_is_over_the_limit(character: str) -> None:
    text = stored({character * 9: character * LARGEST_EVENT})
    assert len(text.encode()) <= LARGEST_EVENT
    assert json.loads(text)["cut"]["limit"] == LARGEST_EVENT


@given(st.dictionaries(st.text(), st.text(alphabet=st.sampled_from('"\\\x00é😀a'), max_size=40)), st.integers(1, 4000))
def test_whatever_is_cut_stays_json(members: dict[str, str], times: int) -> None:
    text = stored({"many": [members] * times})
    json.loads(text)
    assert len(text) <= LARGEST_EVENT
