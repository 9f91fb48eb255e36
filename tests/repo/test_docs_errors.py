"""docs/errors.md has every status code with its title and its causes, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from windlass.api import problems
from windlass.api.openapi import ERRORS

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")
RESERVED = {429}
"""Told so that clients can be ready for it; nothing of this release answers so."""


def test_the_table_has_every_code_with_its_title() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert [(int(status), title) for status, title in rows] == sorted(problems.TITLES.items())


def test_every_code_has_its_section() -> None:
    sections = re.findall(r"^## (\d{3})$", PAGE, re.MULTILINE)
    assert [int(status) for status in sections] == sorted(problems.TITLES)


def test_the_openapi_document_has_the_same_codes() -> None:
    assert set(ERRORS) == set(problems.TITLES) - RESERVED
