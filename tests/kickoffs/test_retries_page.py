from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from windlass.kickoffs.retries import REASONS, Retries

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "retries.md").read_text("utf-8")


def test_the_table_that_is_shown_can_be_read_and_has_every_key() -> None:
    table = tomllib.loads(PAGE.split("```toml\n")[1].split("```")[0])["tool"]["windlass"]["retries"]
    assert Retries.parse(table).attempts > 1
    assert table.keys() == {one.name for one in fields(Retries)}


def test_every_reason_that_can_be_named_has_its_row() -> None:
    assert [reason for reason in REASONS.words if f"| `{reason}` |" not in PAGE] == []
