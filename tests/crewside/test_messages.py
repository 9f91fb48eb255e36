from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass_crewside.messages import (
    LARGEST_FRAME,
    TYPES,
    BadMessage,
    Event,
    Frames,
    Message,
    Project,
    Run,
    Succeeded,
    Surroundings,
    TaskEnded,
    decode,
    encode,
)

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
RUN = Run("id", 2, Project("function", "/p", "a:b"), Surroundings({"A": "é"}, "/f"), {"x": [1, None]})


def through(*chunks: bytes) -> list[Message]:
    frames = Frames()
    return [message for chunk in chunks for message in frames.feed(chunk)]


@given(ANY_JSON, st.text())
def test_any_json_comes_out_as_it_went_in(value: Any, text: str) -> None:
    assert through(encode(Succeeded(text, value))) == [Succeeded(text, value)]


def test_what_is_inside_a_message_has_its_type_again() -> None:
    assert through(encode(RUN)) == [RUN]


@given(st.integers(1, 40))
def test_how_the_bytes_arrive_makes_no_difference(size: int) -> None:
    stream = encode(RUN) + encode(Event("a", 1.5, {"b": "c"})) + encode(TaskEnded(1, "failed", 2.0))
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert through(*chunks) == [RUN, Event("a", 1.5, {"b": "c"}), TaskEnded(1, "failed", 2.0)]


def test_deep_values_come_out_as_they_went_in() -> None:
    deep: Any = None
    for _ in range(800):
        deep = [deep]
    assert through(encode(Succeeded("", deep))) == [Succeeded("", deep)]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"is":"Nothing"}', b'{"is":"Forked","x":1}', b'{"is":{}}', b"\xff"]
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(body)


def test_what_is_refused_is_not_repeated() -> None:
    with pytest.raises(BadMessage) as caught:
        decode(b'{"is":"Run","environment":{"KEY":"sk-secret"}}')
    assert "sk-secret" not in str(caught.value)


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(BadMessage, match="over the limit"):
        through(struct.pack("!I", LARGEST_FRAME + 1))


def test_what_json_has_no_word_for_can_not_be_sent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(Succeeded("", float("nan")))
    with pytest.raises(TypeError):
        encode(Event("a", 1.0, {"object": object()}))


def test_every_message_has_a_name_of_its_own_and_plain_fields() -> None:
    assert all(dataclasses.is_dataclass(kind) for kind in TYPES.values())
    assert json.loads(encode(Succeeded("a"))[4:]) == {"is": "Succeeded", "output": "a", "json": None}
