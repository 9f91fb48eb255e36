from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from dataclasses import asdict, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.secrets.secret import STARS, Secret

pytestmark = pytest.mark.unit


PLAIN = "sk-live-1234"


@dataclass(frozen=True, slots=True)
class Credential:
    user: str
    password: Secret


@pytest.mark.parametrize(
    "shown",
    [
        str(Secret(PLAIN)),
        repr(Secret(PLAIN)),
        f"{Secret(PLAIN)}",
        f"{Secret(PLAIN)!r}",
        f"{Secret(PLAIN)!a}",
        f"{Secret(PLAIN):>20}",
        "{0} {0!s}".format(Secret(PLAIN)),
        "%s %r" % (Secret(PLAIN), Secret(PLAIN)),  # noqa: UP031 - the old way must hide it too
        str(Credential("ada", Secret(PLAIN))),
        str(asdict(Credential("ada", Secret(PLAIN)))),
        str([Secret(PLAIN)]),
        str({Secret(PLAIN): Secret(PLAIN)}),
    ],
)
def test_a_secret_prints_as_stars(shown: str) -> None:
    assert STARS in shown
    assert PLAIN not in shown


def test_the_stars_do_not_tell_how_long_it_is() -> None:
    assert str(Secret("")) == str(Secret("x" * 1000))


def test_a_secret_in_an_exception_prints_as_stars() -> None:
    error = ValueError("refused", Secret(PLAIN))
    assert PLAIN not in "".join(traceback.format_exception(error))


def test_a_secret_in_a_log_line_prints_as_stars(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("windlass.test").error("refused %s and %r", Secret(PLAIN), Secret(PLAIN))
    assert STARS in caplog.text
    assert PLAIN not in caplog.text


def test_json_refuses_it() -> None:
    with pytest.raises(TypeError, match="Secret") as refused:
        json.dumps({"password": Secret(PLAIN)})
    assert PLAIN not in str(refused.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_refuses_it(protocol: int) -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Credential("ada", Secret(PLAIN)), protocol)


def test_a_copy_is_the_secret_itself() -> None:
    secret = Secret(PLAIN)
    assert copy.copy(secret) is secret
    assert copy.deepcopy([secret])[0] is secret


def test_it_has_no_dictionary_to_look_into() -> None:
    assert not hasattr(Secret(PLAIN), "__dict__")


@given(st.text(st.characters()))
def test_what_goes_in_comes_out(text: str) -> None:
    assert Secret(text).reveal() == text
    assert Secret(text) == Secret(text)
    assert hash(Secret(text)) == hash(Secret(text))


@given(st.text(), st.text())
def test_it_equals_a_secret_of_the_same_text_and_nothing_else(one: str, other: str) -> None:
    assert (Secret(one) == Secret(other)) is (one == other)
    assert (Secret(one) == object()) is False
    assert Secret(one).__eq__(one) is NotImplemented


def test_lone_surrogates_are_compared_too() -> None:
    assert Secret("\ud800") == Secret("\ud800")
    assert Secret("\ud800") != Secret("\ud801")


def test_only_the_empty_secret_is_false() -> None:
    assert not Secret("")
    assert Secret("0")
    assert Secret(" ")


@pytest.mark.parametrize("other", [None, b"sk-live-1234", 1234, Secret(PLAIN)])
def test_it_holds_text_only_and_the_refusal_does_not_show_what_came(other: object) -> None:
    with pytest.raises(TypeError, match=f"not {type(other).__name__}$"):
        Secret(other)  # type: ignore[arg-type]
