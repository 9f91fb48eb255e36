from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import WindlassError
from windlass.secrets.key_ring import Damaged, KeyRing, MasterKey, UnknownKey

pytestmark = pytest.mark.unit


OLD, NEW, FOREIGN = MasterKey(b"o" * 32), MasterKey(b"n" * 32), MasterKey(b"f" * 32)
RING = KeyRing([OLD])
CONTEXT = "tokens.shown:7"
# Sealed once and written down: what is in a database today must open under every later version.
WRITTEN_DOWN = "v1.b0ab2b03.2nennb0H3Z3as74P8JI-y23w0Xe0ipjG0YgzGHq3VJNabA"

BASE64 = string.ascii_letters + string.digits + "-_"

texts = st.text(st.characters())
keys = st.binary(min_size=32, max_size=32).map(MasterKey)


@given(keys, texts, texts)
def test_what_is_sealed_opens_again(key: MasterKey, plain: str, context: str) -> None:
    ring = KeyRing([key])
    token = ring.seal(plain, context)
    assert token.startswith(f"v1.{ring.current_id}.")
    assert ring.open(token, context) == plain


def test_a_value_sealed_long_ago_still_opens() -> None:
    assert RING.open(WRITTEN_DOWN, CONTEXT) == "wlo_é"


def test_the_same_text_is_sealed_differently_each_time() -> None:
    assert RING.seal("x", CONTEXT) != RING.seal("x", CONTEXT)


@given(texts, texts, texts)
def test_another_context_never_opens_it(plain: str, context: str, other: str) -> None:
    token = RING.seal(plain, context)
    if context != other:
        with pytest.raises(Damaged):
            RING.open(token, other)


@given(keys, texts)
def test_another_key_never_opens_it(other: MasterKey, plain: str) -> None:
    with pytest.raises(UnknownKey):
        KeyRing([other]).open(RING.seal(plain, CONTEXT), CONTEXT)


@given(texts)
def test_another_key_under_the_id_of_the_right_one_does_not_open_it(plain: str) -> None:
    _, _, body = RING.seal(plain, CONTEXT).split(".")
    with pytest.raises(Damaged):
        KeyRing([NEW]).open(f"v1.{NEW.id}.{body}", CONTEXT)


def test_another_purpose_never_opens_it() -> None:
    pepper, shown = RING.for_purpose("pepper"), RING.for_purpose("shown tokens")
    with pytest.raises(Damaged):
        shown.open(pepper.seal("x", CONTEXT), CONTEXT)
    assert RING.for_purpose("pepper").open(pepper.seal("x", CONTEXT), CONTEXT) == "x"


@given(texts, st.data())
def test_a_flipped_bit_never_opens(plain: str, data: st.DataObject) -> None:
    token = RING.seal(plain, CONTEXT).encode()
    place, bit = data.draw(st.integers(0, len(token) - 1)), data.draw(st.integers(0, 7))
    flipped = token[:place] + bytes([token[place] ^ 1 << bit]) + token[place + 1 :]
    with pytest.raises((Damaged, UnknownKey)):
        RING.open(flipped.decode("latin-1"), CONTEXT)


@pytest.mark.parametrize("plain", ["", "x", "xy"], ids=len)
def test_a_second_spelling_of_the_same_bytes_does_not_open(plain: str) -> None:
    token = RING.seal(plain, CONTEXT)
    last_characters = [token[:-1] + character for character in BASE64 if character != token[-1]]
    for other in (token + "=", token + "\n", token.replace(".", ". ", 1), f" {token}", token + "A", *last_characters):
        with pytest.raises(Damaged):
            RING.open(other, CONTEXT)


@given(texts | st.builds("v1.{:08x}.{}".format, st.integers(0, 2**32 - 1), st.text("AZaz09-_")))
def test_garbage_is_refused_in_words(garbage: str) -> None:
    with pytest.raises((Damaged, UnknownKey)):
        RING.open(garbage, CONTEXT)


def test_a_missing_key_is_named_with_what_to_do() -> None:
    with pytest.raises(UnknownKey) as refused:
        KeyRing([NEW]).open(RING.seal("hunter2", CONTEXT), CONTEXT)
    assert isinstance(refused.value, WindlassError)
    assert refused.value.key_id == OLD.id
    assert OLD.id in refused.value.message
    assert CONTEXT in refused.value.message
    assert "key file" in refused.value.hint
    assert "WINDLASS_MASTER_KEY" in refused.value.hint


def test_a_damaged_value_is_named_by_its_row_and_not_shown() -> None:
    token = RING.seal("hunter2", CONTEXT)
    with pytest.raises(Damaged) as refused:
        RING.open(token, "tokens.shown:8")
    assert "tokens.shown:8" in str(refused.value)
    assert token not in str(refused.value)
    assert refused.value.hint


def test_the_first_key_seals_and_all_open() -> None:
    old = RING.seal("x", CONTEXT)
    both = KeyRing([NEW, OLD])
    assert both.current_id == NEW.id
    assert both.open(old, CONTEXT) == "x"
    assert both.is_current(both.seal("x", CONTEXT))
    assert not both.is_current(old)


def test_resealing_moves_a_value_to_the_current_key_once() -> None:
    both = KeyRing([NEW, OLD])
    moved = both.reseal(RING.seal("x", CONTEXT), CONTEXT)
    assert KeyRing([NEW]).open(moved, CONTEXT) == "x"
    assert both.reseal(moved, CONTEXT) == moved


def test_resealing_opens_nothing_that_open_refuses() -> None:
    both = KeyRing([NEW, OLD])
    with pytest.raises(Damaged):
        both.reseal(RING.seal("x", CONTEXT), "tokens.shown:8")
    with pytest.raises(UnknownKey):
        both.reseal(KeyRing([FOREIGN]).seal("x", CONTEXT), CONTEXT)


def test_neither_ring_nor_key_prints_the_key() -> None:
    shown = f"{KeyRing([NEW, OLD])!r} {NEW!r}"
    assert NEW.id in shown
    assert OLD.id in shown
    assert "nnn" not in shown
