"""The values of secret variables are masked in every form in which programs write a text."""

from __future__ import annotations

import base64
import html
import json
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass_child.masking.redaction import Redaction
from windlass_child.masking.secret_values import MASK, MOST_PARTS, SecretValues
from windlass_child.protocol.fields import LONGEST_NAME
from windlass_child.protocol.messages import Asked, Inspected, Succeeded, TaskEnded, TasksKnown, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit


TOKENS = {
    "LETTERS": "Xk29vQ7mT4zR8bLw",
    "SHORTEST": "s3cr3t-8",
    "SIGNS": "p@ss/w+rd=\"'\\<&> é\t%",
    "LINES": "first line of it\nthe second: é\n",
    "DIGITS": "4929123412341234",
}
SECRETS = SecretValues(TOKENS)


def in_base64(text: str, before: bytes, after: bytes, *, urlsafe: bool) -> str:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    return encode(before + text.encode() + after).decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "itself": str,
    "json": json.dumps,
    "json in UTF-8": partial(json.dumps, ensure_ascii=False),
    "json in json": lambda text: json.dumps(json.dumps({"a": text})),
    "json of Go": lambda text: json.dumps(text).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
    "json of PHP": lambda text: json.dumps(text).replace("/", "\\/"),
    "repr of json": lambda text: repr(json.dumps({"a": text})),
    "repr of a text with both quotation marks": lambda text: repr(f"'\"{text}"),
    "ascii": ascii,
    "url of JavaScript": partial(quote, safe="!'()*"),
    "xml": lambda text: html.escape(text).replace("&#x27;", "&apos;"),
    "repr": repr,
    "repr of bytes": lambda text: repr(text.encode()),
    "json of a repr": lambda text: json.dumps(repr(text)),
    "url": partial(quote, safe=""),
    "path": quote,
    "form": lambda text: urlencode({"a": text}),
    "plus": quote_plus,
    "html": html.escape,
    "html text": partial(html.escape, quote=False),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    **{
        f"base64 of {before!r} + it + {after!r}, for URLs: {urlsafe}": partial(
            in_base64, before=before, after=after, urlsafe=urlsafe
        )
        for before in (b"", b"user:", b"ab", b"x")
        for after in (b"", b"!", b"!!")
        for urlsafe in (False, True)
    },
}


@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_secret_is_masked_in_each_encoding(name: str, encoding: str) -> None:
    text = ENCODINGS[encoding](TOKENS[name].strip())
    masked = SECRETS.masked(f"<{text}>")
    assert MASK in masked
    assert SECRETS.names_in(f"<{text}>") == {name}
    left = len(masked.replace(MASK, "")) - 2
    assert left <= len(ENCODINGS[encoding]("")) + (12 if "base64" in encoding else 0), masked


@given(st.text(min_size=8, max_size=60).filter(lambda text: len(text.strip()) >= 8), st.text(), st.text())
def test_any_value_is_masked(value: str, before: str, after: str) -> None:
    left = SecretValues({"A": value}).masked(f"{before}{value}{after}").split(MASK)
    assert not [one for one in left if value.strip() in one]


def test_a_long_token_is_masked_in_the_pieces_of_a_console() -> None:
    token = "".join(f"{number * number:x}Zq" for number in range(100, 140))
    width = 57
    panel = "\n".join(f"│ {token[at : at + width]:{width}} │" for at in range(0, len(token), width))
    masked = SecretValues({"TOKEN": token}).masked(panel)
    left = [line.strip("│ ").replace(MASK, "") for line in masked.splitlines()]
    assert max(map(len, left[:-1])) <= 2 * 7, "less than a piece's distance at both ends"


def test_pieces_of_long_tokens_have_a_bound() -> None:
    texts = [f"{number:04}" * 2000 for number in range(20)]
    secrets = SecretValues({f"TOKEN_{number}": text for number, text in enumerate(texts)})
    assert all(secrets.masked(text) == MASK for text in texts)
    assert [secrets.are_in(text[:200]) for text in (texts[0], texts[-1])] == [True, False]


def test_a_piece_is_not_the_value_of_a_variable() -> None:
    token = "".join(f"{number * number:x}Zq" for number in range(100, 140))
    secrets = SecretValues({"TOKEN": token})
    assert (secrets.names_in(token[:60]), secrets.names_in(f"a {token}")) == (set(), {"TOKEN"})


def test_a_piece_of_a_text_is_not_masked() -> None:
    prompt = "Answer the questions of customers in the language in which they are asked, and be brief. " * 3
    assert SecretValues({"PROMPT": prompt}).masked(prompt[:60]) == prompt[:60]


def test_a_short_value_is_no_secret() -> None:
    assert SecretValues({"A": "1234567"}).masked("1234567") == "1234567"
    assert not SecretValues({"A": "1234567", "B": ""})


def test_harmless_looking_values_are_masked_too() -> None:
    assert SecretValues({"STAGE": "production"}).masked("in production") == "in [secret]"


KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEA9x2K\n-----END PRIVATE KEY-----\n"
ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "private_key": KEY,
        "password": "correct horse battery",
        "database": {"url": "postgres://app:pw9-Longer@db.example.com/app"},
        "token_uri": "https://oauth2.example.com/token",
        "hosts": ["Zm9vYmFyMTIzNDU2"],
    },
    indent=1,
)


@pytest.mark.parametrize(
    "text",
    [KEY.splitlines()[1], KEY.splitlines()[2], "correct horse battery", "pw9-Longer", "Zm9vYmFyMTIzNDU2", ACCOUNT],
)
def test_parts_of_a_structured_secret_are_masked_alone(text: str) -> None:
    assert SecretValues({"ACCOUNT": ACCOUNT}).masked(f"it is {text}") == f"it is {MASK}"


@pytest.mark.parametrize(
    "text", ["service_account", "-----BEGIN PRIVATE KEY-----", "https://oauth2.example.com/token", "example"]
)
def test_harmless_parts_of_a_structured_secret_are_left(text: str) -> None:
    assert SecretValues({"ACCOUNT": ACCOUNT}).masked(text) == text


def test_a_password_of_a_structured_secret_is_masked_in_base64() -> None:
    header = base64.b64encode(b"app:correct horse battery").decode()
    assert "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5"[3:20] not in SecretValues({"ACCOUNT": ACCOUNT}).masked(f"Basic {header}")


def test_a_secret_of_many_lines_has_bounds() -> None:
    many = "\n".join(f"x9K2mQ7vT4z8-{number}" for number in range(3 * MOST_PARTS))
    secrets = SecretValues({"MANY": many, "TOKEN": "Xk29vQ7mT4zR8bLw"})
    assert len(secrets.texts) == MOST_PARTS + 2
    assert secrets.masked("Xk29vQ7mT4zR8bLw") == MASK


@pytest.mark.parametrize(
    ("structured", "masked"),
    [
        ({"a": "Xk29vQ7mT4zR8bLw", "b": [1, None]}, {"a": MASK, "b": [1, None]}),
        ({"x Xk29vQ7mT4zR8bLw": "y"}, {f"x {MASK}": "y"}),
        ({"number": 4929123412341234, "other": 12}, {"number": MASK, "other": 12}),
        ([TOKENS["SIGNS"]], [MASK]),
        ({"user": "harmless-name", "password": "of-the-value"}, {"user": "harmless-name", "password": MASK}),
    ],
)
def test_structured_output_stays_json(structured: Any, masked: Any) -> None:
    values = {**TOKENS, "OBJECT": '{"user":"harmless-name","password":"of-the-value"}'}
    text = json.dumps(structured, separators=(",", ":"))
    assert json.loads(SecretValues(values).masked_json_text(text)) == masked


def test_structured_output_without_a_secret_is_not_touched() -> None:
    text = '{"a": 1.50, "a": 2}'
    assert SECRETS.masked_json_text(text) is text


def test_structured_output_that_is_too_deep_to_mask_is_left_out() -> None:
    text = "[" * 100_000 + '"Xk29vQ7mT4zR8bLw"' + "]" * 100_000
    assert SECRETS.masked_json_text(text) == f'"{MASK}"'


SECRET = TOKENS["LETTERS"]
REDACTION = Redaction({**TOKENS, "OTHER": "aX9K2mQ7vT4z8"}, ["LETTERS", "DIGITS", "NOT_SET"])


@pytest.mark.parametrize(
    "message",
    [
        TasksKnown([{"key": "k", "name": f"of {SECRET}", "agent": SECRET}]),
        TaskStarted(0, "k", SECRET, None, 1.0),
        TaskEnded(0, "completed", 1.0, f"is {SECRET}", SECRET, 1.0),
        Succeeded(f"is {SECRET}", json.dumps({"a": SECRET})),
        Asked(1, "k", f"is {SECRET}", SECRET, 0, f"of_{SECRET}", [SECRET], "{}", waits=False),
        Inspected({"agents": [{"goal": SECRET}]}),
        Inspected({"inputs_schema": {"default": int(TOKENS["DIGITS"])}}),
    ],
)
def test_a_message_has_no_value_of_a_secret_variable(message: Any) -> None:
    masked = REDACTION.message(message)
    assert SECRET not in repr(masked)
    assert TOKENS["DIGITS"] not in repr(masked)
    assert MASK in repr(masked)


def test_a_name_is_masked_before_it_is_cut() -> None:
    name = f"{'n' * (LONGEST_NAME - 5)}{SECRET}"
    inspected = REDACTION.message(Inspected({"tasks": [{"key": "k", "name": name, "agent": name}]}))
    for masked in (REDACTION.message(TaskStarted(0, "k", name, name, 1.0)), inspected):
        assert SECRET[:4] not in repr(masked)
        assert "n" * LONGEST_NAME not in repr(masked)


def test_a_message_keeps_values_of_other_variables() -> None:
    ended = TaskEnded(0, "completed", 1.0, "aX9K2mQ7vT4z8")
    assert REDACTION.message(ended) == ended
    assert REDACTION.text("aX9K2mQ7vT4z8") == MASK
