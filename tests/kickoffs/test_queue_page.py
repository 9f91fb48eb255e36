"""docs/concepts/queue.md names every thing that a kickoff may wait for."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from windlass.kickoffs.waiting import Code

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "queue.md").read_text("utf-8")


def test_every_code_has_its_row() -> None:
    assert [code for code in get_args(Code) if f"| `{code}` |" not in PAGE] == []
