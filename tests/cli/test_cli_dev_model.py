"""Which model the crews of `windlass dev` use is decided for each kickoff."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import RESOLVER
from windlass import config
from windlass.offline_model.app import PROVIDER_KEYS
from windlass.wiring.crews import dev_environments

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = ("MODEL", "MODEL_NAME", "OPENAI_MODEL_NAME", "BASE_URL", "API_BASE", "AZURE_API_BASE")
ADDRESSES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
OFFLINE = "no model key is set (such as OPENAI_API_KEY): crews get answers from the offline model"
OWN = "crews use the model of your environment ({} is set there or in the project's .env)"


@pytest.fixture
def env_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in (*PROVIDER_KEYS, *OTHERS, *ADDRESSES, "WINDLASS_OFFLINE_SCRIPT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".env"


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def test_a_key_that_goes_and_comes_is_told_and_counts_for_the_next_kickoff(env_file: Path) -> None:
    project, said = env_file.parent, list[str]()
    write(env_file, "OPENAI_API_KEY=sk-for-tests")
    async with AsyncExitStack() as stack:
        environments = await dev_environments(config.load(), RESOLVER, {project: said.append}, stack, said.append)
        assert said == [OWN.format("OPENAI_API_KEY")]
        write(env_file, "")
        assert (await environments.of_project(project))["OPENAI_BASE_URL"].startswith("http://127.0.0.1:")
        assert said[1:] == [f"the model has changed: {OFFLINE}"]
        write(env_file, "ANTHROPIC_API_KEY=sk-for-tests")
        assert "OPENAI_BASE_URL" not in await environments.of_project(project)
        await environments.of_project(project)
        assert said[2:] == [f"the model has changed: {OWN.format('ANTHROPIC_API_KEY')}"]


async def test_of_a_project_that_was_served_before_nothing_is_told(env_file: Path, tmp_path: Path) -> None:
    other, said = tmp_path / "other", list[str]()
    other.mkdir()
    write(other / ".env", "OPENAI_API_KEY=sk-for-tests")
    async with AsyncExitStack() as stack:
        served = {env_file.parent: said.append}
        environments = await dev_environments(config.load(), RESOLVER, served, stack, said.append)
        assert "OPENAI_BASE_URL" not in await environments.of_project(other)
    assert said == [OFFLINE]
