from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from windlass.errors import WindlassError
from windlass.offline_model.answers import ChatRequest, ToolCall
from windlass.offline_model.faults import Seconds
from windlass.offline_model.rules import Rule
from windlass.offline_model.script import Reply, Script

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "offline-model.md").read_text("utf-8")
WHOLE = """
strict = true

[[rules]]
contains = ["tea", "green"]
matches = '\\bleaf|leaves\\b'
model = "gpt-*"
times = 2
tool = "look_up"
arguments = { topic = "tea", on = 2024-05-06, at = 2024-05-06T07:08:09Z }
latency = "0.2-1.5"

[[rules]]
json = [1, { a = true }]
"""


def asked(prompt: str, model: str = "gpt-4o", tools: tuple[str, ...] = ("look_up",)) -> ChatRequest:
    offered = [{"function": {"name": name}} for name in tools]
    messages = [{"role": "user", "content": prompt}]
    return ChatRequest.model_validate({"model": model, "messages": messages, "tools": offered})


def calls_of(reply: Reply) -> list[tuple[str, Any]]:
    calls: tuple[ToolCall, ...] = reply.answer.calls if reply.answer else ()
    return [(call.name, json.loads(call.arguments)) for call in calls]


def complaint(file: Path) -> str:
    with pytest.raises(WindlassError) as caught:
        Script.read(file)
    assert str(file) in caught.value.message
    assert "docs/how-to/offline-model.md" in caught.value.hint
    return caught.value.message.replace(str(file), "FILE")


def test_a_whole_script_is_read(tmp_path: Path) -> None:
    file = tmp_path / "answers.toml"
    file.write_text(WHOLE)
    script = Script.read(file)
    assert script.strict
    reply = script.reply(asked("Which green\n  leaves are tea?"))
    wanted = {"topic": "tea", "on": "2024-05-06", "at": "2024-05-06T07:08:09Z"}
    assert (calls_of(reply), reply.latency) == ([("look_up", wanted)], Seconds(0.2, 1.5))
    for other in (asked("Which leaves are tea?"), asked("Green tea?"), asked("green leaves, tea", "o3")):
        assert script.reply(other).answer is not None
        assert calls_of(script.reply(other)) == []


def test_the_scripts_of_the_page_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "answers.toml"
    scripts = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for text in scripts:
        file.write_text(text)
        Script.read(file)
    assert len(scripts) == 2


def test_the_page_has_the_keys_of_a_rule() -> None:
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE.partition("## A script")[2], re.MULTILINE)
    told = [key for cell in cells for key in re.findall(r"\w+", cell)]
    assert told == [field.alias or name for name, field in Rule.model_fields.items()]


def test_json_does_as_well_as_toml(tmp_path: Path) -> None:
    file = tmp_path / "answers.JSON"
    file.write_text('{"rules": [{"contains": "tea", "json": null}]}')
    script = Script.read(file)
    reply = script.reply(asked("tea"))
    assert not script.strict
    assert Script.read(file, strict=True).strict
    assert reply.answer
    assert reply.answer.text == "null"


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "[[rules]]\ntext = 'é'"), ("a.json", '{"rules": [{"text": "é"}]}')]
)
def test_a_byte_order_mark_is_passed_over(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8-sig")
    answer = Script.read(file).reply(asked("tea")).answer
    assert answer
    assert answer.text == "é"


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("", "the file has no rules: add one with [[rules]]"),
        ("rules = []", "the file.rules list should have at least 1 item"),
        ("rules = 1", "the file.rules input should be a valid list"),
        ("rules = [1]", "rule 1 input should be a valid dictionary"),
        ("[[rule]]\ntext = 'a'", "the file has the key 'rule', which is unknown; the keys are strict, rules"),
        ("strict = 1\n[[rules]]\ntext = 'a'", "the file.strict input should be a valid boolean"),
        (
            "[[rules]]\ntext = 'a'\n[[rules]]\ncontians = 'b'\ntext = 'c'",
            "rule 2 has the key 'contians', which is unknown",
        ),
        ("[[rules]]\ncontains = 'b'", "rule 1 has no answer: add one of text, json, tool, calls, error"),
        ("[[rules]]\ntext = 'a'\nerror = 429", "rule 1 has 2 answers, text and error: keep one of them"),
        ("[[rules]]\ntext = 'a'\narguments = {}", "rule 1 has arguments, but no tool: add one"),
        ("[[rules]]\nmatches = '('\ntext = 'a'", "rule 1.matches is no regular expression: missing )"),
        ("[[rules]]\nmatches = 1\ntext = 'a'", "rule 1.matches must be a regular expression in quotes"),
        ("[[rules]]\ncontains = ' '\ntext = 'a'", "rule 1.contains.0 must hold a word"),
        ("[[rules]]\ncontains = []\ntext = 'a'", "rule 1.contains must hold a word, or any prompt would fit"),
        ("[[rules]]\ncontains = ''\ntext = 'a'", "rule 1.contains.0 must hold a word, or any prompt would fit"),
        ("[[rules]]\ncontains = ['a', 1]\ntext = 'a'", "rule 1.contains.1 input should be a valid string"),
        ("[[rules]]\ntext = 1", "rule 1.text input should be a valid string"),
        ("[[rules]]\njson = nan", "rule 1.json holds a number that JSON does not have"),
        ("[[rules]]\ntool = ''", "rule 1.tool string should have at least 1 character"),
        ("[[rules]]\ntool = 'a'\narguments = 'b'", "rule 1.arguments must be a table such as"),
        ("[[rules]]\ncalls = []", "rule 1.calls list should have at least 1 item"),
        (
            "[[rules]]\ncalls = [{ name = 'a' }]",
            "rule 1 has the key 'name', which is unknown; the keys are tool, arguments",
        ),
        ("[[rules]]\ncalls = [{}]", "rule 1 has no tool: add one"),
        ("[[rules]]\nerror = 200", "rule 1.error input should be greater than or equal to 400"),
        ("[[rules]]\ntext = 'a'\ntimes = 0", "rule 1.times input should be greater than or equal to 1"),
        ("[[rules]]\ntext = 'a'\nlatency = '2-1'", "rule 1.latency '2-1' is no latency: give seconds such as 0.5"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told_by_its_number(rules: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "answers.toml"
    file.write_text(rules)
    told = complaint(file)
    assert told.startswith("The script FILE can't be used: ")
    assert words in told


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "answers.toml"
    file.write_text("[[rules]]\nerror = 1\n[[rules]]\ntimes = 0\ntext = 'a'")
    assert re.search(r"rule 1\.error .*; rule 2\.times ", complaint(file))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", b"rules: []", "FILE is not TOML: "),
        ("a.toml", b'[[rules]]\nmatches = "\\d"', "FILE is not TOML: Unescaped"),
        ("a.toml", b"\xff", "FILE is not TOML: 'utf-8' codec can't decode"),
        ("a.json", b"[[rules]]", "FILE is not JSON: "),
        ("a.json", b"[" * 100_000, "FILE is not JSON: "),
        ("a.json", b"[]", "FILE can't be used: the file input should be a valid dictionary"),
        (
            "a.json",
            b'{"rules": [{"text": "\\ud800"}]}',
            "FILE is not JSON: 'utf-8' codec can't encode",
        ),
    ],
)
def test_a_file_in_another_form_is_told(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert words in complaint(file)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert "can't be read: No such file or directory" in complaint(tmp_path / "none.toml")
    assert "can't be read: Is a directory" in complaint(tmp_path)
