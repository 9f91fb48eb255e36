from __future__ import annotations

import re
import string
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.secrets.secret import Secret, TokenKind, digest, from_authorization_header, kind_of, last_four, new_token

pytestmark = pytest.mark.unit


FORM = re.compile(r"wl[oup]_[0-9A-Za-z]{36}", re.ASCII)
PEPPER = b"p" * 32
# Made once and written down: the form must never change under the tokens that are out there.
WRITTEN_DOWN = "wlu_P9OnlFJJ58b9izH3yFt5So3jPpnjkv0hX2YD"

kinds = st.sampled_from(TokenKind)
anything: st.SearchStrategy[object] = (
    st.text(st.characters())
    | st.text(string.ascii_letters + string.digits, min_size=36, max_size=36).map("wlo_".__add__)
    | st.binary()
    | st.none()
    | st.integers()
    | st.binary().map(bytearray)
)


def checksum_by_the_book(head: str) -> str:
    number, digits = zlib.crc32(head.encode()), ""
    alphabet = string.digits + string.ascii_uppercase + string.ascii_lowercase
    while number:
        number, digit = divmod(number, 62)
        digits = alphabet[digit] + digits
    return digits.rjust(6, "0")


@given(kinds)
def test_a_new_token_has_the_form_and_tells_its_kind(kind: TokenKind) -> None:
    token = new_token(kind)
    assert isinstance(token, Secret)
    assert FORM.fullmatch(token.reveal())
    assert kind_of(token.reveal()) is kind


def test_the_prefix_is_wlo_for_an_organization_wlu_for_a_user_and_wlp_for_a_person() -> None:
    assert new_token(TokenKind.ORGANIZATION).reveal().startswith("wlo_")
    assert new_token(TokenKind.USER).reveal().startswith("wlu_")
    assert new_token(TokenKind.PERSONAL).reveal().startswith("wlp_")


def test_a_token_made_long_ago_is_still_well_formed() -> None:
    assert kind_of(WRITTEN_DOWN) is TokenKind.USER


def test_tokens_do_not_repeat() -> None:
    assert len({new_token(TokenKind.USER).reveal() for _ in range(500)}) == 500


def test_each_of_30_places_has_any_of_62_characters() -> None:
    tokens = [new_token(TokenKind.USER).reveal() for _ in range(2000)]
    assert {len({token[place] for token in tokens}) for place in range(4, 34)} == {62}


@given(st.text(string.ascii_letters + string.digits, min_size=30, max_size=30))
@example("0" * 30)
def test_the_last_six_are_the_base62_of_the_crc32(body: str) -> None:
    head = f"wlo_{body}"
    assert kind_of(head + checksum_by_the_book(head)) is TokenKind.ORGANIZATION


@given(kinds, st.integers(0, 39), st.sampled_from(string.ascii_letters + string.digits + "_ é\0\n"))
def test_one_changed_character_is_not_well_formed(kind: TokenKind, place: int, character: str) -> None:
    token = new_token(kind).reveal()
    changed = token[:place] + character + token[place + 1 :]
    assert kind_of(changed) is (kind if changed == token else None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        WRITTEN_DOWN[:-1],
        WRITTEN_DOWN + "x",
        WRITTEN_DOWN + "\n",
        " " + WRITTEN_DOWN,
        WRITTEN_DOWN.replace("wlu", "wlo"),
        WRITTEN_DOWN.replace("wlu", "ghp"),
        WRITTEN_DOWN.upper(),
        WRITTEN_DOWN.encode(),
        WRITTEN_DOWN.replace("9", "\N{FULLWIDTH DIGIT NINE}"),
        WRITTEN_DOWN[:-1] + "\0",
        WRITTEN_DOWN[:-1] + "\ud800",
        "wlo_" + "x" * 10_000_000,
        None,
        40,
    ],
    ids=range(15),
)
def test_what_is_no_token_has_no_kind(text: object) -> None:
    assert kind_of(text) is None


@given(anything)
def test_garbage_never_raises(garbage: object) -> None:
    kind = kind_of(garbage)
    assert kind is None or isinstance(kind, TokenKind)


def test_the_digest_is_hmac_sha256_under_the_pepper() -> None:
    assert digest("a", b"key").hex() == "780c3db4ce3de5b9e55816fba98f590631d96c075271b26976238d5f4444219b"
    assert digest(WRITTEN_DOWN, PEPPER) != digest(WRITTEN_DOWN, b"q" * 32)
    assert digest(WRITTEN_DOWN, PEPPER) != digest(WRITTEN_DOWN[:-1] + "C", PEPPER)


@given(st.text(st.characters()))
def test_a_digest_can_be_made_of_any_text(text: str) -> None:
    assert len(digest(text, PEPPER)) == 32


def test_the_last_four_are_for_display() -> None:
    assert last_four(WRITTEN_DOWN) == "X2YD"


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "bEaReR ", "Bearer     "])
def test_the_header_gives_its_credential(scheme: str) -> None:
    assert from_authorization_header(scheme + WRITTEN_DOWN) == WRITTEN_DOWN


def test_another_servers_token_is_read_too_and_is_then_no_token_of_ours() -> None:
    assert from_authorization_header("Bearer aGVsbG8=") == "aGVsbG8="
    assert kind_of("aGVsbG8=") is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer    ",
        WRITTEN_DOWN,
        f"Bearer{WRITTEN_DOWN}",
        f"Bearer\t{WRITTEN_DOWN}",
        f" Bearer {WRITTEN_DOWN}",
        f"Bearer {WRITTEN_DOWN} ",
        f"Bearer {WRITTEN_DOWN} {WRITTEN_DOWN}",
        f"Bearer {WRITTEN_DOWN},",
        f"Bearer {WRITTEN_DOWN}\n",
        f"Bearer Bearer {WRITTEN_DOWN}",
        f"Basic {WRITTEN_DOWN}",
        f"Token {WRITTEN_DOWN}",
        f"Bearer: {WRITTEN_DOWN}",
        f"Bearer {WRITTEN_DOWN}é",
        "Bearer \0",
        "Bearer " + "x" * 1_000_000,
    ],
    ids=range(20),
)
def test_any_other_header_gives_nothing(value: str | None) -> None:
    assert from_authorization_header(value) is None


@given(st.text(st.characters()) | st.text(st.characters()).map("Bearer ".__add__))
def test_a_garbage_header_never_raises_and_never_gives_a_token(value: str) -> None:
    found = from_authorization_header(value)
    assert found is None or (value.endswith(found) and found.isascii() and " " not in found)
    assert kind_of(found) is None
