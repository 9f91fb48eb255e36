"""The offline model of `windlass dev`, by a script."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import openai
import pytest

from lifecycle.running import RESOLVER
from windlass import config
from windlass.errors import WindlassError
from windlass.offline_model.app import PROVIDER_KEYS
from windlass.wiring.crews import dev_environments

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OTHERS = ("MODEL", "MODEL_NAME", "OPENAI_MODEL_NAME", "BASE_URL", "API_BASE", "AZURE_API_BASE")
ADDRESSES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")


@pytest.fixture
def unusable(file: Path) -> Path:
    file.write_text("[[rules]]\ntexts = 'Leaves.'\n")
    return file


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in (*PROVIDER_KEYS, *OTHERS, *ADDRESSES):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "answers.toml"
    file.write_text("strict = true\n[[rules]]\ncontains = 'tea'\ntext = 'Leaves.'\n")
    monkeypatch.setenv("WINDLASS_OFFLINE_SCRIPT", str(file))
    return file


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def answer(environment: Mapping[str, str], prompt: str) -> str | None:
    address, key = environment["OPENAI_BASE_URL"], environment["OPENAI_API_KEY"]
    async with openai.AsyncOpenAI(base_url=address, api_key=key, max_retries=0) as client:
        completion = await client.chat.completions.create(model="any", messages=[{"role": "user", "content": prompt}])
    return completion.choices[0].message.content


async def test_crews_get_the_answers_of_the_script(file: Path, tmp_path: Path) -> None:
    said: list[str] = []
    async with AsyncExitStack() as stack:
        environments = await dev_environments(config.load(), RESOLVER, {tmp_path: said.append}, stack, said.append)
        environment = await environments.of_project(tmp_path)
        assert await answer(environment, "What is tea?") == "Leaves."
        with pytest.raises(openai.BadRequestError, match="No rule of the script"):
            await answer(environment, "What is milk?")
    assert said[-1].endswith(f"crews get answers from the offline model, which answers by {file}")
    assert not [name for name in environment if name.startswith("WINDLASS_")]


async def test_a_script_that_is_changed_meanwhile_is_told_and_answers(file: Path, tmp_path: Path) -> None:
    said: list[str] = []
    async with AsyncExitStack() as stack:
        environments = await dev_environments(config.load(), RESOLVER, {tmp_path: said.append}, stack, said.append)
        environment = await environments.of_project(tmp_path)
        write(file, "[[rules]]\ncontains = 'tea'\ntext = 'Only leaves.'\n")
        assert await answer(environment, "What is tea?") == "Only leaves."
        assert said[-1] == f"the script {file} has changed: its new rules apply from now on"
        write(file, "[[rules]]\ntexts = 'Leaves.'\n")
        assert await answer(environment, "What is tea?") == "Only leaves."
    assert "rule 1 has the key 'texts'" in said[-1]


async def test_without_a_script_the_model_answers_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WINDLASS_OFFLINE_SCRIPT")
    said: list[str] = []
    async with AsyncExitStack() as stack:
        served = {tmp_path: said.append}
        environments = await dev_environments(config.load(), RESOLVER, served, stack, said.append)
        given = await answer(await environments.of_project(tmp_path), "What is tea?")
    assert given
    assert given.startswith("[offline model]")


async def test_a_script_that_cannot_be_used_is_told_at_the_start(unusable: Path, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(WindlassError, match="rule 1 has the key 'texts', which is unknown"):
            await dev_environments(config.load(), RESOLVER, {tmp_path: lambda _: None}, stack, lambda _: None)


async def test_that_a_script_is_not_used_beside_a_key_is_told(
    monkeypatch: pytest.MonkeyPatch, file: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-tests")
    said: list[str] = []
    async with AsyncExitStack() as stack:
        environments = await dev_environments(config.load(), RESOLVER, {tmp_path: said.append}, stack, said.append)
        assert "OPENAI_BASE_URL" not in await environments.of_project(tmp_path)
    assert said[-1] == f"warning: the script {file} (WINDLASS_OFFLINE_SCRIPT) is not used with that model"
