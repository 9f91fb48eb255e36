from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from cli.fake_crew import FakeCrew
    from cli.the_command import Command


def test_the_offline_model_is_served_where_its_line_says(windlass: Command) -> None:
    with windlass.started("demo-llm", "--port", "0") as command:
        line = command.wait_for("OPENAI_BASE_URL")
        given = dict(word.split("=") for word in line.split()[1:])
        assert given["OPENAI_BASE_URL"] == given["OPENAI_API_BASE"]
        models = httpx.get(f"{given['OPENAI_BASE_URL']}/models", timeout=30).json()
        assert [model["id"] for model in models["data"]] == ["offline-model"]


def test_it_is_not_served_to_others(windlass: Command) -> None:
    ended = windlass("demo-llm", "--host", "0.0.0.0")
    assert ended.code == 2
    assert "is not this machine's loopback" in ended.err


def test_a_port_that_is_taken_is_told(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("demo-llm", "--port", str(crew.port))
    assert ended.code == 1
    assert f"can't listen on 127.0.0.1:{crew.port}" in ended.err
