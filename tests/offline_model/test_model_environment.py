import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from windlass.offline_model.app import (
    PROVIDER_KEYS,
    has_provider_key,
    model_environment,
    names_another_model,
)

pytestmark = pytest.mark.unit


def test_a_crew_without_any_setting_is_sent_to_the_offline_model() -> None:
    for base_url in ("http://127.0.0.1:1", "http://127.0.0.1:1/", "http://127.0.0.1:1/v1"):
        added = model_environment({"PATH": "/bin", "OPENAI_API_KEY": ""}, base_url)
        assert added.keys() == {"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"}
        assert added["OPENAI_API_KEY"]
        assert added["OPENAI_BASE_URL"] == added["OPENAI_API_BASE"] == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_ACCESS_KEY_ID", "GROQ_API_KEY"])
def test_with_a_key_of_any_provider_the_offline_model_is_not_used(name: str) -> None:
    assert name in PROVIDER_KEYS
    assert has_provider_key({name: "x"}) == name
    assert model_environment({name: "x"}, "http://127.0.0.1:1") == {}
    assert has_provider_key({name: ""}) is None


@pytest.mark.parametrize(
    "words", ["YOUR_API_KEY", "your-openai-key", "your key here", "<your key>", "sk-...", "xxxx", "CHANGE_ME"]
)
def test_what_a_template_has_in_the_place_of_a_key_is_none(words: str) -> None:
    assert has_provider_key({"OPENAI_API_KEY": words}) is None
    assert model_environment({"OPENAI_API_KEY": words}, "http://127.0.0.1:1")["OPENAI_API_KEY"] != words


def test_every_key_that_crewai_looks_for_is_known() -> None:
    crewai = find_spec("crewai")  # importing it would take seconds
    assert crewai
    assert crewai.origin
    package = Path(crewai.origin).parent
    wizard = (package / "constants.py").read_text()
    compatible = (package / "llms/providers/openai_compatible/completion.py").read_text()
    looked_for = re.findall(r'"key_name": "(\w*(?:KEY|TOKEN))"', wizard)
    looked_for += re.findall(r'api_key_env="(\w+)"', compatible)
    assert len(looked_for) > 10
    assert set(looked_for) - {"AWS_SECRET_ACCESS_KEY"} <= set(PROVIDER_KEYS)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"OPENAI_BASE_URL": "http://localhost:8080/v1"}, "OPENAI_BASE_URL"),
        ({"OPENAI_API_BASE": "http://localhost:8080/v1"}, "OPENAI_API_BASE"),
        ({"MODEL": "ollama/llama3"}, "MODEL"),
        ({"MODEL": "claude-sonnet-4-5"}, "MODEL"),
        ({"MODEL": "", "OPENAI_MODEL_NAME": "gemini/gemini-2.5-pro"}, "OPENAI_MODEL_NAME"),
        ({"MODEL": "gpt-4o", "MODEL_NAME": "ollama/llama3"}, None),
        ({"MODEL": "openai/gpt-4o"}, None),
        ({"MODEL": "o3-mini", "OPENAI_BASE_URL": ""}, None),
        ({}, None),
    ],
)
def test_an_address_or_a_model_of_the_users_own_stands(environ: dict[str, str], name: str | None) -> None:
    assert names_another_model(environ) == name
    assert (model_environment(environ, "http://127.0.0.1:1") == {}) == (name is not None)
