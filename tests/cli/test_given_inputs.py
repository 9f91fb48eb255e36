from __future__ import annotations

from typing import Any

import click
import pytest

from windlass.cli.kickoff_options import given_inputs, json_object, pair


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("topic=tea", ("topic", "tea")),
        ("topic=", ("topic", "")),
        ("topic=a=b:=c", ("topic", "a=b:=c")),
        ("depth:=2", ("depth", 2)),
        ('list:=["a", {"b": null}]', ("list", ["a", {"b": None}])),
        ("two words=x", ("two words", "x")),
        ("a:b=x", ("a:b", "x")),
    ],
)
def test_a_pair_is_a_name_and_a_text_or_a_value(given: str, expected: tuple[str, Any]) -> None:
    assert pair(given) == expected


@pytest.mark.parametrize(
    "given", ["topic", "=tea", ":=1", "", "depth:=two", "depth:=NaN", pytest.param("x:=" + "[" * 100_000, id="deep")]
)
def test_what_is_no_pair_is_refused_in_words(given: str) -> None:
    with pytest.raises(click.UsageError, match=r"NAME=VALUE|is not JSON"):
        pair(given)


def test_pairs_go_before_the_text_and_the_text_before_the_file() -> None:
    assert given_inputs('{"a": 1, "b": 1, "c": 1}', '{"b": 2, "c": 2}', ["c:=3"]) == {"a": 1, "b": 2, "c": 3}


def test_a_later_pair_goes_before_an_earlier_one() -> None:
    assert given_inputs(None, None, ["a=1", "a=2"]) == {"a": "2"}


@pytest.mark.parametrize("text", ["[]", '"a"', "null", "3", ""])
def test_what_is_no_object_is_refused_with_the_option_that_gave_it(text: str) -> None:
    with pytest.raises(click.UsageError, match=r"^--meta: "):
        json_object(text, "--meta")
