"""docs/reference/limits.md has every limit with the server's default."""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from windlass.config import Settings
from windlass.kickoffs.declared_settings import declared
from windlass.kickoffs.limits import Limits
from windlass_child.protocol.sizes import size_in_words

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "limits.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE))


def test_every_limit_has_its_row() -> None:
    assert list(ROWS) == [field.name for field in fields(Limits)]


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_the_default_is_that_of_the_setting(name: str) -> None:
    default = asdict(Settings().limits)[name]
    words = (
        "none"
        if default is None
        else f"{size_in_words(default) if declared(Limits)[name].kind.form == 'size' else format(default, 'g')}"
    )
    assert ROWS[name] == (words if default is None else f"`WINDLASS_{name.upper()}`: {words}")


def test_the_examples_are_limits() -> None:
    toml, body = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL), re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert toml
    assert body
    assert Limits.parse(tomllib.loads(textwrap.dedent(toml[1]))["tool"]["windlass"]["limits"]) != Limits()
    assert Limits.parse(json.loads(body[1])["limits"]) != Limits()
