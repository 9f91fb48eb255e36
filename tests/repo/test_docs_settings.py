from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass.config import FILES, SECRETS, Settings, variable_of

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(?:WINDLASS_)?(\w+)` \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)


def test_the_page_has_every_setting_with_its_meaning() -> None:
    settings = {name.upper(): field.description for name, field in Settings.model_fields.items()}
    assert {name: meaning for name, _, meaning in ROWS} == settings


def test_the_page_has_the_variables_of_files_with_secrets() -> None:
    (section,) = re.findall(r"^## Secrets in files$(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert tuple(re.findall(r"`(\w+_FILE)`", section)) == FILES


def test_each_secret_setting_can_be_in_a_file() -> None:
    secret = {
        variable_of(name) for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)
    }
    assert secret == set(SECRETS)


def test_the_page_has_the_defaults() -> None:
    told = {name.lower(): default.strip("`") for name, default, _ in ROWS}
    fixed = {
        name: field.default
        for name, field in Settings.model_fields.items()
        if field.default_factory is None and field.default is not None
    }
    assert {name: told[name] for name in fixed} == {
        name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in fixed.items()
    }
