from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from cli.fake_crew import FakeCrew
    from cli.the_command import Command, Started


def address_of(command: Started) -> str:
    return command.wait_for("OPENAI_BASE_URL").split()[1].partition("=")[2]


def asked(address: str, prompt: str) -> httpx.Response:
    body = {"model": "any", "messages": [{"role": "user", "content": prompt}]}
    return httpx.post(f"{address}/chat/completions", json=body, timeout=60)


def test_the_offline_model_is_served_where_its_line_says(windlass: Command) -> None:
    with windlass.started("demo-llm", "--port", "0") as command:
        line = command.wait_for("OPENAI_BASE_URL")
        given = dict(word.split("=") for word in line.split()[1:])
        assert given["OPENAI_BASE_URL"] == given["OPENAI_API_BASE"]
        models = httpx.get(f"{given['OPENAI_BASE_URL']}/models", timeout=60).json()
        assert [model["id"] for model in models["data"]] == ["offline-model"]


def test_it_is_not_served_to_others(windlass: Command) -> None:
    ended = windlass("demo-llm", "--host", "0.0.0.0")
    assert ended.code == 2
    assert "is no loopback address" in ended.err


def test_a_port_that_is_taken_is_told(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("demo-llm", "--port", str(crew.port))
    assert ended.code == 1
    assert f"can't listen on 127.0.0.1:{crew.port}" in ended.err


def test_a_script_says_what_is_answered_and_a_strict_one_nothing_else(windlass: Command, tmp_path: Path) -> None:
    script = tmp_path / "answers.toml"
    script.write_text("[[rules]]\ncontains = 'tea'\ntext = 'Leaves.'\n")
    with windlass.started("demo-llm", "--port", "0", "--script", str(script), "--strict") as command:
        address = address_of(command)
        answered = asked(address, "What is tea?")
        assert answered.json()["choices"][0]["message"]["content"] == "Leaves."
        refused = asked(address, "What is milk?")
    assert refused.status_code == 400
    assert "What is milk?" in refused.json()["error"]["message"]


def test_errors_come_as_often_as_the_rate_says(windlass: Command) -> None:
    options = ("--error-rate", "1", "--error-status", "503", "--seed", "7", "--latency", "0-0.01")
    with windlass.started("demo-llm", "--port", "0", *options) as command:
        failed = asked(address_of(command), "What is tea?")
    assert (failed.status_code, failed.headers["Retry-After"]) == (503, "1")


def test_without_a_status_errors_are_429(windlass: Command) -> None:
    with windlass.started("demo-llm", "--port", "0", "--error-rate", "1") as command:
        assert asked(address_of(command), "What is tea?").status_code == 429


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--latency", "fast"], "'fast' is no latency: give seconds such as 0.5, or a range such as 0.2-1.5"),
        (["--latency", "1.5-0.2"], "'1.5-0.2' is no latency"),
        (["--latency", "-1"], "'-1' is no latency"),
        (["--error-rate", "1.1"], "1.1 is not in the range 0<=x<=1"),
        (["--error-rate", "-0.1"], "-0.1 is not in the range 0<=x<=1"),
        (["--error-rate", "nan"], "nan is not a number from 0 to 1"),
        (["--error-rate", "0.1", "--error-status", "418"], "'418' is not one of '429', '500', '503'"),
        (["--error-status", "500"], "needs an error rate: add --error-rate"),
        (["--strict"], "give --script FILE"),
        (["--seed", "x"], "'x' is not a valid integer"),
    ],
)
def test_an_option_that_cannot_be_used_is_told(options: list[str], words: str, windlass: Command) -> None:
    ended = windlass("demo-llm", "--port", "0", *options)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "can't be read: No such file or directory"),
        ("rules: []", "is not TOML: "),
        (
            "[[rules]]\ncontians = 'tea'\ntext = 'a'",
            "rule 1 has the key 'contians', which is unknown; the keys are contains,",
        ),
        ("[[rules]]\nmatches = '('\ntext = 'a'", "rule 1.matches is no regular expression: "),
    ],
)
def test_a_script_that_cannot_be_used_is_told(
    content: str | None, words: str, windlass: Command, tmp_path: Path
) -> None:
    script = tmp_path / "answers.toml"
    if content is not None:
        script.write_text(content)
    ended = windlass("demo-llm", "--port", "0", "--script", str(script))
    error, hint = ended.err.splitlines()
    assert (ended.code, ended.out) == (1, "")
    assert error.startswith(f"error: The script {script} ")
    assert words in error
    assert "docs/how-to/offline-model.md" in hint
