from __future__ import annotations

from pathlib import Path

import pytest

from windlass_child.kinds import KINDS
from windlass_child.masking.secret_parts import MACHINE
from windlass_child.process.process_env import quiet

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "projects.md").read_text("utf-8")


@pytest.mark.parametrize("name", [*quiet(), *sorted(MACHINE)])
def test_the_page_names_every_variable_that_a_crew_finds(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_every_kind(kind: str) -> None:
    assert f"\n| {kind} | " in PAGE
