"""docs/reference/errors.md has every status code with its title and its causes, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass.api import errors
from windlass.api.crew_api.examples import ERRORS
from windlass.cli.why_text import AFTER_A_BAD_END
from windlass.kickoffs.states import Reason

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text("utf-8")


def test_the_table_has_every_code_with_its_title() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert [(int(status), title) for status, title in rows] == sorted(errors.TITLES.items())


def test_every_code_has_its_section() -> None:
    sections = re.findall(r"^## (\d{3})$", PAGE, re.MULTILINE)
    assert [int(status) for status in sections] == sorted(errors.TITLES)


def test_the_openapi_document_has_the_same_codes() -> None:
    assert set(ERRORS) == set(errors.TITLES)


def test_every_reason_of_a_bad_end_is_told_and_explained_by_the_command() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(Reason)
    assert list(AFTER_A_BAD_END) == list(Reason)
